"""Inputs of a kernel at one shape, and how far results are from float64."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gemmgen.select.plan import Plan
from gemmgen.spec.shapes import Shape
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.example.one_example import Call, as_matrices, input_shapes
from gemmgen.verification.oracle.comparison import accepted
from gemmgen.verification.oracle.reference import Inputs, expected, torch_dtype

NUMBER = 0.5
"""The value of every operand that is a Python float."""
_CHUNK = 2**24
"""Elements of a result that are judged at a time: a few hundred MB in float64."""


@dataclass(frozen=True)
class Problem:
    """One kernel's inputs, by name, at a shape."""

    plan: Plan
    shape: Shape
    tensors: Mapping[str, Tensor] = field(repr=False)
    numbers: Mapping[str, float]

    @property
    def arguments(self) -> tuple[Tensor | float, ...]:
        """What the launcher takes, in its order."""
        plan, values = self.plan, {**self.tensors, **self.numbers}
        return tuple(values[name] for name in plan.argument_names)

    @property
    def matrices(self) -> Inputs:
        """The inputs as matrices [M, K], [K, N]; operands that spread over [M, N]."""
        return as_matrices(
            self.plan, Call(dict(self.tensors), dict(self.numbers), None)
        )

    def outputs(self) -> tuple[Tensor, ...]:
        """New tensors that take the results."""
        size = (self.shape.m, self.shape.n)
        return tuple(
            torch.empty(size, dtype=torch_dtype(result.dtype), device=self.device)
            for result in self.plan.results
        )

    @property
    def traffic(self) -> int:
        """Bytes that no kernel can avoid: each tensor read or written once."""
        results = sum(
            self.shape.m * self.shape.n * torch_dtype(result.dtype).itemsize
            for result in self.plan.results
        )
        return int(results + sum(tensor.nbytes for tensor in self.tensors.values()))

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return self.tensors[self.plan.contraction.lhs.name].device


def problem(
    plan: Plan, shape: Shape, device: torch.device | str = "cuda", seed: int = 0
) -> Problem:
    """Random inputs from the normal distribution, made on the device from a seed.

    Not zeros nor ones: a GPU that multiplies those draws less power and clocks higher.
    """
    case = Case((shape.m,), shape.n, shape.k)
    tensors, shapes = {}, input_shapes(plan, case)
    for one in plan.inputs:
        name, sizes, dtype = one.name, shapes[one.name], torch_dtype(one.dtype)
        random = torch.Generator(device)
        random.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        # torch draws no numbers of 8 bits.
        drawn = torch.float32 if dtype.itemsize == 1 else dtype
        numbers_ = torch.randn(sizes, generator=random, device=device, dtype=drawn)
        tensors[name] = numbers_.to(dtype)
    return Problem(plan, shape, tensors, dict.fromkeys(numbers(plan), NUMBER))


@dataclass(frozen=True)
class Judgement:
    """How far results are from float64.

    `error` is the root of the mean square error over that of the values, the largest of
    all results; `outside` counts the elements beyond the bound that `verify` holds
    kernels to, which torch's own, rounding in between, need not keep.
    """

    error: float
    outside: int


def judge(
    problem: Problem, contestants: Mapping[str, Sequence[Tensor]]
) -> dict[str, Judgement]:
    """Compare each contestant's results, [M, N] each, with the oracle's."""
    results = problem.plan.results
    keys = [(name, i) for name in contestants for i in range(len(results))]
    squares = dict.fromkeys(keys, 0.0)
    outside = dict.fromkeys(keys, 0)
    whole = [0.0] * len(results)
    for rows, inputs in _chunks(problem):
        wanted = expected(problem.plan, inputs)
        for i, result in enumerate(results):
            want = wanted[result.name]
            known = want.value.isfinite()
            whole[i] += float(want.value[known].square().sum())
            for name, given in contestants.items():
                got = given[i][rows].double()
                misses = (got - want.value)[known]
                squares[name, i] += float(misses.square().sum())
                right = accepted(problem.plan, result, want, got)
                outside[name, i] += int((~right).sum())
    return {
        name: Judgement(
            max(_relative(squares[name, i], whole[i]) for i in range(len(results))),
            sum(outside[name, i] for i in range(len(results))),
        )
        for name in contestants
    }


def _relative(square: float, whole: float) -> float:
    if square == 0:
        return 0.0
    return float((square / whole) ** 0.5) if whole else float("inf")


def _chunks(problem: Problem) -> Iterator[tuple[slice, Inputs]]:
    """The problem in groups of rows, for the oracle's float64 takes much memory."""
    inputs, step = problem.matrices, max(1, _CHUNK // problem.shape.n)
    for first in range(0, problem.shape.m, step):
        rows = slice(first, first + step)
        operands = {
            name: one[rows] if isinstance(one, Tensor) and len(one) > 1 else one
            for name, one in inputs.operands.items()
        }
        yield rows, Inputs(inputs.lhs[rows], inputs.rhs, operands)
