"""Faults of sides that are sums of powers of two: of pieces, boxes, stored parts.

Each is an edit of one node, as in `faults`; texts are those of what kernels share.
"""

import ast
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression, passed_as
from gemmgen.verification.faults.edits import (
    changed,
    replaced,
    replacements,
    without_term,
)


def piece_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield "first of several left out", _fewer("1, {}")
    yield "last of several left out", _fewer("{} - 1")
    yield from _boxes()
    yield from _places()
    yield from _halves()
    yield from _in_one()
    yield "sum of a piece begun anew", passed_as("use_acc", "adds", "adds and i == 0")
    yield "piece of another", replaced("sums[i]", "sums[0]")
    yield "piece of another", replaced("smems[i]", "smems[0]")
    yield "piece of another", replaced("right_smem[i]", "right_smem[0]")
    yield "operand of another", replaced("descs[i]", "descs[0]")
    yield "operand not waited for by the first part", replaced("i == 0", "i == 1")
    yield "operand of another", changed("load_part", 1, "0")
    yield "part of another", replaced("parts[i]", "parts[0]")
    for place in ("0", "len(smems) - 1", "part"):
        yield "part of another", replaced("max(0, part + len(smems) - parts)", place)
    yield from _orientation()


def _boxes() -> Iterator[tuple[str, Edit]]:
    """Boxes of other sides, or of another piece."""
    larger = "descs[0].block_shape[AXIS] > SIDE"
    for other in ("False", larger.replace(">", ">=")):
        yield "piece moved by the wrong box", replaced(larger, other)
    yield "piece moved by the wrong box", replaced("descs[1]", "descs[0]")
    yield "piece moved by the wrong box", replaced("(desc, rest_desc)", "(desc, desc)")
    yield "piece moved by the wrong box", _as_first_box
    yield "box of a piece not cut", replaced("piece.slice(at, SIDE, AXIS)", "piece")
    yield (
        "box cut along the other axis",
        replaced("piece.slice(at, SIDE, AXIS)", "piece.slice(at, SIDE, 1 - AXIS)"),
    )
    for columns in (
        "columns_of(NUM_WGS)",
        "stored_of(BLOCK_M, BLOCK_N, SWAP_AB, gl.num_ctas())",
    ):
        yield "pieces of other sides", replaced(columns, f"{columns} // 2")
    yield (
        "pieces of other sides",
        replaced("PARTS[0]", "PARTS[-1]"),
    )
    yield "pieces along the other axis", replaced("1 - K_MAJOR", "K_MAJOR")


def _places() -> Iterator[tuple[str, Edit]]:
    """Boxes and pieces that begin elsewhere."""
    for box in ("i * SIDE", "(1 - AXIS) * i * SIDE", "AXIS * i * SIDE"):
        yield "box at the piece's first", without_term(box)
    yield "box cut from the piece's first", _cut_first("i * SIDE")
    yield (
        "box cut from the piece's first",
        replaced("piece.slice(at, SIDE, AXIS)", "piece.slice(0, SIDE, AXIS)"),
    )
    for side, other in (
        ("piece.shape[AXIS]", "descs[0].block_shape[AXIS]"),
        ("acc.shape[0]", "parts[0].shape[0]"),
        ("acc.shape[1]", "parts[0].shape[1]"),
    ):
        yield "piece behind one of another side", _advanced(side, other)


_IN_ONE = (
    ("stage of another", "stride * 128", "stride * 64"),
    ("stage of another", "reserved_for(columns)", "columns"),
    ("side that begins elsewhere", "stages * left", "(stages - 1) * left"),
    ("rows of another", "consumer * rows + row", "row"),
    ("rows of another", "consumer * rows + row", "consumer * rows"),
    ("step of another", "step * 32", "0"),
    ("step of another", "step * left_bytes", "0"),
    ("step of another", "16 * 128", "8 * 128"),
    ("rows described otherwise", "left_along_k", "True"),
    ("step of a block left out", "range(4)", "range(3)"),
    ("registers of another sum", "row // 64 * of_64", "0"),
    ("rows described otherwise", "1 << 62", "1 << 61"),
    ("rows described otherwise", "1024 >> 4", "512 >> 4"),
    ("box loaded elsewhere", "STAGES * LEFT + stage * reserved_for(SIDE)", "stage"),
    ("box loaded elsewhere", "SIDE - REST", "SIDE - BOX"),
    ("box loaded elsewhere", "row // SIDE + i", "row // SIDE"),
    ("box of another", "first + i * SIDE", "first"),
    ("box left out", "SIDE // BOX", "SIDE // BOX - 1"),
    ("box left out", "REST > 0", "False"),
    ("ring allocated too short", "ROWS // 8", "ROWS // 8 - 8"),
    ("pieces cut elsewhere", "2 * PIECES[i]", "4 * PIECES[i]"),
)
"""Of sides in one: the kind of fault, what is replaced, by what."""


def _in_one() -> Iterator[tuple[str, Edit]]:
    """What PTX says, where it reads, and what is loaded there."""
    yield from replacements(_IN_ONE)
    yield "fence of products dropped", _without("wgmma.fence.sync.aligned;")
    yield "products not committed", _without("wgmma.commit_group.sync.aligned; ")
    yield "products that may be left out", passed_as("is_pure", "False", "True")


def _without(instruction: str) -> Edit:
    """PTX that lacks an instruction."""

    def edit(node: ast.AST) -> ast.AST | None:
        text = getattr(node, "value", None)
        told = isinstance(node, ast.Constant) and isinstance(text, str)
        if not told or not str(text).startswith(instruction):
            return None
        return ast.Constant(str(text).removeprefix(instruction))

    return edit


def _halves() -> Iterator[tuple[str, Edit]]:
    """A sum's halves in the wrong order, or made of other columns."""
    yield "halves exchanged", _exchanged
    yield (
        "halves of alternate columns",
        replaced("(acc.shape[0], 2, COLUMNS)", "(acc.shape[0], COLUMNS, 2)"),
    )
    yield "halves of alternate columns", replaced("(0, 2, 1)", "(0, 1, 2)")
    yield "sum not halved", replaced("sums[i].shape[1] > MOST", "False")
    twice = "halved(halved(sums, MOST), MOST)"
    yield "half not halved", replaced(twice, "halved(sums, MOST)")
    for half in ("left", "right"):
        yield (
            "half in another layout",
            replaced(f"gl.convert_layout({half}, LAYOUT)", half),
        )
    yield "half in another layout", replaced("[16, COLUMNS, 8]", "[16, 2 * COLUMNS, 8]")


def _orientation() -> Iterator[tuple[str, Edit]]:
    """What is cut, and what lies along rows, taken for the other."""
    chosen = "cuts_into_slices(columns, warpgroups)"
    for swaps in ("True", "False"):
        yield "slices of the other side", replaced(chosen, swaps)
    yield (
        "slices of the other side",
        replaced(f"{chosen} if told is None else told", chosen),
    )
    yield "slices of the other side", replaced(
        "BLOCK_M if SWAP_AB else BLOCK_N", "BLOCK_M"
    )
    yield "operand loaded along the other axis", changed("load_pieces", 6, "1 - {}")
    yield "box along the other axis", replaced(
        "int(desc.block_shape[0] == piece.shape[0])", "0"
    )
    yield "part in the layout of another", replaced(
        "descs[0].layout != descs[1].layout", "False"
    )


def _fewer(bounds: str) -> Edit:
    """A loop over several that leaves one out."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "gl.static_range")
        if call is None:
            return None
        count = ast.unparse(call.args[0])
        return expression(f"gl.static_range({bounds.format(count)})")

    return edit


def _as_first_box(node: ast.AST) -> ast.AST | None:
    """The first of several boxes, whichever piece is moved."""
    call = call_of(node, "box_for")
    return expression(f"{ast.unparse(call.args[0])}[0]") if call else None


def _cut_first(place: str) -> Edit:
    """The first box of a piece in place of the one at a place."""
    edit = changed("cut", 1, "0")

    def at(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "cut")
        return edit(node) if call and ast.unparse(call.args[1]) == place else None

    return at


def _advanced(side: str, other: str) -> Edit:
    """What a loop over pieces adds to the place of the next."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.AugAssign) or ast.unparse(node.value) != side:
            return None
        return ast.AugAssign(node.target, node.op, expression(other))

    return edit


def _exchanged(node: ast.AST) -> ast.AST | None:
    """The two halves, or parts made of them, in the other order."""
    if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
        return None
    if not isinstance(node.ctx, ast.Load) or "left" not in ast.unparse(node.elts[0]):
        return None
    return ast.Tuple(node.elts[::-1], ast.Load())
