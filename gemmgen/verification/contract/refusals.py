"""Calls that a launcher must refuse: a ValueError that names kernel and argument."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.example.one_example import (
    Call,
    Wrong,
    framed_inputs,
    framed_outputs,
)
from gemmgen.verification.example.subject import launcher as launcher_of
from gemmgen.verification.example.subject import runtime
from gemmgen.verification.oracle.reference import torch_dtype


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
    return check_each(plan, launcher, refusals(plan, device))


def check_each(
    plan: Plan, launcher: Callable[..., Any], every: Iterable[Refusal]
) -> int:
    """Raise `Wrong` for one that is not refused properly; how many were tried."""
    count = 0
    for count, refusal in enumerate(every, 1):  # noqa: B007
        _check(plan, launcher, refusal)
    return count


def check_numbers(
    plan: Plan, launcher: Callable[..., Any], device: torch.device
) -> int:
    """Raise `Wrong` unless numbers may be all that their types hold, and no more.

    How many numbers there are.
    """
    call = valid_call(plan, Case((3,), 5, 7), device)
    given = [one for one in plan.operands if one.is_number]
    for one in given:
        largest = torch.finfo(torch_dtype(one.dtype)).max
        for number in (largest, -largest, math.inf):
            try:
                _with_number(call, one.name, number).of(plan, launcher)
            except ValueError as error:
                raise Wrong(f"{one.name} of {number}: {error}") from error
        if math.isfinite(2 * largest):
            larger = _with_number(call, one.name, 2 * largest)
            _check(plan, launcher, Refusal(one.name, "is too large", larger))
    return len(given)


def check_without_bf16(plan: Plan, module: ModuleType, device: torch.device) -> int:
    """Raise `Wrong` unless bf16 is refused where the interpreter multiplies none.

    Other types are not.
    """
    call = valid_call(plan, Case((3,), 5, 7), device)
    launcher = launcher_of(plan, module)
    name = plan.contraction.lhs.name
    types = {one.dtype for one in call.tensors.values()}
    types |= {torch_dtype(result.dtype) for result in plan.results}
    with patch.object(runtime(module, "checks"), "interprets_bf16", bool):
        if device.type == "cpu" and call.tensors[name].dtype == torch.bfloat16:
            _check(plan, launcher, Refusal(name, "is bf16", call))
        elif torch.bfloat16 not in types:
            call.of(plan, launcher)
    return 1


def check_traced_numbers(plan: Plan, module: ModuleType, device: torch.device) -> int:
    """Raise `Wrong` unless numbers may be symbolic where no kernel will run.

    Text may not. How many numbers there are.
    """
    call = valid_call(plan, Case((3,), 5, 7), device)
    launcher = launcher_of(plan, module)
    with runtime(module, "support").dry_run():
        for name in call.numbers:
            _with_number(call, name, _symbolic()).of(plan, launcher)
            wrong = _with_number(call, name, "1")
            _check(plan, launcher, Refusal(name, "is text", wrong))
    return len(call.numbers)


@cache
def _symbolic() -> torch.SymFloat:
    """A number that is not known, as torch.compile and torch.export have them."""
    # Imports sympy, which a kernel without numbers has no need of.
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return ShapeEnv().create_unbacked_symfloat()


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
    call = valid_call(plan, Case((3,), 5, 7), device)
    tensors, outputs = call.tensors, call.outputs or []
    for name, tensor in tensors.items():
        for mistake, wrong in _input_mistakes(plan, name, tensor):
            changed = replace(call, tensors={**tensors, name: wrong})
            yield Refusal(name, mistake, changed)
    for name in call.numbers:
        for mistake, wrong_number in (*_NO_NUMBERS, ("is symbolic", _symbolic())):
            yield Refusal(name, mistake, _with_number(call, name, wrong_number))
    for position, output in enumerate(outputs):
        for mistake, wrong in _output_mistakes(output):
            yield with_output(call, position, mistake, wrong)
    yield from _wrong_counts(call)
    yield from _shared(plan, valid_call(plan, Case((8,), 8, 8), device))


def valid_call(plan: Plan, case: Case, device: torch.device) -> Call:
    """Arguments as they should be, `out` among them."""
    inputs = framed_inputs(plan, case, device)
    outputs = [framed.view for framed in framed_outputs(plan, case, device)]
    tensors = {name: framed.view for name, framed in inputs.items()}
    return Call(tensors, dict.fromkeys(numbers(plan), 1.0), outputs)


def _with_number(call: Call, name: str, number: Any) -> Call:
    return replace(call, numbers={**call.numbers, name: number})


def with_output(call: Call, position: int, mistake: str, wrong: Tensor) -> Refusal:
    """A call whose result at a position goes to a tensor that it may not go to."""
    outputs = list(call.outputs or [])
    name = f"out[{position}]" if len(outputs) > 1 else "out"
    outputs[position] = wrong
    return Refusal(name, mistake, replace(call, outputs=outputs))


_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NO_NUMBERS: tuple[tuple[str, Any], ...] = (
    ("is text", "1"),
    ("is None", None),
    ("is a bool", True),
    ("is complex", 1j),
    ("is a list", [1.0]),
    ("is more than any float", 10**400),
)


def _dtypes(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    for dtype in (*_FLOATS, torch.int32, torch.bool):
        if dtype != tensor.dtype:
            yield f"is {dtype}", tensor.to(dtype)


def _input_mistakes(
    plan: Plan, name: str, tensor: Tensor
) -> Iterator[tuple[str, Tensor]]:
    first = name == plan.contraction.lhs.name
    for what in (1.0, None, tensor.tolist()):
        not_a_tensor: Any = what
        yield f"is a {type(what).__name__}", not_a_tensor
    yield from _dtypes(tensor)
    yield "is sparse", sparse(tensor)
    yield "is nested", _nested(tensor)
    if not (first and OPERATIONS[plan.op].leading):
        yield "has an axis too many", tensor[None]
        yield "has an axis too few", tensor[0]
    else:
        yield "has no axis", tensor[0, 0]
    if not first:
        # The first right side says what N is; only its K can be wrong.
        right = plan.contraction.first
        k_axis = right.stored_axes.index("k")
        axes = (k_axis,) if name == right.name else range(tensor.dim())
        for axis in axes:
            yield from _sizes(tensor, axis)
        yield "is on another device", tensor.to("meta")
    else:
        yield "has no memory", tensor.to("meta")
        if tensor.is_cuda:
            yield "is not on a GPU", tensor.cpu()


def _nested(tensor: Tensor) -> Tensor:
    """One of the same rows, in fp32 where torch nests none of their type."""
    kept = tensor.float() if tensor.element_size() == 1 else tensor
    return torch.nested.nested_tensor(list(kept))


def sparse(tensor: Tensor) -> Tensor:
    """One of its shape and type, of no elements: of 8 bits torch makes no other."""
    places = torch.empty((tensor.dim(), 0), dtype=torch.int64, device=tensor.device)
    return torch.sparse_coo_tensor(places, tensor.new_empty(0), tensor.shape)


def _sizes(tensor: Tensor, axis: int) -> Iterator[tuple[str, Tensor]]:
    """Other sizes along an axis, those that broadcasting would forgive among them."""
    size = tensor.shape[axis]
    yield f"has size 1 along axis {axis}", tensor.narrow(axis, 0, 1)
    yield f"is empty along axis {axis}", tensor.narrow(axis, 0, 0)
    yield f"is one too short along axis {axis}", tensor.narrow(axis, 0, size - 1)
    yield f"is twice as long along axis {axis}", torch.cat([tensor, tensor], dim=axis)


def _output_mistakes(output: Tensor) -> Iterator[tuple[str, Tensor]]:
    not_a_tensor: Any = 1.0
    yield "is no tensor", not_a_tensor
    for axis in range(output.dim()):
        yield from _sizes(output, axis)
    yield "has an axis too many", output[None]
    yield "has an axis too few", output[0]
    yield "is transposed", output.T
    yield from _dtypes(output)
    yield "is broadcast", output[:1].expand(output.shape)
    yield "is on another device", output.to("meta")


def _wrong_counts(call: Call) -> Iterator[Refusal]:
    """One result fewer than there are, where there are several, and one more."""
    outputs = call.outputs or []
    if len(outputs) > 1:
        yield Refusal("out", "is one tensor", replace(call, outputs=outputs[:1]))
    more = [*outputs, outputs[0].clone()]
    yield Refusal("out", "has a tensor too many", replace(call, outputs=more))


def _shared(plan: Plan, call: Call) -> Iterator[Refusal]:
    """Results that begin where an input does that other programs still read.

    Or where the result before them does.
    """
    outputs = call.outputs or []
    for position, (before, output) in enumerate(itertools.pairwise(outputs), 1):
        memory = torch.zeros(1024, dtype=torch.int8, device=output.device)
        pair = [
            memory.view(one.dtype)[: one.numel()].view(one.shape)
            for one in (before, output)
        ]
        given = [*outputs[: position - 1], *pair, *outputs[position + 1 :]]
        mistake = "begins where the one before does"
        yield Refusal(f"out[{position}]", mistake, replace(call, outputs=given))
    matrices = {operand.name for operand in plan.operands if operand.is_matrix}
    for position, output in enumerate(call.outputs or []):
        for name, tensor in call.tensors.items():
            if name not in matrices or tensor.dtype != output.dtype:
                memory = torch.zeros(1024, dtype=torch.int8, device=tensor.device)
                read = memory.view(tensor.dtype)[: tensor.numel()].view(tensor.shape)
                written = memory.view(output.dtype)[: output.numel()]
                changed = replace(call, tensors={**call.tensors, name: read})
                mistake = f"begins where {name} does"
                yield with_output(
                    changed, position, mistake, written.view(output.shape)
                )
