"""Producer and consumer warps; all matrices through descriptors."""

from collections.abc import Iterable, Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.runtime.tile import MOST_STORED, most_columns, pieces
from gemmgen.schedules.parts.memory import MOST_ACCUMULATED, round_up
from gemmgen.schedules.parts.schedule import (
    TILE,
    Kernel,
    Pause,
    Schedule,
    Size,
    too_small,
)
from gemmgen.schedules.parts.search import MOST_STAGES, k_blocks, not_by_descriptors
from gemmgen.schedules.parts.tile import FILL, GROUP_M, Product, Tile
from gemmgen.tables.dtypes import MMAS

_NAME = "warp_specialized"
_SIZES: tuple[Size, ...] = (
    *((256, 128, 1, 8, 1), (128, 128, 1, 8, 1), (128, 128, 1, 4, 1)),
    (128, 192, 1, 12, 1),
)
"""Where consumers share columns: where they share rows, m and n change places."""
_ALONG_K: tuple[Size, ...] = ((256, 128, 1, 8, 1), (128, 128, 1, 4, 1))
_HELD: tuple[Size, ...] = (
    *((256, 128, 1, 8, 1), (128, 128, 2, 8, 1)),
    (64, 128, 2, 8, 1),
)
"""The same of tf32, which reads both sides from shared memory or one from registers
(NT and NN, four shapes each, H200)."""
_Sides = tuple[int, int, int]
"""m, n, warps."""
_WARPS = (4, 8, 12)
_STEP, _LARGEST, _ALONG_M = 8, 256, 64
"""Of what the side is a multiple that consumers do not cut, what it is at most; of what
those of several powers of two are where a matrix lies along them."""

_COMPOSED = {
    (64, 4): (64, 72, 96, 104, 136),
    (128, 8): (72, 96, 104, 136, 160, 192, 200, 224),
    (192, 12): (72, 88, 96, 136, 144, 192, 200, 208, 256),
    (256, 8): (72, 88, 136, 160),
}
"""Rows of tiles by their columns and warps: what won some of 129 shapes of models, of
72 to 2200 rows, against tiles of 64, 128 and 256 (bf16 NT, H200)."""
_IN_PARTS = (FILL, 2 * FILL)
"""Parts of K that all are timed with too: for each SM one or two programs in turn."""
_DEEPEST = 12
"""Stages that tiles of few rows have room for, and use: 72 x 64 is fastest with 12."""

_PASSED_OF_PARTS, _SCRATCH, _STEP_OF_SCRATCH = 32, 4, 128
"""Bytes of what consumers are passed more where K comes in parts, and of the count that
a thread of each hands to its others, whose place is a multiple of 128 (Triton 3.6 to
3.9)."""

_HELD_AT_LEAST, _TAKEN = 90e-9, 0.039e-9
"""Seconds of a consumer from a block's arrival to its left side in registers, and for
each element of that (tf32 NN, 4096^3, H200: a block of 128x128x32 takes 0.41 us,
128x128x64 0.75, 128x256x32 0.74; of 256x128x32 0.66, as the unit)."""


def consumers(tile: Tile) -> int:
    """Groups of four warps that multiply; two, with a tile each, or more that share."""
    return max(2, tile.warpgroups)


def takes_turns(tile: Tile) -> bool:
    """Whether two consumers have a tile each."""
    return tile.warpgroups == 1


def why_not(kernel: Kernel) -> str | None:
    """It serves what wgmma reads from shared memory, the left side from registers."""
    mma = kernel.product.mma
    if kernel.product.rights > 1:
        return "its consumers keep one sum, of one right side"
    if mma.terms > 1:
        return f"{mma.name} splits its operands in registers, wgmma reads shared memory"
    if mma.one_k_major and kernel.layout == "TN":
        along_k = f"wgmma reads {mma.name} along K alone"
        return f"{along_k}, which neither matrix of layout TN is"
    return not_by_descriptors(kernel)


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Those of two and three consumers."""
    kind, layout = product.kind, product.layout
    found = _SIZES
    if product.mma.one_k_major:
        found = _HELD if from_registers(kind, layout) else _ALONG_K
    if transposes(kind, layout):
        return found
    return tuple((n, m, k, warps, parts) for m, n, k, warps, parts in found)


def search(product: Product) -> Iterator[Tile]:
    """Tiles of one, two and three groups of consumers."""
    shapes = (
        *((256, 128, 8), (128, 128, 8), (64, 128, 8), (128, 256, 8)),
        *((128, 128, 4), (64, 128, 4), (256, 64, 4), (128, 64, 4), (64, 64, 4)),
        *((128, 192, 12), (64, 192, 12)),
    )
    turned = transposes(product.kind, product.layout)
    for (m, n, warps), k in every(shapes, k_blocks(product, 1, 2)):
        rows, columns = (m, n) if turned else (n, m)
        yield Tile(rows, columns, k, GROUP_M, MOST_STAGES, warps, _NAME)
    (line,) = k_blocks(product, 1)
    sides = [(m, n, warps) for (n, warps), rows in _COMPOSED.items() for m in rows]
    yield from _deep(sides, line, (1, *_IN_PARTS), product)
    both = [(m, n, warps) if turned else (n, m, warps) for m, n, warps in shapes]
    others = [one for one in both if one not in sides]
    yield from _deep(others, line, _IN_PARTS, product)


def _deep(
    sides: Iterable[_Sides], k: int, parts: Iterable[int], product: Product
) -> Iterator[Tile]:
    """Tiles of such sides that compile, with all parts of K, as deep as any fits."""
    for (m, n, warps), split_k in every(sides, parts):
        tile = Tile(m, n, k, GROUP_M, _DEEPEST, warps, _NAME, split_k)
        if not why_not_compiled(tile, product):
            yield tile


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


def transposes(kind: str, layout: str) -> bool:
    """But for TT in tf32: A lies along M, and wgmma takes such on the left alone."""
    return not (from_registers(kind, layout) and layout == "TT")


def misshapen(tile: Tile) -> str | None:
    """Its warps are consumers of four each."""
    fault = too_small(tile)
    if fault is None and tile.warps not in _WARPS:
        return "has no consumers of four warps each: warps must be 4, 8 or 12"
    return fault


def powers_of_two(tile: Tile) -> set[int]:
    """But for three consumers, of 64 rows or columns each."""
    odd = {12, 192} if tile.warps == 12 else set[int]()
    return {tile.n, tile.warps} - odd | {tile.k}


def why_not_compiled(tile: Tile, product: Product) -> str | None:
    """A tile is cut into the parts of its consumers."""
    turned = transposes(product.kind, product.layout)
    axis, shared, whole = ("n", tile.n, tile.m) if turned else ("m", tile.m, tile.n)
    parted = 4 * shared in (64 * tile.warps, 128 * tile.warps, 256 * tile.warps)
    if tile.warps not in _WARPS or not parted:
        return (
            f"{_NAME} cuts {axis} into a part of 64, 128 or 256 for every 4 of the "
            "tile's warps, which are 4, 8 or 12"
        )
    return _why_no_pieces(whole, "m" if turned else "n", product)


def _why_no_pieces(side: int, axis: str, product: Product) -> str | None:
    """Why the side that consumers do not cut cannot be the sum of powers of two."""
    single = not side & (side - 1)
    if side > _LARGEST or side % _STEP:
        return f"{_NAME} multiplies {axis} of up to {_LARGEST}, in steps of {_STEP}"
    if not single and not composes(product.kind, product.layout):
        return f"{_NAME} multiplies {product.mma.name} in powers of two along {axis}"
    if not single and product.layout in ("TN", "TT") and side % _ALONG_M:
        return (
            f"{_NAME} reads a matrix along {axis} in lines of 128 bytes: {axis} must "
            f"be a power of two or a multiple of {_ALONG_M}"
        )
    return None


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring, its barriers, consumers' tiles and what is passed to them."""
    stage = product.rows(tile.m, tile.n) * tile.k * product.bytes
    stores = "results" not in by_pointers(product.kind)
    of_wg = tile.m * tile.n * consumers(tile) // tile.warpgroups
    own = product.tile_bytes - product.matrix_bytes if stores else 0
    rows = pieces(tile.m, MOST_STORED)[0]
    results = of_wg // tile.m * rows * own
    blocks = tile.stages * stage + of_wg * product.matrix_bytes + results
    return blocks + _beside_blocks(tile, product)


def _beside_blocks(tile: Tile, product: Product) -> int:
    """Barriers, what is passed to consumers, and where they count parts of K.

    The first two count where they found what was passed, a third behind all else.
    """
    barriers = 2 * round_up(8 * tile.stages, 16) + (32 if takes_turns(tile) else 0)
    passed = 144 + 32 * product.passed + (64 if product.matrix_bytes else 0)
    passed += 16 * (consumers(tile) - 2)
    whole = tile.m if transposes(product.kind, product.layout) else tile.n
    more = len(pieces(whole, most_columns(tile.warpgroups))) - 1
    passed += (36 if product.matrix_bytes else 28) * more + 16 * bool(more)
    taken = barriers + passed + _PASSED_OF_PARTS * (tile.split_k != 1)
    if tile.split_k == 1 or consumers(tile) == 2:
        return taken
    return round_up(taken, _STEP_OF_SCRATCH) + _SCRATCH


def spills(tile: Tile, product: Product) -> bool:
    """Of three consumers that meet, what roles share does not stay in registers.

    From 8 to 144 bytes spill, outside of loops, of nearly all such tiles.
    """
    return tile.split_k != 1 and consumers(tile) == 3


def registers(tile: Tile, product: Product) -> int:
    """Those of the launch; consumers then take 240 or 160, the producer 24."""
    return 168 if consumers(tile) == 2 else 128


def most_accumulated(tile: Tile) -> int:
    """Two thirds of those of a consumer, which holds no addresses."""
    return 160 if consumers(tile) == 2 else MOST_ACCUMULATED


def threads(tile: Tile) -> int:
    """Four warps of each consumer, and four of the producer."""
    return 128 * (consumers(tile) + 1)


def spare_tiles(product: Product) -> int:
    """Consumers compute no addresses, which leaves them more registers."""
    return 2


def waits(tile: Tile, product: Product, unit: float) -> float:
    """Consumers load what comes from registers themselves.

    Of those that share a tile, others multiply meanwhile: for half of the unit's time.
    """
    kind, layout = product.kind, product.layout
    if not from_registers(kind, layout):
        return 0.0
    elements = (tile.n if transposes(kind, layout) else tile.m) * tile.k
    hidden = 0.0 if takes_turns(tile) else unit / 2
    return max(0.0, _HELD_AT_LEAST + elements * _TAKEN - hidden)


def between_tiles(tile: Tile, rates: Rates, pause: Pause) -> float:
    """Consumers that share a tile rest for the epilogue.

    Of those with a tile each, one writes while the other multiplies.
    """
    if takes_turns(tile):
        return max(rates.handover, 2 * pause.epilogue - pause.loop)
    return pause.epilogue


def last_epilogues(tile: Tile) -> int:
    """Half of the consumers' warps write the last tile, if each has one of its own."""
    return 2 if takes_turns(tile) else 1


SCHEDULE = Schedule(
    _NAME, "producer and consumer warps", 50,
    why_not, sizes, search, shared_memory,
    constants=(*TILE, "STAGES", "NUM_WGS"),
    described=frozenset({"inputs", "operands", "results"}),
    title_of_splits="a producer and consumer warpgroups, for tiles or splits of K",
    splits=True, persistent=True, specialized=True, unit="wgmma",
    by_pointers=by_pointers, transposes=transposes, from_registers=from_registers,
    composes=composes,
    misshapen=misshapen, powers_of_two=powers_of_two,
    why_not_compiled=why_not_compiled,
    spills=spills, registers=registers, most_accumulated=most_accumulated,
    threads=threads, spare_tiles=spare_tiles,
    waits=waits, between_tiles=between_tiles, last_epilogues=last_epilogues,
)  # fmt: skip
