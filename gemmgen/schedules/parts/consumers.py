"""Tiles of which consumers, groups of four warps, have slices; what these take.

Consumers cut one side, rows of what is multiplied, and share the other, in pieces.
"""

from gemmgen.hardware.targets import Target
from gemmgen.runtime.sides import (
    COLUMNS,
    RESTS,
    box,
    cuts,
    heights,
    in_one,
    most_columns,
    most_in_one,
    most_stored,
    pieces,
    reserved,
    rows_of_ring,
)
from gemmgen.schedules.parts.memory import round_up
from gemmgen.schedules.parts.schedule import too_small
from gemmgen.schedules.parts.tile import LINE_BYTES, Product, Tile
from gemmgen.tables.dtypes import MMAS
from gemmgen.tables.layouts import LAYOUTS

_WARPS = (4, 8, 12)
_STEP, _LARGEST = 8, 256
"""Of what the side is a multiple that consumers do not cut, and what it is at most."""
_LEAST = 72
"""The least side of tiles that one stands for: what a block takes follows from it by
`share` of the runtime."""
_PASSED_OF_PARTS, _PASSED_OF_REST, _PASSED_OF_OPERANDS = 32, 16, 20
"""Bytes of what consumers are passed more where K comes in parts, for a second box of
columns, and for each further part of an operand [m, n]..."""
_PASSED_OF_CLUSTERS = 16
"""... and for the barriers that the CTAs of a cluster have in common..."""
_SCRATCH, _STEP_OF_SCRATCH = 4, 128
"""... and of the count that a thread of each hands to its others, whose place is a
multiple of 128 (Triton 3.6 to 3.9)."""


def consumers(tile: Tile) -> int:
    """Groups of four warps that multiply; two, with a tile each, or more that share."""
    return max(2, tile.warpgroups)


def takes_turns(tile: Tile) -> bool:
    """Whether two consumers have a tile each."""
    return tile.warpgroups == 1


def by_pointers(kind: str) -> frozenset[str]:
    """Consumers of tf32 store their results from registers.

    There, elements of 4 bytes fill whole sectors, and a tile of them would take the
    room of two stages.
    """
    return frozenset({"results"} if MMAS[kind].one_k_major else ())


def composes(kind: str, layout: str) -> bool:
    """Those of 16 bits: others would gain no stage, which is what pieces pay with.

    256 x 128 in four stages, with sums of 128 columns twice, takes 176 us where three
    stages take 189, and sums of 256 columns in three 177 (1024x8192x8192, H200).
    """
    return not MMAS[kind].one_k_major


def from_registers(kind: str, layout: str) -> bool:
    """In shared memory wgmma reads 4-byte elements along K alone (PTX ISA, wgmma).

    One matrix of NN and of TT does not lie so.
    """
    return MMAS[kind].one_k_major and layout in ("NN", "TT")


def shared_axis(kind: str, layout: str) -> str:
    """Sides say what is cut, but where one is not composed: then columns.

    Of TT in tf32 rows: A lies along M, and wgmma takes such on the left alone.
    """
    if composes(kind, layout):
        return ""
    return "m" if from_registers(kind, layout) and layout == "TT" else "n"


def transposes(tile: Tile, product: Product) -> bool:
    """Where consumers cut columns."""
    axis = shared_axis(product.kind, product.layout) or tile.launched.cut_axis
    return axis == "n"


def misshapen(tile: Tile) -> str | None:
    """Its warps are consumers of four each."""
    fault = too_small(tile)
    if fault is None and tile.warps not in _WARPS:
        return "has no consumers of four warps each: warps must be 4, 8 or 12"
    groups = tile.warpgroups * tile.ctas
    if fault is None and tile.ctas > 1 and not cuts(tile.n, groups):
        return "has no columns that are 64, 128 or 256 for every four warps of a CTA"
    if fault is None and not (cuts(tile.n, groups) or cuts(tile.m, groups)):
        return "has no side that is 64, 128 or 256 for every four warps"
    return fault


def stands_for(tile: Tile) -> bool:
    """Consumers that share a side may, for there is a rule to its costs.

    In pieces it is rows, and there must be several consumers.
    """
    least, most, in_one = tile.from_side, tile.shared_side, tile.stands_in_one
    ends = [side for side in heights(least, most) if side in (least, most)]
    if len(ends) < 2 or not _LEAST <= least < most <= _LARGEST:
        return False
    if in_one and not all(side & (side - 1) for side in ends):
        return False
    return in_one or (cuts(tile.n, tile.warpgroups) and tile.warpgroups > 1)


def powers_of_two(tile: Tile) -> set[int]:
    """Sides are cut into slices and pieces that are; and consumers may be three."""
    return {tile.k, tile.warps} - {12}


def why_not_compiled(tile: Tile, product: Product) -> str | None:
    """Consumers cut one side, the other is a power of two or the sum of several."""
    turned, schedule = transposes(tile, product), tile.schedule
    if tile.warps not in _WARPS or not cuts(
        tile.n if turned else tile.m, tile.warpgroups * tile.ctas
    ):
        axis = shared_axis(product.kind, product.layout) or "n or m"
        return (
            f"{schedule} cuts {axis} into a part of 64, 128 or 256 for every 4 of the "
            "tile's warps, which are 4, 8 or 12"
        )
    axis, side = ("m", tile.m) if turned else ("n", tile.n)
    if side > _LARGEST or side % _STEP:
        return f"{schedule} multiplies {axis} of up to {_LARGEST}, in steps of {_STEP}"
    if not side & (side - 1):
        return None
    if not composes(product.kind, product.layout):
        return f"{schedule} multiplies {product.mma.name} in powers of two along {axis}"
    lies_along = not turned or product.layout in ("TN", "TT")
    if lies_along and side % COLUMNS not in RESTS:
        rests = ", ".join(map(str, RESTS[1:]))
        return (
            f"{schedule} moves rows along {axis} in lines of {COLUMNS}: {axis} must be "
            f"a power of two or a multiple of {COLUMNS}, or {rests} more than that"
        )
    return None


def rows_along_k(product: Product) -> bool:
    """Whether rows are 16 bits that lie along K, as a side in one has to."""
    return product.bytes == 2 and not LAYOUTS[product.layout].a_transposed


def columns_along_k(product: Product) -> bool:
    """Whether columns are 16 bits that do."""
    return product.bytes == 2 and LAYOUTS[product.layout].b_transposed


def multiplies_alike(product: Product) -> bool:
    """Whether columns are in one where rows are, so that a kind's costs are of both.

    Of NN rows alone are.
    """
    return columns_along_k(product) or not rows_along_k(product)


def multiplies_in_one(tile: Tile, product: Product) -> bool:
    """Whether one wgmma multiplies all pieces of a side: 16 bits, in lines along K."""
    along_k = rows_along_k if transposes(tile, product) else columns_along_k
    lines = tile.k * product.bytes == LINE_BYTES
    if not lines or not along_k(product) or tile.ctas > 1:
        return False
    left, side = _left_and_shared(tile, product)
    groups = tile.warpgroups
    most, rows = most_in_one(groups), _rows_of_ring(tile, product)
    return in_one(side, left // groups, most, rows)


def _left_and_shared(tile: Tile, product: Product) -> tuple[int, int]:
    """The side of which consumers have slices, and the one that they share."""
    turned = transposes(tile, product)
    return (tile.n, tile.m) if turned else (tile.m, tile.n)


def _rows_of_ring(tile: Tile, product: Product) -> int:
    """Of a ring whose stages have whole boxes, if the shared side is in one."""
    left, side = _left_and_shared(tile, product)
    return rows_of_ring(left + reserved(side), left // tile.warpgroups, tile.stages)


def ring_bytes(tile: Tile, product: Product) -> int:
    """Bytes of all stages; those that a CTA of a cluster has."""
    if multiplies_in_one(tile, product):
        return _rows_of_ring(tile, product) * LINE_BYTES
    tile = tile.of_cta
    return tile.stages * product.rows(tile.m, tile.n) * tile.k * product.bytes


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring, its barriers, consumers' tiles and what is passed to them."""
    shared, ring, tile = tile.ctas > 1, ring_bytes(tile, product), tile.of_cta
    one = not shared and multiplies_in_one(tile, product)
    tiles = consumers(tile) // tile.warpgroups
    operands = tile.m * tile.n * product.matrix_bytes
    beside = tiles * (operands + _result_bytes(tile, product))
    clusters = round_up(8 * tile.stages, 16) + _PASSED_OF_CLUSTERS if shared else 0
    return ring + beside + _beside_blocks(tile, product, one) + clusters


def _result_bytes(tile: Tile, product: Product) -> int:
    """Bytes of a tile's largest part, and of a last one whose rows are no whole lines.

    Of results with buffers of their own, which those of tf32 do without.
    """
    if "results" in by_pointers(product.kind):
        return 0
    turned = transposes(tile, product)
    largest, *others = _stored(tile, turned)
    taken = largest * (product.tile_bytes - product.matrix_bytes)
    if others and not turned:
        rests = (others[-1] * size for size in product.own_bytes)
        taken += sum(rest for rest in rests if rest < LINE_BYTES)
    return taken * (tile.n if turned else tile.m)


def _stored(tile: Tile, turned: bool) -> tuple[int, ...]:
    """The parts of the side that consumers share which are stored at a time."""
    side = tile.m if turned else tile.n
    return pieces(side, most_stored(tile.m, tile.n, turned))


def _beside_blocks(tile: Tile, product: Product, one: bool) -> int:
    """Barriers, what is passed to consumers, and where they count parts of K.

    The first two count where they found what was passed, a third behind all else.
    """
    barriers = 2 * round_up(8 * tile.stages, 16) + (32 if takes_turns(tile) else 0)
    passed = 144 + 32 * product.passed + (64 if product.matrix_bytes else 0)
    passed += 16 * (consumers(tile) - 2)
    turned = transposes(tile, product)
    whole = tile.m if turned else tile.n
    most = most_columns(tile.warpgroups)
    more = len(pieces(whole, most)) - 1
    rest = not turned and more > 0
    if one:
        more = 1  # another view of the ring
        rest = rest and whole % box(whole, most) > 0
    parts = len(_stored(tile, turned)) - 1
    beside = _PASSED_OF_OPERANDS * parts * (product.matrix_bytes // 2)
    passed += 28 * more + beside + (32 if beside else 16) * bool(more or beside)
    passed += _PASSED_OF_REST * rest
    taken = barriers + passed + _PASSED_OF_PARTS * (tile.split_k != 1)
    if tile.split_k == 1 or consumers(tile) == 2:
        return taken
    return round_up(taken, _STEP_OF_SCRATCH) + _SCRATCH
