"""Calls that a launcher must refuse: a ValueError that names kernel and argument."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gemmgen.operations import OPERATIONS
from gemmgen.plan import Plan
from gemmgen.verification.cases import Case, numbers
from gemmgen.verification.examples import (
    Call,
    Wrong,
    framed_inputs,
    framed_outputs,
)


@dataclass(frozen=True)
class Refusal:
    """A call with one argument that is not as it should be."""

    argument: str
    mistake: str
    call: Call


def check_refusals(
    plan: Plan, launcher: Callable[..., Any], device: torch.device
) -> int:
    """Raise `Wrong` for a mistake that is not refused properly; how many were tried."""
    count = 0
    for count, refusal in enumerate(refusals(plan, device), 1):  # noqa: B007
        _check(plan, launcher, refusal)
    return count


def _check(plan: Plan, launcher: Callable[..., Any], refusal: Refusal) -> None:
    wanted = f"{plan.name}: {refusal.argument} must "
    what = f"{refusal.argument} {refusal.mistake}"
    try:
        refusal.call.of(plan, launcher)
    except ValueError as error:
        if not str(error).startswith(wanted):
            raise Wrong(f"{what}: the message is not '{wanted}…': {error}") from error
    except Exception as error:
        raise Wrong(
            f"{what}: {type(error).__name__}, not ValueError: {error}"
        ) from error
    else:
        raise Wrong(f"{what}: accepted")


def refusals(plan: Plan, device: torch.device) -> Iterator[Refusal]:
    """Every argument with every mistake that can be made in it."""
    case = Case((3,), 5, 7, numbers=(1.0,) * len(numbers(plan)))
    tensors = {
        name: framed.view for name, framed in framed_inputs(plan, case, device).items()
    }
    outputs = [framed.view for framed in framed_outputs(plan, case, device)]
    call = Call(tensors, dict.fromkeys(numbers(plan), 1.0), outputs)
    for name, tensor in tensors.items():
        for mistake, wrong in _input_mistakes(plan, name, tensor):
            changed = replace(call, tensors={**tensors, name: wrong})
            yield Refusal(name, mistake, changed)
    for name in call.numbers:
        wrong_number: Any = "1"
        changed = replace(call, numbers={**call.numbers, name: wrong_number})
        yield Refusal(name, "is text", changed)
    for position, output in enumerate(outputs):
        name = f"out[{position}]" if len(outputs) > 1 else "out"
        for mistake, wrong in _output_mistakes(output):
            given = [*outputs[:position], wrong, *outputs[position + 1 :]]
            yield Refusal(name, mistake, replace(call, outputs=given))


def _input_mistakes(
    plan: Plan, name: str, tensor: Tensor
) -> Iterator[tuple[str, Tensor]]:
    first = name == plan.a.name
    not_a_tensor: Any = 1.0
    yield "is no tensor", not_a_tensor
    yield "has another dtype", tensor.to(torch.int32)
    if first and OPERATIONS[plan.op].leading:
        yield "has no axis", tensor[0, 0]
    else:
        yield "has an axis too many", tensor[None]
    if not first:
        # B says what N is; only its K can be wrong.
        axis = plan.b.stored_axes.index("k") if name == plan.b.name else -1
        yield "has a wrong size", torch.cat([tensor, tensor], dim=axis)
        yield "is on another device", tensor.to("meta")
    elif tensor.is_cuda:
        yield "is not on a GPU", tensor.cpu()


def _output_mistakes(output: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield "has a wrong size", output[:-1]
    yield "has another dtype", output.to(torch.int32)
    yield "is broadcast", output[:1].expand(output.shape)
    yield "is on another device", output.to("meta")
