"""What the numbers of an epilogue come to, where they stand alone.

Triton computes them with Python's own arithmetic when it compiles a kernel: what that
refuses must not get so far.
"""

import operator
from collections.abc import Callable

from gemmgen.epilogue.expression import Binary, Negate, Node, Number

LARGEST = 3e38
"""About the largest number of fp32."""

_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    **{"+": operator.add, "-": operator.sub},
    **{"*": operator.mul, "/": operator.truediv},
}


def why_not_computed(node: Node) -> str | None:
    """Why a constant has no value: `divides by zero`; None if it has, or is none."""
    try:
        value = _value(node)
    except ZeroDivisionError:
        return "divides by zero"
    too_large = value is not None and not abs(value) <= LARGEST
    return "is too large for fp32" if too_large else None


def _value(node: Node) -> float | None:
    """The value of a tree of numbers alone, None for any other."""
    match node:
        case Number(number):
            return number
        case Negate(inside):
            value = _value(inside)
            return None if value is None else -value
        case Binary(op, left, right) if op in _ARITHMETIC:
            first, second = _value(left), _value(right)
            if first is not None and second is not None:
                return _ARITHMETIC[op](first, second)
    return None
