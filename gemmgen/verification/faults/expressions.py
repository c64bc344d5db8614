"""Faults of Python around kernels that are an expression in place of another.

Of how launchers cut a tile's sides into boxes, and describe those; of calls in which
torch has a part, and of those by which kernels are warmed.
"""

from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit
from gemmgen.verification.faults.edits import replacements

_OF_ANOTHER = (
    "[*one.descriptors(self.in_gluon)[:1], "
    "*self.tma_args[-1].descriptors(self.in_gluon)[1:]]"
)
_SIDES = "tile.cut_axis if self.cuts else ''"
_OF_BOXES = (
    ("piece lost", "[most] * (side // most)", "[most] * (side >= most)"),
    ("piece lost", "range(1, most.bit_length())", "range(2, most.bit_length())"),
    ("pieces in another order", "tuple(found)", "tuple(found[::-1])"),
    ("pieces of other sides", "256 if warpgroups < 3 else 128", "64"),
    ("boxes of another axis", "getattr(self, axis)", "self.m"),
    ("boxes of another axis", "getattr(self, axis)", "self.n"),
    ("box of another piece", "larger[-1] if larger else least", "least"),
    (
        "box of another piece",
        "sides.box(side, most) if cut and along_k else largest",
        "largest",
    ),
    ("box of another piece", "max(BOX, side & -side)", "2 * BOX"),
    ("never a second box", "1 + (first != last)", "1"),
    ("always a second box", "1 + (first != last)", "2"),
    ("boxes exchanged", "(tuple(first), tuple(last))", "(tuple(last), tuple(first))"),
    ("slices of the other side", f"self.shared or {_SIDES}", _SIDES),
    ("slices of the other side", f"self.shared or {_SIDES}", "self.shared"),
    ("slices of the other side", "sides.cuts(self.n, self.warpgroups)", "True"),
    ("slices of the other side", "sides.cuts(self.n, self.warpgroups)", "False"),
    ("box of the other tensors", "at > 1", "at > 2"),
    ("missing box before the others", "boxes + missing", "missing + boxes"),
    ("box missing that is not", "1 + rest - len(boxes)", "rest"),
    ("never a second box", "f'{tensor}_rest_desc' in names", "False"),
    (
        "second descriptor like the first",
        "self.descriptor(box, in_gluon)",
        "self.descriptor(self.boxes[0], in_gluon)",
    ),
    (
        "second descriptor of another tensor",
        "one.descriptors(self.in_gluon)",
        _OF_ANOTHER,
    ),
    ("box turned", "list(box)", "list(box)[::-1]"),
    ("maps of the other box", "tuple(fixed)", "tuple(fixed[::-1])"),
    (
        "second map like the first",
        "tensor_map(address, *numbers, shape, strides)",
        "tensor_map(address, *fixed[0], shape, strides)",
    ),
)
_OF_CALLS = (
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


def box_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault of boxes, with the edit that makes it."""
    return replacements(_OF_BOXES)


def call_families() -> Iterator[tuple[str, Edit]]:
    """The same of calls."""
    return replacements(_OF_CALLS)
