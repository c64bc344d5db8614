"""What a backward must return, with a bound: derivatives by torch's own autograd.

Values come from autograd in float64 over the epilogue as the spec has it, which knows
nothing of the derivatives that kernels are made from. How far a kernel may be from them
follows from the operations of its statements.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import Binary, Call, Name, Negate, Node, Number
from gemmgen.epilogue.gradient import gradient_name
from gemmgen.problem.backward import Backward
from gemmgen.problem.tensors import Result
from gemmgen.select.plan import Plan
from gemmgen.tables.functions import OPS
from gemmgen.verification.oracle.bounded import (
    ARITHMETIC,
    COMPARISONS,
    Arithmetic,
    Bounded,
    binary,
    exactly,
)
from gemmgen.verification.oracle.constants import STEP_ERROR, accumulator_unit
from gemmgen.verification.oracle.reference import (
    Inputs,
    bounded_value,
    loaded,
    product,
    torch_dtype,
)

_SUMMED = {"m": 0, "n": 1}


def gradients(
    plan: Plan, inputs: Inputs, grads: Mapping[str, Tensor]
) -> dict[str, Bounded]:
    """The gradients of all tensors by name, from those of results, [M, N] each.

    A's and B's as matrices [M, K] and [K, N], an operand's along its own axes. A result
    may have no gradient; a tensor has none that no result with one depends on.
    """
    assert plan.backward is not None
    back, (rhs,) = plan.backward, inputs.rhs
    acc = product(plan, inputs.lhs, rhs)
    whole = elementwise(plan, acc, inputs.operands, grads)
    found = {
        one.name: _along(plan, one.axes, whole[one.name])
        for one in plan.tensors
        if one.name in whole
    }
    if back.sum in whole:
        grad, factor = _multiplied(plan, back, whole, grads, inputs.operands)
        both = plan.contraction
        found[both.lhs.name] = _product(plan, grad, rhs.T, factor)
        turned = Bounded(grad.value.T, grad.error.T)
        found[both.first.name] = _turned(_product(plan, turned, inputs.lhs, factor))
    return found


def _turned(matrix: Bounded) -> Bounded:
    return Bounded(matrix.value.T, matrix.error.T)


def _multiplied(
    plan: Plan,
    back: Backward,
    whole: Mapping[str, Bounded],
    grads: Mapping[str, Tensor],
    operands: Mapping[str, Tensor | float],
) -> tuple[Bounded, Bounded | None]:
    """What A and B are multiplied with, as it is stored, and the factor of that."""
    if back.direct is None or back.factor is None:
        return _stored(plan, whole[back.sum], plan.dtype), None
    (given,) = [one for one in grads if gradient_name(one) == back.direct]
    arithmetic, grad = ARITHMETIC[plan.accumulator], exactly(grads[given].double())
    known = {given: grad}  # of whose device a factor without operands is
    known |= {
        name: loaded(value, arithmetic, grad.value.device)
        for name, value in operands.items()
    }
    return grad, _bounded(back.factor, known, arithmetic)


def elementwise(
    plan: Plan,
    acc: Bounded,
    operands: Mapping[str, Tensor | float],
    grads: Mapping[str, Tensor],
) -> dict[str, Bounded]:
    """The gradients of the sum and of operands before they are summed, [M, N] each.

    NaN is nobody's promise: torch multiplies the 0 of a branch that was not taken.
    """
    assert plan.backward is not None
    back, arithmetic = plan.backward, ARITHMETIC[plan.accumulator]
    known = {
        name: loaded(value, arithmetic, acc.value.device)
        for name, value in operands.items()
    }
    known[back.sum] = acc
    learning = [back.sum, *(one.name for one in plan.tensors)]
    exact = by_autograd(
        plan.epilogue.statements,
        {name: one.value.expand(acc.value.shape) for name, one in known.items()},
        {name: grad.double() for name, grad in grads.items()},
        learning,
    )
    bounds = _bounds(plan, back, known, grads)
    found = {}
    for name, value in exact.items():
        if value is not None:
            error = bounds[name].error.expand(value.shape)
            error = torch.where(value.isnan(), torch.inf, error)
            found[name] = Bounded(value, error)
    return found


def by_autograd(
    statements: Sequence[Statement],
    known: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    learning: Sequence[str],
) -> dict[str, Tensor | None]:
    """Derivatives by torch, in float64; None for what no result depends on."""
    values = {name: one.detach().clone() for name, one in known.items()}
    leaves = [values[name].requires_grad_() for name in learning]
    with torch.enable_grad():
        for one in statements:
            values[one.target] = _computed(one.value, values, leaves[0])
        results = [values[name].expand(grad.shape) for name, grad in grads.items()]
        found = torch.autograd.grad(
            results, leaves, list(grads.values()), allow_unused=True
        )
    return dict(zip(learning, found, strict=True))


def _computed(node: Node, known: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """An expression by torch's functions."""

    def part(inner: Node) -> Tensor:
        return _computed(inner, known, like)

    match node:
        case Number(number):
            return torch.full_like(like, number, requires_grad=False)
        case Name(name):
            return known[name]
        case Negate(inside):
            return -part(inside)
        case Call("where", (Binary(op, left, right), x, y)):
            return torch.where(
                COMPARISONS[op](part(left), part(right)), part(x), part(y)
            )
        case Call(function, arguments):
            return OPS[function].torch(torch, *map(part, arguments))
        case Binary("+", x, y):
            return part(x) + part(y)
        case Binary("-", x, y):
            return part(x) - part(y)
        case Binary("*", x, y):
            return part(x) * part(y)
        case Binary(_, x, y):
            return part(x) / part(y)


def _bounds(
    plan: Plan,
    back: Backward,
    known: Mapping[str, Bounded],
    grads: Mapping[str, Tensor],
) -> dict[str, Bounded]:
    """Each gradient by the kernels' statements, for the errors that these may make.

    What was saved was rounded: results as they are, one value more to its own type.
    What results have that are without a gradient is left out.
    """
    arithmetic = ARITHMETIC[plan.accumulator]
    values = dict(known)
    for statement in back.forward:
        values[statement.target] = _bounded(statement.value, values, arithmetic)
    dtypes = {one.name: one.dtype for one in plan.results}
    for name in back.saved:
        values[name] = _stored(plan, values[name], dtypes.get(name, back.kept_dtype))
    given = {gradient_name(name): grad for name, grad in grads.items()}
    values |= {name: exactly(grad.double()) for name, grad in given.items()}
    derivative = back.derivative.where_given(given)
    for statement in (*back.again, *derivative.statements):
        values[statement.target] = _bounded(statement.value, values, arithmetic)
    return {
        name: _bounded(node, values, arithmetic)
        for name, node in derivative.gradients.items()
    }


def _bounded(
    node: Node, known: Mapping[str, Bounded], arithmetic: Arithmetic
) -> Bounded:
    """An expression with its error; that of a constant is what rounding it loses."""
    numbers: dict[str, Bounded] = {}
    like = next(iter(known.values())).value

    def named(part: Node) -> Node:
        match part:
            case Number(value):
                exact = torch.tensor(value, dtype=torch.float64, device=like.device)
                lost = (exact - exact.to(arithmetic.dtype).double()).abs()
                numbers[repr(value)] = Bounded(exact, lost)
                return Name(repr(value))
            case Negate(value):
                return Negate(named(value))
            case Binary(op, left, right):
                return Binary(op, named(left), named(right))
            case Call(function, arguments):
                return Call(function, tuple(map(named, arguments)))
        return part

    own = named(node)
    return bounded_value(own, {**known, **numbers}, arithmetic)


def _stored(plan: Plan, value: Bounded, dtype: str) -> Bounded:
    """A value once it was rounded to a type, and to that of the arithmetic before."""
    if dtype == plan.accumulator:
        return value
    limits = torch.finfo(torch_dtype(dtype))
    unit = limits.eps / 2
    lost = unit * (value.value.abs() + value.error) + limits.tiny * unit
    error = torch.where(
        value.exact & _fits(value.value, dtype), 0.0, value.error + lost
    )
    beyond = value.value.abs() + error > limits.max
    return Bounded(value.value, torch.where(beyond, torch.inf, error))


def _fits(value: Tensor, dtype: str) -> Tensor:
    """Where a type has this very value."""
    same: Tensor = value.to(torch_dtype(dtype)).double() == value
    return same


def _along(plan: Plan, axes: tuple[str, ...], grad: Bounded) -> Bounded:
    """A gradient summed along the axes that an operand lacks, in any order."""
    missing = [_SUMMED[axis] for axis in "mn" if axis not in axes]
    if not missing:
        return grad
    (axis,) = missing
    total, error = grad.value.sum(axis), grad.error.sum(axis)
    terms = grad.value.abs().sum(axis) + error
    count = grad.value.shape[axis]
    arithmetic = ARITHMETIC[plan.accumulator]
    rounding = count * arithmetic.roundoff * terms + count * arithmetic.smallest
    whole = (grad.value == grad.value.round()).all(axis) & (grad.error == 0).all(axis)
    exact = whole & (terms <= 1 / arithmetic.roundoff)
    return Bounded(total, torch.where(exact, 0.0, error + rounding))


def _product(
    plan: Plan, grad: Bounded, other: Tensor, factor: Bounded | None
) -> Bounded:
    """grad · other, and times a factor, with the errors of both."""
    found = product(plan, grad.value, other)
    moved = grad.error @ other.double().abs()
    unit = accumulator_unit(plan.accumulator) * STEP_ERROR
    more = 1.0 + unit * (2 + grad.value.shape[1])
    error = torch.where(moved == 0, found.error, found.error + moved * more)
    summed = Bounded(found.value, error.nan_to_num(torch.inf, torch.inf))
    if factor is None:
        return summed
    return binary("*", factor, summed, ARITHMETIC[plan.accumulator])


def result_of(plan: Plan, name: str) -> Result:
    """A tensor's gradient as the result of a kernel: in the tensor's own type."""
    dtype = next(one.dtype for one in plan.inputs if one.name == name)
    return Result(f"grad_{name}", name, dtype, plan.accumulator)
