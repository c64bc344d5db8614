"""Faults of calls in which torch has a part, and of those by which kernels are warmed.

Each is an expression in place of another, as in `host`.
"""

from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit
from gemmgen.verification.faults.edits import replaced

_FAULTS = (
    ("first item for all", "value.select(dim, i)", "value.select(dim, 0)"),
    ("items along another axis", "value.select(dim, i)", "value.select(0, i)"),
    ("items along another axis", "value.select(dim, i)", "value.select(1, i)"),
    ("items along another axis", "one.movedim(dim, 0)", "one.movedim(0, 0)"),
    ("items along another axis", "one.movedim(dim, 0)", "one.movedim(1, 0)"),
    ("values as they are stored", "one.resolve_neg()", "one"),
    ("rows of the first axis", "shapes[0].numel()", "shapes[0][0] * shapes[0][-1]"),
    ("most rows not warmed", "range(1, most + 1)", "range(1, most)"),
    ("parts of one kind warmed", "(M, splits)", "(M, 2 * (splits > 1))"),
    ("items in turns", "every.flatten(0, 1)", "every.transpose(0, 1).flatten(0, 1)"),
)
"""The kind of fault, what is replaced, by what."""


def call_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    for name, old, new in _FAULTS:
        yield name, replaced(old, new)
