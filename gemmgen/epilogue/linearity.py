"""Which names an epilogue is linear in: f(x + y, s) = f(x, s) + f(y, s).

A product whose K is cut into parts may have such an epilogue on each part, for the
results add up. What is added to the product is one of these names too, or it would be
added once for each part.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import (
    Binary,
    Call,
    Name,
    Negate,
    Node,
    Number,
    children,
)


class _Kind(IntEnum):
    """What a value is in some names: 0, free of them, linear, both added, no such."""

    ZERO, FREE, LINEAR, MIXED, OTHER = range(5)


def linear_in(
    statements: Sequence[Statement],
    sums: Sequence[str],
    results: Collection[str],
    operands: Sequence[str],
) -> tuple[str, ...] | None:
    """The `sums`, and those of the `operands` with which all `results` are linear.

    None if there are none such, or none that is found by taking the first operand that
    spoils nothing, without going back.
    """
    found = tuple(sums)
    while (kind := _kind(statements, found, results)) is _Kind.MIXED:
        more = (
            (*found, one)
            for one in operands
            if one not in found
            and _kind(statements, (*found, one), results) is not _Kind.OTHER
        )
        longer = next(more, None)
        if longer is None:
            return None
        found = longer
    return found if kind is _Kind.LINEAR else None


def _kind(
    statements: Sequence[Statement], linear: Collection[str], results: Collection[str]
) -> _Kind:
    """What the results are: LINEAR if all are, OTHER if one can never become it."""
    kinds: dict[str, _Kind] = dict.fromkeys(linear, _Kind.LINEAR)
    for one in statements:
        kinds[one.target] = _of(one.value, kinds)
    found = {kinds[name] for name in results}
    if _Kind.OTHER in found:
        return _Kind.OTHER
    return _Kind.LINEAR if found == {_Kind.LINEAR} else _Kind.MIXED


def _of(node: Node, kinds: Mapping[str, _Kind]) -> _Kind:
    match node:
        case Number(value):
            return _Kind.FREE if value else _Kind.ZERO
        case Name(name):
            return kinds.get(name, _Kind.FREE)
        case Negate(value):
            return _of(value, kinds)
        case Binary("+" | "-", left, right):
            return _added(_of(left, kinds), _of(right, kinds))
        case Binary("*", left, right):
            return _scaled(*sorted((_of(left, kinds), _of(right, kinds))))
        case Binary("/", left, right):
            return _scaled(_of(right, kinds), _of(left, kinds))
        case Call("where", (condition, x, y)):
            chosen = _added(_of(x, kinds), _of(y, kinds))
            return _scaled(_of(condition, kinds), chosen)
    parts = [_of(part, kinds) for part in children(node)]
    return _Kind.FREE if max(parts) <= _Kind.FREE else _Kind.OTHER


def _added(x: _Kind, y: _Kind) -> _Kind:
    low, high = sorted((x, y))
    if low in (_Kind.ZERO, high):
        return high
    return _Kind.OTHER if high is _Kind.OTHER else _Kind.MIXED


def _scaled(factor: _Kind, x: _Kind) -> _Kind:
    """What becomes of x by something that must not depend on the names."""
    return x if factor <= _Kind.FREE else _Kind.OTHER
