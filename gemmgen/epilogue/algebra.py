"""Sums and products of expressions, without what would say nothing: 0 * x, 1 * x.

What is a choice between numbers, or of 0, stays one: g * where(c, 0, 1) is
where(c, 0, g), which drops a g that is not finite as torch's derivatives do. A sign is
multiplied with, as in torch: 0 * inf is NaN.
"""

from collections.abc import Iterable
from functools import reduce
from typing import cast

from gemmgen.epilogue.expression import Binary, Call, Negate, Node, Number

ZERO = Number(0.0)


def negated(x: Node) -> Node:
    """-x."""
    match x:
        case Number(value):
            return Number(-value) if value else x
        case Negate(inside):
            return inside
    return Negate(x)


def plus(x: Node, y: Node) -> Node:
    """x + y."""
    if x == ZERO:
        return y
    match y:
        case Number(0.0):
            return x
        case Negate(inside):
            return Binary("-", x, inside)
    return Binary("+", x, y)


def addends(node: Node) -> list[Node]:
    """What `plus` added up, in order."""
    match node:
        case Binary("+", x, y):
            return [*addends(x), y]
        case Binary("-", x, y):
            return [*addends(x), negated(y)]
    return [node]


def total(terms: Iterable[Node]) -> Node:
    """The sum of all, in order."""
    return reduce(plus, terms, cast(Node, ZERO))


def times(x: Node, y: Node) -> Node:
    """x * y."""
    if ZERO in (x, y):
        return ZERO
    match x, y:
        case (Number(1.0), other) | (other, Number(1.0)):
            return other
        case (Number(-1.0), other) | (other, Number(-1.0)):
            return negated(other)
        case Negate(inside), _:
            return negated(times(inside, y))
        case _, Negate(inside):
            return negated(times(x, inside))
        case other, Binary("/", Number(1.0), divisor):
            return over(other, divisor)
        case other, Call("where", (condition, left, right)) if _is_choice(
            y
        ) or ZERO in (left, right):
            return where(condition, times(other, left), times(other, right))
        case other, Binary("*", Call("where") as choice, factor) if _is_choice(choice):
            return times(times(other, choice), factor)
    return Binary("*", x, y)


def over(x: Node, y: Node) -> Node:
    """x / y."""
    if x == ZERO:
        return ZERO
    return negated(over(x.value, y)) if isinstance(x, Negate) else Binary("/", x, y)


def where(condition: Node, x: Node, y: Node) -> Node:
    """x where the condition holds, else y."""
    return x if x == y else Call("where", (condition, x, y))


def _is_choice(node: Node) -> bool:
    """Whether it is a number, no sign, or one of several by conditions."""
    match node:
        case Number(value):
            return value >= 0
        case Call("where", (_, x, y)):
            return _is_choice(x) and _is_choice(y)
    return False


def simplified(node: Node) -> Node:
    """The expression with the numbers in it as `Number`, -1 too."""
    match node:
        case Negate(value):
            return negated(simplified(value))
        case Binary(op, left, right):
            return Binary(op, simplified(left), simplified(right))
        case Call(function, arguments):
            return Call(function, tuple(map(simplified, arguments)))
    return node
