"""Holds a kernel's result against the oracle, and describes what is wrong with it.

There is no tolerance here: a result must lie between the two ends of the oracle's
interval, each rounded as the kernel rounds.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gemmgen.problem.tensors import Result
from gemmgen.select.plan import Plan
from gemmgen.verification.oracle.bounded import Bounded, exactly
from gemmgen.verification.oracle.reference import (
    Inputs,
    evaluated,
    expected,
    rounded,
    torch_dtype,
)


@dataclass(frozen=True)
class Block:
    """The tile m x n x k that computed a result."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class Verdict:
    """The largest error of a call in parts of the bound, and what is wrong, if any."""

    worst: float
    fault: str = ""


def judged(plan: Plan, inputs: Inputs, outputs: list[Tensor], block: Block) -> Verdict:
    """Compare every result, [M, N], of one call."""
    worst = 0.0
    want = expected(plan, inputs)
    for result, output in zip(plan.results, outputs, strict=True):
        verdict = _judge(plan, inputs, result, want[result.name], output, block)
        if verdict.fault:
            return verdict
        worst = max(worst, verdict.worst)
    return Verdict(worst)


def _judge(
    plan: Plan,
    inputs: Inputs,
    result: Result,
    want: Bounded,
    output: Tensor,
    block: Block,
) -> Verdict:
    if not output.numel():
        return Verdict(0.0)
    got = output.double()
    wrong = ~accepted(plan, result, want, got)
    size = in_bounds(result, want, got)
    # An infinity that is right, beyond the range, is no error to speak of.
    size = torch.where(wrong | size.isfinite(), size, 0.0)
    if not wrong.any():
        return Verdict(float(size.max()))
    index = int(torch.where(wrong, size, -1.0).argmax())
    row, column = divmod(index, got.shape[1])
    told = f"{result.name}[{row}, {column}] is {got[row, column]:.9g}, should be "
    told += _interval(want.value[row, column], want.error[row, column])
    told += f"; {int(wrong.sum())} of {wrong.numel()} elements are wrong, this one "
    told += f"by {size[row, column]:.3g} bounds"
    told += f"\n{_place(row, column, block)}"
    told += _lost_block(plan, inputs, result, (row, column), got[row, column], block)
    return Verdict(float(size[row, column]), told)


def accepted(plan: Plan, result: Result, want: Bounded, got: Tensor) -> Tensor:
    """Where a result is what some order of exact and rounded operations gives.

    Rounding is monotone, so the ends of the interval decide for all that is inside.
    """
    dtype = torch_dtype(result.dtype)
    low = rounded(want.value - want.error, plan, dtype)
    high = rounded(want.value + want.error, plan, dtype)
    inside = (low <= got) & (got <= high)
    return inside | (got.isnan() & want.value.isnan()) | want.error.isinf()


def in_bounds(result: Result, want: Bounded, got: Tensor) -> Tensor:
    """The error in parts of the bound with half a unit of the result's last place."""
    limits = torch.finfo(torch_dtype(result.dtype))
    half = limits.eps / 2 * want.value.abs() + limits.tiny * limits.eps / 2
    size = (got - want.value).abs() / (want.error + half)
    same = (got == want.value) | (got.isnan() & want.value.isnan())
    return torch.where(same, 0.0, size.nan_to_num(torch.inf, torch.inf))


def _interval(value: Tensor, error: Tensor) -> str:
    text = f"{float(value):.9g}"
    return text if float(error) == 0 else f"{text} ± {float(error):.2g}"


def _place(row: int, column: int, block: Block) -> str:
    tile = (row // block.m, column // block.n)
    return (
        f"in tile {tile} of {block}, at ({row % block.m}, {column % block.n}) within it"
    )


def _lost_block(
    plan: Plan,
    inputs: Inputs,
    result: Result,
    index: tuple[int, int],
    got: Tensor,
    block: Block,
) -> str:
    """The K block whose omission explains a wrong element, if one does."""
    row, column = index
    lhs = inputs.lhs[row].double()
    terms = torch.stack([lhs * one[:, column].double() for one in inputs.rhs])
    if not len(lhs) or not torch.isfinite(terms).all() or not torch.isfinite(got):
        return ""
    whole = terms.sum(1, keepdim=True)
    sums = torch.stack([part.sum(1) for part in terms.split(block.k, 1)], 1)
    here = {name: _element(operand, index) for name, operand in inputs.operands.items()}
    without = evaluated(plan, [exactly(one[None]) for one in whole - sums], here)
    misses = (without[result.name].value[0] - got).abs()
    best = int(misses.argmin())
    nominal = evaluated(plan, [exactly(one[None]) for one in whole], here)[result.name]
    if not misses[best] < 0.01 * (nominal.value[0, 0] - got).abs():
        return ""
    end = min(len(lhs), (best + 1) * block.k) - 1
    return f"; as if K block {best} (k {best * block.k} to {end}) were left out"


def _element(operand: Tensor | float, index: tuple[int, int]) -> Tensor | float:
    """An operand at one element of the result, as a [1, 1] matrix."""
    if not isinstance(operand, Tensor):
        return operand
    row, column = (
        min(at, size - 1) for at, size in zip(index, operand.shape, strict=True)
    )
    return operand[row, column][None, None]
