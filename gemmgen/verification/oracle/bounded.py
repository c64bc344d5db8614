"""Values with a bound on the error that a kernel's arithmetic may make of them.

An error of 0 means exact, also for NaN and infinities; an infinite error accepts
anything. Nothing here knows about kernels.
"""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import Op
from gemmgen.verification.oracle.constants import DIVISION


@dataclass(frozen=True)
class Arithmetic:
    """Floating-point arithmetic: unit roundoff, range, roundoffs of a division."""

    dtype: torch.dtype
    roundoff: float
    division: float

    @property
    def smallest(self) -> float:
        """The least normal number: what is lost when subnormals are flushed."""
        return float(torch.finfo(self.dtype).tiny)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(torch.finfo(self.dtype).max)


ARITHMETIC = {
    name: Arithmetic(
        getattr(torch, DTYPES[name].torch), DTYPES[name].roundoff, division
    )
    for name, division in DIVISION.items()
}


@dataclass(frozen=True)
class Bounded:
    """A float64 value that a kernel computes to within `error`."""

    value: Tensor
    error: Tensor

    @property
    def exact(self) -> Tensor:
        """Where the kernel has this very value."""
        return self.error == 0

    @property
    def farthest(self) -> Tensor:
        """The possible value that is farthest from zero."""
        return self.value + self.value.sign() * self.error


def exactly(value: Tensor) -> Bounded:
    """A value without error."""
    return Bounded(value, torch.zeros_like(value))


def negated(x: Bounded) -> Bounded:
    """-x, which rounds nothing."""
    return Bounded(-x.value, x.error)


def binary(op: str, x: Bounded, y: Bounded, arithmetic: Arithmetic) -> Bounded:
    """x op y, rounded once, or as often as division does."""
    value, moved, certain = _BINARY[op](x, y)
    units = arithmetic.division if op == "/" else 1.0
    own = units * (value.abs() + moved)
    certain = certain | (x.value.isnan() & x.exact) | (y.value.isnan() & y.exact)
    return _settled(value, moved, own, (x, y), op != "/", certain, arithmetic)


def applied(row: Op, arguments: tuple[Bounded, ...], arithmetic: Arithmetic) -> Bounded:
    """A function of the table, by torch's own function and the row's error rules."""
    values = [argument.value for argument in arguments]
    value = row.torch(torch, *values)
    moved = row.moved(torch, *values, *(argument.error for argument in arguments))
    largest = value.abs() + moved
    own = row.rounding(torch, largest, *(argument.farthest for argument in arguments))
    certain = _all(argument.exact for argument in arguments)
    return _settled(value, moved, own, arguments, row.rounds_once, certain, arithmetic)


def chosen(op: str, left: Bounded, right: Bounded, x: Bounded, y: Bounded) -> Bounded:
    """x where `left op right`, else y; either where the errors leave that open."""
    holds = COMPARISONS[op](left.value, right.value)
    slack = left.error + right.error
    open_ = ~((left.value - right.value).abs() > slack) & (slack > 0)
    value = torch.where(holds, x.value, y.value)
    error = torch.where(holds, x.error, y.error)
    other = (x.value - y.value).abs() + torch.where(holds, y.error, x.error)
    error = torch.where(open_, torch.maximum(error, other), error)
    return Bounded(value, error.nan_to_num(torch.inf, torch.inf))


COMPARISONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _settled(
    value: Tensor,
    moved: Tensor,
    own: Tensor,
    arguments: tuple[Bounded, ...],
    rounds_once: bool,
    certain: Tensor,
    arithmetic: Arithmetic,
) -> Bounded:
    """The result, given how far its arguments move it and its own error in units.

    `certain` says where a value that is not finite is the kernel's for sure.
    """
    # At -inf, exp is 0 and its relative error 0 * inf: none.
    own = torch.where(own.isnan() & (value.abs() + moved == 0), 0.0, own)
    rounding = arithmetic.roundoff * own
    flushed = torch.where(own > 0, arithmetic.smallest, 0.0)
    error = moved + rounding + flushed
    if rounds_once:
        short = _all(
            _short(argument.value, arithmetic) & argument.exact
            for argument in arguments
        )
        error = torch.where(short & _short(value, arithmetic), 0.0, error)
    error = error.nan_to_num(torch.inf, torch.inf)
    overflows = value.abs() + error > arithmetic.largest
    finite = torch.where(overflows, torch.inf, error)
    other = torch.where(certain, 0.0, torch.inf)
    return Bounded(value, torch.where(value.isfinite(), finite, other))


def _short(value: Tensor, arithmetic: Arithmetic) -> Tensor:
    """Where a value has an fp32's bits and is no subnormal.

    Also in fp64: from such values the oracle's own operations are exact, and a product
    contracted into a fused multiply-add is none the wiser.
    """
    normal = (value.abs() >= arithmetic.smallest) | (value == 0)
    return (value.float().double() == value) & normal


def _all(conditions: Iterable[Tensor]) -> Tensor:
    return reduce(operator.and_, conditions)


_Ruled = tuple[Tensor, Tensor, Tensor]
"""A value, how far its arguments move it, and where it is certain if not finite."""


def _sum(x: Bounded, y: Bounded) -> _Ruled:
    certain = x.error.isfinite() & y.error.isfinite()
    return x.value + y.value, x.error + y.error, certain


def _difference(x: Bounded, y: Bounded) -> _Ruled:
    return _sum(x, negated(y))


def _product(x: Bounded, y: Bounded) -> _Ruled:
    moved = x.value.abs() * y.error + y.value.abs() * x.error + x.error * y.error
    # Infinity times what cannot be zero, or times an exact zero.
    settled = [(one.value.abs() > one.error) | one.exact for one in (x, y)]
    return x.value * y.value, moved, settled[0] & settled[1]


def _quotient(x: Bounded, y: Bounded) -> _Ruled:
    value = x.value / y.value
    room = y.value.abs() - y.error
    moved = torch.where(room > 0, (x.error + value.abs() * y.error) / room, torch.inf)
    # The sign of a zero, and so of x / 0, is nobody's promise.
    certain = x.exact & y.exact & ((y.value != 0) | value.isnan())
    return value, moved, certain


_BINARY: dict[str, Callable[[Bounded, Bounded], _Ruled]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
}
