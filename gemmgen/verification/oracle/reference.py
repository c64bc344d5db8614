"""The oracle: what a kernel must return for given inputs, in float64, with a bound.

The bound covers any order and grouping of the sums, matrix units that cut bits, and
fused multiply-adds; it has no constant that was fitted to a kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gemmgen.epilogue.expression import Binary, Call, Name, Negate, Node, Number
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import OPS
from gemmgen.verification.oracle.bounded import (
    ARITHMETIC,
    Arithmetic,
    Bounded,
    applied,
    binary,
    chosen,
    exactly,
    negated,
)
from gemmgen.verification.oracle.constants import (
    COLUMNS,
    STEP_ERROR,
    accumulator_unit,
    cut_of,
    exact_sum,
    exact_whole,
)


@dataclass(frozen=True)
class Inputs:
    """What a kernel is called with, as matrices: lhs [M, K], each of rhs [K, N].

    Operands spread over [M, N] by broadcasting; numbers are floats.
    """

    lhs: Tensor
    rhs: tuple[Tensor, ...]
    operands: Mapping[str, Tensor | float]


def expected(plan: Plan, inputs: Inputs) -> dict[str, Bounded]:
    """Every result by name, [M, N]."""
    products = [product(plan, inputs.lhs, one) for one in inputs.rhs]
    return evaluated(plan, products, inputs.operands)


def product(plan: Plan, a: Tensor, b: Tensor) -> Bounded:
    """a · b with the error of the accumulation: none where all sums are exact."""
    arithmetic = ARITHMETIC[plan.accumulator]
    whole = _is_whole(a, plan) and _is_whole(b, plan)
    a, b = a.double(), b.double()
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    prefixes = torch.zeros_like(total)
    for k in range(0, a.shape[1], COLUMNS):
        total += a[:, k : k + COLUMNS] @ b[k : k + COLUMNS]
        prefixes += total.abs()
    terms = a.abs() @ b.abs()
    error = accumulator_unit(plan.accumulator) * STEP_ERROR * (terms + prefixes)
    error += cut_of(plan) * terms
    error += (a.shape[1] + 1) * arithmetic.smallest
    exact = (terms <= exact_sum(plan)) if whole else (terms == 0)
    return Bounded(total, torch.where(exact | ~total.isfinite(), 0.0, error))


def _is_whole(matrix: Tensor, plan: Plan) -> bool:
    finite = matrix.double().nan_to_num(0.0, 0.0, 0.0)
    limits = finite.abs() <= exact_whole(plan)
    return bool(((finite == finite.round()) & limits).all())


def evaluated(
    plan: Plan, products: Sequence[Bounded], operands: Mapping[str, Tensor | float]
) -> dict[str, Bounded]:
    """The epilogue's results, by name, from the product with each right side."""
    arithmetic, shape = ARITHMETIC[plan.accumulator], products[0].value.shape
    known = dict(zip(plan.epilogue.accumulators, products, strict=True))
    for name, given in operands.items():
        known[name] = loaded(given, arithmetic, products[0].value.device)
    for statement in plan.epilogue.statements:
        value = bounded_value(statement.value, known, arithmetic)
        known[statement.target] = value
    return {result.name: _spread(known[result.value], shape) for result in plan.results}


def loaded(
    given: Tensor | float, arithmetic: Arithmetic, device: torch.device
) -> Bounded:
    """An operand or a constant, as the arithmetic holds it."""
    tensor = torch.as_tensor(given, device=device)
    if not isinstance(given, Tensor):
        tensor = torch.tensor(given, dtype=torch.float64, device=device)
    return exactly(tensor.to(arithmetic.dtype).double())


def _spread(result: Bounded, shape: torch.Size) -> Bounded:
    return Bounded(result.value.expand(shape), result.error.expand(shape))


def bounded_value(
    node: Node, known: Mapping[str, Bounded], arithmetic: Arithmetic
) -> Bounded:
    """One expression of names whose values are known, its error with it."""

    def part(inner: Node) -> Bounded:
        return bounded_value(inner, known, arithmetic)

    match node:
        case Number(number):
            return loaded(number, arithmetic, next(iter(known.values())).value.device)
        case Name(name):
            return known[name]
        case Negate(inner):
            return negated(part(inner))
        case Call("where", (Binary(op, left, right), x, y)):
            return chosen(op, part(left), part(right), part(x), part(y))
        case Call(function, arguments):
            return applied(OPS[function], tuple(map(part, arguments)), arithmetic)
        case Binary(op, left, right):
            return binary(op, part(left), part(right), arithmetic)


def rounded(value: Tensor, plan: Plan, dtype: torch.dtype) -> Tensor:
    """A float64 value rounded to the arithmetic and then to the result's dtype."""
    return value.to(ARITHMETIC[plan.accumulator].dtype).to(dtype).double()


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype of a name of the language."""
    found = getattr(torch, DTYPES[name].torch)
    assert isinstance(found, torch.dtype)
    return found
