"""One example: its tensors made, the launcher called, the results judged.

Raises `Wrong` for what a kernel does wrong, with all that a reader needs to know.
"""

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gemmgen.problem.tensors import Operand
from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.cases.data import CANCELLING, EXACT, KINDS, Source
from gemmgen.verification.cases.views import VIEWS, Framed, framed_input, framed_output
from gemmgen.verification.interpret import orders
from gemmgen.verification.oracle.comparison import Block, judged
from gemmgen.verification.oracle.reference import Inputs, torch_dtype

Shape = tuple[int, ...]


class Wrong(Exception):
    """What a kernel did wrong."""


@dataclass(frozen=True)
class Call:
    """A launcher's arguments, by name."""

    tensors: dict[str, Tensor]
    numbers: dict[str, float]
    outputs: list[Tensor] | None

    def of(self, plan: Plan, launcher: Callable[..., Any]) -> list[Tensor]:
        """Call the launcher; its results as a list."""
        values = {**self.tensors, **self.numbers}
        out: Any = self.outputs
        if out is not None:
            out = out[0] if len(out) == 1 else tuple(out)
        returned = launcher(*(values[name] for name in plan.argument_names), out=out)
        results = [returned] if len(plan.results) == 1 else list(returned)
        if results and results[0].is_cuda:
            torch.cuda.synchronize()  # so that a fault is this call's
        return results


def several(returned: Any) -> list[Tensor]:
    """One or several results as a list."""
    return [returned] if isinstance(returned, Tensor) else list(returned)


def run(
    plan: Plan,
    launcher: Callable[..., Any],
    case: Case,
    block: Block,
    device: torch.device,
    again: bool = False,
) -> float:
    """Run and judge one case; the largest error in parts of the bound.

    A second run must give the same bits; more where the data shows their order. In the
    interpreter only if it is asked for, `again`, or if programs met and the order of
    a sum may show. Where it may not, they meet in an unusual order at once.
    """
    exact = case.kind in EXACT
    unusual = orders.DRAWN if case.seed else orders.LAST_PARTS_FIRST
    orders.begin(case.seed, unusual if exact else orders.TILE_AFTER_TILE)
    inputs = framed_inputs(plan, case, device)
    outputs = framed_outputs(plan, case, device) if case.given else None
    call = Call(
        {name: framed.view for name, framed in inputs.items()},
        dict(zip(numbers(plan), case.numbers, strict=True)),
        [framed.view for framed in outputs] if outputs is not None else None,
    )
    before = {name: framed.buffer.clone() for name, framed in inputs.items()}
    results = call.of(plan, launcher)
    _check_surroundings(inputs, before, outputs)
    worst = check_results(plan, call, results, block)
    if again or (orders.mattered() and not exact) or device.type == "cuda":
        check_repeat(plan, launcher, call, results, 3 if case.kind == CANCELLING else 1)
    return worst


def check_results(plan: Plan, call: Call, results: list[Tensor], block: Block) -> float:
    """Raise `Wrong` unless every result is right; the largest error in bounds."""
    _check_returned(plan, call, results)
    matrices = [as_matrix(result) for result in results]
    verdict = judged(plan, as_matrices(plan, call), matrices, block)
    if verdict.fault:
        raise Wrong(verdict.fault)
    return verdict.worst


def check_repeat(
    plan: Plan,
    launcher: Callable[..., Any],
    call: Call,
    results: list[Tensor],
    times: int = 1,
) -> None:
    """Raise `Wrong` unless further runs give the same bits, in tensors of their own."""
    first = [result.clone() for result in results]
    made = results if call.outputs is None else []
    for _ in range(times):
        again = call.of(plan, launcher)
        if _storages(made) & _storages(again):
            raise Wrong("a result that was made shares memory with an earlier one")
        for result, one, two in zip(plan.results, first, again, strict=True):
            if not bool((bits(one) == bits(two)).all()):
                raise Wrong(f"{result.name} differs from one run to the next")


def bits(tensor: Tensor) -> Tensor:
    """A tensor as integers, so that NaN equals NaN."""
    width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(width[tensor.element_size()])


def _check_returned(plan: Plan, call: Call, results: list[Tensor]) -> None:
    """What was given is what is returned; what was made is new and contiguous."""
    if call.outputs is not None:
        for mine, theirs in zip(call.outputs, results, strict=True):
            if mine.data_ptr() != theirs.data_ptr() or mine.shape != theirs.shape:
                raise Wrong("the launcher does not return the out it was given")
        return
    lhs, first = plan.contraction.lhs, plan.contraction.first
    rows = call.tensors[lhs.name].shape[:-1]
    if not OPERATIONS[plan.op].leading:
        rows = as_matrices(plan, call).lhs.shape[:1]
    columns = call.tensors[first.name].shape[first.stored_axes.index("n")]
    inputs = list(call.tensors.values())
    for position, (result, made) in enumerate(zip(plan.results, results, strict=True)):
        wanted = torch.empty(
            (*rows, columns), dtype=torch_dtype(result.dtype), device="meta"
        )
        if _form(made) != _form(wanted):
            raise Wrong(f"{result.name} is made as {_form(made)}, not {_form(wanted)}")
        if made.device != inputs[0].device:
            raise Wrong(f"{result.name} is made on {made.device}")
        if _storages([made]) & _storages([*inputs, *results[:position]]):
            raise Wrong(f"{result.name} is made in memory of another tensor")


def _form(tensor: Tensor) -> str:
    """What a caller relies on in a tensor that it did not make."""
    sizes = f"{tuple(tensor.shape)} with strides {tensor.stride()}"
    return f"{tensor.dtype} {sizes} from element {tensor.storage_offset()}"


def _storages(tensors: Iterable[Tensor]) -> set[int]:
    """Where the memory of those that have any begins."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()}


def _check_surroundings(
    inputs: dict[str, Framed],
    before: dict[str, Tensor],
    outputs: list[Framed] | None,
) -> None:
    for name, framed in inputs.items():
        if not bool((bits(framed.buffer) == bits(before[name])).all()):
            raise Wrong(f"the kernel writes into its input {name}")
    if not all(framed.frame_is_intact() for framed in outputs or ()):
        raise Wrong("the kernel writes outside of out")


def framed_inputs(plan: Plan, case: Case, device: torch.device) -> dict[str, Framed]:
    """Every input tensor, filled from the case's seed."""
    shapes, made = input_shapes(plan, case), {}
    for position, one in enumerate(plan.inputs):
        # Each tensor has its own numbers, whatever the order they are made in.
        random = torch.Generator(device)
        random.manual_seed(zlib.crc32(f"{case.seed} {one.name}".encode()))
        multiplied = one.role == "inputs"
        along = one.axes.index("k") - 2 if multiplied else None
        right = multiplied and one.name != plan.contraction.lhs.name
        source = Source(plan, case.k, multiplied, random, along, right)
        fill = KINDS[case.kind]
        made[one.name] = framed_input(
            VIEWS[case.view(position)],
            shapes[one.name],
            torch_dtype(one.dtype),
            lambda shape, fill=fill, source=source: fill(source, shape),  # type: ignore[misc]
        )
    return made


def framed_outputs(plan: Plan, case: Case, device: torch.device) -> list[Framed]:
    """A framed tensor for every result."""
    first = len(plan.inputs)
    return [
        framed_output(
            VIEWS[case.view(first + position)],
            (*case.rows, case.n),
            torch_dtype(result.dtype),
            device,
        )
        for position, result in enumerate(plan.results)
    ]


def input_shapes(plan: Plan, case: Case) -> dict[str, Shape]:
    """The shape of every input tensor, as it is passed."""
    sizes = {"M": case.rows, "N": (case.n,), "K": (case.k,)}

    def shape(names: tuple[str, ...]) -> Shape:
        return tuple(size for name in names for size in sizes[name])

    return {one.name: shape(one.sizes) for one in plan.inputs}


def as_matrices(plan: Plan, call: Call) -> Inputs:
    """The inputs as matrices [M, K] and [K, N], operands that spread over [M, N]."""
    both = plan.contraction
    lhs = call.tensors[both.lhs.name]
    lhs = lhs.T if both.lhs.transposed else as_matrix(lhs)
    rhs = [(one, call.tensors[one.name]) for one in both.rhs]
    operands: dict[str, Tensor | float] = dict(call.numbers)
    for operand in plan.operands:
        if not operand.is_number:
            operands[operand.name] = _spread(operand, call.tensors[operand.name])
    stored = (tensor.T if one.transposed else tensor for one, tensor in rhs)
    return Inputs(lhs, tuple(stored), operands)


def _spread(operand: Operand, tensor: Tensor) -> Tensor:
    """The tensor as a matrix [M, N], of one row or column where it has no such axis.

    Axes beside those of its index are other leading ones of m.
    """
    axes, more = operand.axes, tensor.dim() - len(operand.axes)
    if "m" in axes:
        at = axes.index("m")
        before, rows = tensor.shape[:at], tensor.shape[at : at + 1 + more]
        after = tensor.shape[at + 1 + more :]
        tensor = tensor.reshape(*before, math.prod(rows), *after)
    tensor = tensor.permute([axes.index(axis) for axis in "mn" if axis in axes])
    return tensor[tuple(slice(None) if axis in axes else None for axis in "mn")]


def as_matrix(tensor: Tensor) -> Tensor:
    """A tensor [..., columns] as [M, columns], also if one of them is 0."""
    *rows, columns = tensor.shape
    return tensor.reshape(math.prod(rows), columns)
