"""What an operator does with two values, worked out once for their types.

Triton's frontend finds anew for each pair that the sum of two blocks is NumPy's.
Only what was seen to promote, to compute once and no more is remembered.
"""

from collections.abc import Callable
from operator import is_
from typing import Any
from unittest.mock import patch

import triton.language as tl
from triton.language.semantic import TritonSemantic as _Semantic

from gemmgen.verification.interpret import known_operands, known_types
from gemmgen.verification.interpret.known_operands import as_type, is_settled, key_of

OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "minimum", "maximum",
    "and_", "or_", "xor_", "shl", "lshr", "ashr", "equal", "not_equal",
    "greater_than", "greater_equal", "less_than", "less_equal",
)  # fmt: skip
"""What Triton calls those of two values."""
_PROMOTES = "binary_op_type_checking_impl"

_Known = tuple[Any, Any, str, Any]
"""The types that operands are converted to, None if they are; the builder's method that
then computes the result; the type of that."""


def remember() -> None:
    """Make this process look up types, what operands become, and what operators do."""
    known_types.remember()
    known_operands.remember()
    for name in OPERATORS:
        setattr(_Semantic, name, _remembered(getattr(_Semantic, name)))


def _remembered(compute: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that looks up what it does."""
    known: dict[tuple[Any, ...], _Known | None] = {}

    def computed(self: Any, lhs: Any, rhs: Any, *more: Any, **named: Any) -> Any:
        key = key_of(lhs), key_of(rhs), *more, *named.items()
        if key not in known:
            result, known[key] = _watched(compute, self, lhs, rhs, *more, **named)
            return result
        found = known[key]
        if found is None:
            return compute(self, lhs, rhs, *more, **named)
        left, right, method, type_ = found
        one = lhs if left is None else as_type(self, lhs, left)
        other = rhs if right is None else as_type(self, rhs, right)
        handle = getattr(self.builder, method)(one.handle, other.handle)
        return tl.tensor(handle, type_)

    return computed


class _Noting:
    """A builder that notes what it is asked to create."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.notes: list[tuple[str, tuple[Any, ...], Any]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.builder, name)
        if not name.startswith("create_"):
            return found

        def noted(*given: Any, **named: Any) -> Any:
            returned = found(*given, **named)
            self.notes.append((name, (*given, *named), returned))
            return returned

        return noted


def _watched(
    compute: Callable[..., Any], self: Any, lhs: Any, rhs: Any, *more: Any, **named: Any
) -> tuple[Any, _Known | None]:
    """What an operator returns, and what it did if that can be remembered."""
    promotes, pairs = getattr(_Semantic, _PROMOTES), list[Any]()
    builder = _Noting(self.builder)

    def promoted(self: Any, *given: Any, **named: Any) -> Any:
        pairs.append(promotes(self, *given, **named))
        builder.notes.clear()  # only what comes after it
        return pairs[-1]

    with (
        patch.object(_Semantic, _PROMOTES, promoted),
        patch.object(self, "builder", builder),
    ):
        result = compute(self, lhs, rhs, *more, **named)
    if len(pairs) != 1 or len(builder.notes) != 1 or type(result) is not tl.tensor:
        return result, None
    ((one, other),), ((method, given, handle),) = pairs, builder.notes
    wanted = one.handle, other.handle, handle
    seen = *given, result.handle
    plain = len(seen) == len(wanted) and all(map(is_, seen, wanted))
    if not plain or not (is_settled(lhs, one.type) and is_settled(rhs, other.type)):
        return result, None
    to = _changed(lhs, one.type), _changed(rhs, other.type)
    return result, (*to, method, result.type)


def _changed(value: Any, type_: Any) -> Any:
    """A type that a value does not have yet, else None."""
    same = isinstance(value, tl.tensor) and value.type.name == type_.name
    return None if same else type_
