"""Producer and consumer warps; all matrices through descriptors."""

from collections.abc import Iterable, Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.runtime.sides import may_part, most_in_one
from gemmgen.schedules.parts.consumers import (
    by_pointers,
    composes,
    consumers,
    from_registers,
    misshapen,
    multiplies_alike,
    multiplies_in_one,
    powers_of_two,
    rows_along_k,
    shared_axis,
    shared_memory,
    stands_for,
    takes_turns,
    transposes,
    why_not_compiled,
)
from gemmgen.schedules.parts.memory import MOST_ACCUMULATED
from gemmgen.schedules.parts.schedule import TILE, Kernel, Pause, Schedule, Size
from gemmgen.schedules.parts.search import (
    SEARCHED_STAGES,
    k_blocks,
    not_by_descriptors,
)
from gemmgen.schedules.parts.tile import FILL, GROUP_M, MOST_STAGES, Product, Tile

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

_COMPOSED = {
    (64, 4): (64, 72, 96, 104, 136),
    (128, 4): (96, 160),
    (128, 8): (72, 96, 104, 136, 160, 192, 200, 208, 224),
    (192, 12): (72, 88, 96, 136, 144, 160, 192, 200, 208, 224, 256),
    (256, 8): (72, 88, 96, 136, 144, 160),
}
"""Rows of tiles by their columns and warps: what won some of 129 shapes of models, of
72 to 2200 rows, against tiles of 64, 128 and 256 (bf16 NT, H200); and 96 and 160 of
four warps, 160, 208 and 224 beside, for whose results small buffers are enough, 96 and
144 x 256, whose loops go in steps."""
_IN_ONE = {
    (64, 4): (72, 104, 136, 184),
    (128, 4): (72, 88, 104, 120, 136, 152, 168, 184, 200),
    (128, 8): (72, 80, 88, 104, 120, 136, 152, 168, 184, 200, 216),
    (192, 12): (72, 88, 104, 120, 136, 152, 168, 192),
    (256, 8): (72, 88, 104, 120, 136, 152, 168, 184, 200),
}
"""The same of tiles whose rows one wgmma multiplies: some of all heights, between which
costs are in proportion."""
_OF_ROWS = {
    (64, 4): (72, 80, 96, 144, 160, 208),
    (128, 8): (72, 80, 96, 136, 144, 160, 200, 208, 224),
    (192, 12): (72, 80, 96, 144, 160),
    (256, 8): (72, 80, 96, 144),
}
"""Columns of tiles whose rows are cut, by these and warps: they divide N of some layers
into as many tiles as there are SMs, 9216 into 64 of 144, 1280 into 8 of 160."""
_IN_PARTS = (FILL, 2 * FILL)
"""Parts of K that all are timed with too: for each SM one or two programs in turn."""
_OF_CLUSTERS: tuple[_Sides, ...] = ((128, 256, 8), (192, 256, 8), (256, 256, 8))
"""Those of tiles that two CTAs share, for rows that do not fill lines of L2: of such
7645x15232x8408 takes 2.63 ms in 256 x 256, 3.02 in tiles of one (bf16 NT, H200). Where
rows are cut, Triton 3.8 cannot compile operands [n]."""

_HELD_AT_LEAST, _TAKEN = 90e-9, 0.039e-9
"""Seconds of a consumer from a block's arrival to its left side in registers, and for
each element of that (tf32 NN, 4096^3, H200: a block of 128x128x32 takes 0.41 us,
128x128x64 0.75, 128x256x32 0.74; of 256x128x32 0.66, as the unit)."""


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
    if shared_axis(kind, layout) != "m":
        return found
    return tuple((n, m, k, warps, parts) for m, n, k, warps, parts in found)


def search(product: Product) -> Iterator[Tile]:
    """Tiles of one, two and three groups of consumers."""
    shapes = (
        *((256, 128, 8), (128, 128, 8), (64, 128, 8), (128, 256, 8)),
        *((128, 128, 4), (64, 128, 4), (256, 64, 4), (128, 64, 4), (64, 64, 4)),
        *((128, 192, 12), (64, 192, 12)),
    )
    turned = shared_axis(product.kind, product.layout) != "m"
    for (m, n, warps), k in every(shapes, k_blocks(product, 1, 2)):
        rows, columns = (m, n) if turned else (n, m)
        yield Tile(rows, columns, k, GROUP_M, SEARCHED_STAGES, warps, _NAME)
    (line,) = k_blocks(product, 1)
    composed = _IN_ONE if rows_along_k(product) else _COMPOSED
    sides = [(m, n, warps) for (n, warps), rows in composed.items() for m in rows]
    if multiplies_alike(product):
        sides += [
            (m, n, warps) for (m, warps), columns in _OF_ROWS.items() for n in columns
        ]
    parts = _IN_PARTS[:1] if rows_along_k(product) else _IN_PARTS
    yield from _deep(sides, line, (1, *parts), product)
    both = [(m, n, warps) if turned else (n, m, warps) for m, n, warps in shapes]
    others = [one for one in both if one not in sides]
    yield from _deep(others, line, _IN_PARTS, product)
    if composes(product.kind, product.layout):
        yield from _deep(_OF_CLUSTERS, line, (1,), product, ctas=2)


def _deep(
    sides: Iterable[_Sides],
    k: int,
    parts: Iterable[int],
    product: Product,
    ctas: int = 1,
) -> Iterator[Tile]:
    """Tiles of such sides that compile, with all parts of K, as deep as any fits."""
    for (m, n, warps), split_k in every(sides, parts):
        how = MOST_STAGES, warps, _NAME, split_k
        tile = Tile(m, n, k, GROUP_M, *how, ctas=ctas)
        if not why_not_compiled(tile, product):
            yield tile


def spills(tile: Tile, product: Product) -> bool:
    """Of three consumers that meet, what roles share does not stay in registers.

    From 8 to 144 bytes spill, outside of loops, of nearly all such tiles; and 8 of two
    that have 128 x 128 sums each where an epilogue computes with an operand [m, n], 24
    of 152 x 128 that do not meet.
    """
    beside = product.matrix_bytes > 0 and product.operations > 0
    held = takes_turns(tile) and beside
    if held and tile.m * tile.n > 144 * 128:
        return True
    often = multiplies_in_one(tile, product) and _is_cut_often(tile)
    met = consumers(tile) == 3 or often or (held and tile.m * tile.n >= 128 * 128)
    return tile.split_k != 1 and met


def _is_cut_often(tile: Tile) -> bool:
    """Whether a sum is cut into four pieces, or into three of columns, or is large."""
    rows, elements = tile.launched.shared_axis == "m", tile.m * tile.n
    return not may_part(tile.shared_side, rows) or elements > 192 * 32 * tile.warps


def registers(tile: Tile, product: Product) -> int:
    """Those of the launch; consumers then take 240 or 160, the producer 24."""
    return 168 if consumers(tile) == 2 else 128


def most_accumulated(tile: Tile, product: Product) -> int:
    """Two thirds of those of a consumer, which holds no addresses.

    Of sides in one as many as their rule has.
    """
    if multiplies_in_one(tile, product):
        return most_in_one(tile.warpgroups)
    return 160 if consumers(tile) == 2 else MOST_ACCUMULATED


def threads(tile: Tile) -> int:
    """Four warps of each consumer; Triton makes four of the producer's one."""
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
    elements = (tile.n if transposes(tile, product) else tile.m) * tile.k
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
    by_pointers=by_pointers, transposes=transposes, shared_axis=shared_axis,
    from_registers=from_registers, composes=composes, stands_for=stands_for,
    misshapen=misshapen, powers_of_two=powers_of_two,
    why_not_compiled=why_not_compiled,
    spills=spills, registers=registers, most_accumulated=most_accumulated,
    threads=threads, spare_tiles=spare_tiles,
    waits=waits, between_tiles=between_tiles, last_epilogues=last_epilogues,
)  # fmt: skip
