"""Whose memory a launcher may write, and which tensors have none that it could read.

Refusals like those of `refusals`; and the one case of shared memory that is right.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.contract.refusals import (
    Refusal,
    check_each,
    sparse,
    valid_call,
    with_output,
)
from gemmgen.verification.example.one_example import Call, Wrong, bits

_ROOM, _PLACE = 4096, 1024
"""Bytes that arguments share, and where in them a result begins."""
_SQUARE, _SMALL = Case((8,), 8, 8), Case((13,), 12, 24)


def check_in_place(
    plan: Plan, launcher: Callable[..., Any], device: torch.device
) -> int:
    """Raise `Wrong` unless an operand [m, n] may be the result; how many were tried.

    Configurations that are raced run a kernel many times, and take no such operand.
    """
    pairs = [
        (operand, position)
        for operand in plan.operands
        for position, result in enumerate(plan.results)
        if operand.is_matrix and operand.dtype == result.dtype and not plan.configs
    ]
    for operand, position in pairs:
        call = valid_call(plan, _SMALL, device)
        wanted = [result.clone() for result in call.of(plan, launcher)]
        changed = with_output(
            call, position, "is an operand", call.tensors[operand.name]
        ).call
        for got, want in zip(changed.of(plan, launcher), wanted, strict=True):
            if not torch.equal(bits(got), bits(want)):
                raise Wrong(f"another result where out is {operand.name} itself")
    return 2 * len(pairs)


def check_memory_refusals(
    plan: Plan, launcher: Callable[..., Any], device: torch.device
) -> int:
    """Raise `Wrong` for one that is not refused properly; how many were tried."""
    return check_each(plan, launcher, memory_refusals(plan, device))


def memory_refusals(plan: Plan, device: torch.device) -> Iterator[Refusal]:
    """Results over other arguments and themselves; tensors that hold no values."""
    call = valid_call(plan, _SQUARE, device)
    for position, output in enumerate(call.outputs or []):
        for name in call.tensors:
            for shift in (-16, 16):
                yield _over(call, position, name, shift)
        yield with_output(
            call, position, "has rows that overlap", output.as_strided((8, 8), (4, 1))
        )
        leaf = torch.zeros_like(output).requires_grad_()
        yield with_output(call, position, "requires a gradient", leaf)
    yield from _parts_of_operands(plan, call)
    for name, tensor in call.tensors.items():
        for mistake, wrong in _without_values(tensor):
            changed = replace(call, tensors={**call.tensors, name: wrong})
            yield Refusal(name, mistake, changed)


def _over(call: Call, position: int, name: str, shift: int) -> Refusal:
    """A result that begins some bytes before or behind where an input does."""
    output, tensor = (call.outputs or [])[position], call.tensors[name]
    room = torch.zeros(_ROOM, dtype=torch.int8, device=output.device)
    inside = min(shift, tensor.nbytes // 2)
    read = _placed(room, tensor, _PLACE - inside)
    changed = replace(call, tensors={**call.tensors, name: read})
    mistake = f"begins {inside} bytes behind {name}"
    return with_output(changed, position, mistake, _placed(room, output, _PLACE))


def _placed(room: Tensor, like: Tensor, place: int) -> Tensor:
    """A tensor of the same shape and dtype, without gaps, in the memory given."""
    return room[place : place + like.nbytes].view(like.dtype).view(like.shape)


def _parts_of_operands(plan: Plan, call: Call) -> Iterator[Refusal]:
    """Results that are an operand [m, n] seen another way."""
    for operand in plan.operands:
        for position, output in enumerate(call.outputs or []):
            tensor = call.tensors.get(operand.name)
            if operand.is_matrix and tensor is not None:
                if tensor.dtype != output.dtype:
                    continue
                for mistake, seen in (
                    ("is transposed in", output.T),
                    ("has its first row as", output[:1].expand(output.shape)),
                ):
                    given = {**call.tensors, operand.name: seen}
                    yield with_output(
                        replace(call, tensors=given),
                        position,
                        f"{mistake} {operand.name}",
                        output,
                    )


def _without_values(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "requires a gradient", tensor.detach().requires_grad_()
    yield "is a view that negates", torch._neg_view(tensor)
    if tensor.dim() == 2:
        yield "is sparse", sparse(tensor)
