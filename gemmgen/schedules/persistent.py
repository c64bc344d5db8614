"""One program per SM, tiles in a loop; A, B and results through descriptors."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.schedules.parts.memory import (
    registers_by_descriptors,
    ring_barriers,
    ring_memory,
    threads_of,
    unit_of,
)
from gemmgen.schedules.parts.schedule import Kernel, Pause, Schedule, Size
from gemmgen.schedules.parts.search import k_blocks, not_by_descriptors
from gemmgen.schedules.parts.tile import GROUP_M, Product, Tile


def why_not(kernel: Kernel) -> str | None:
    """It serves whatever gains by descriptors."""
    return not_by_descriptors(kernel)


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """The largest: a loop pays where a tile's own time is long."""
    return ((128, 256, 1, 8, 1), (128, 128, 1, 8, 1))


def search(product: Product) -> Iterator[Tile]:
    """Large tiles with a cache line of K."""
    shapes = ((128, 256), (256, 128), (128, 128))
    for (m, n), k in every(shapes, k_blocks(product, 1)):
        yield Tile(m, n, k, GROUP_M, 4, 8, "persistent")


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring of K blocks, its barriers, and what epilogues reorder beside it."""
    unit = unit_of(tile.m, tile.warps, product, target)
    ring = ring_memory(tile, product, unit, tile.n)
    ring += ring_barriers(tile, product, unit)
    return ring + _beside_the_ring(tile, product, target)


def _beside_the_ring(tile: Tile, product: Product, target: Target) -> int:
    """What an epilogue reorders while the next tile's blocks arrive.

    Results whole; operands, which come through pointers, in parts: fitted to what
    compiles, at most 16384 elements on sm_90 and a quarter of the tile on sm_100.
    """
    elements, side = tile.m * tile.n, max(tile.m, tile.n)
    part = elements // 4 if target.unit == "tcgen05" else min(elements, 16384)
    wide = side >= threads_of(tile) and product.vector_bytes
    width = max(4, product.vector_bytes) if wide else 0
    return elements * product.result_bytes + part * product.matrix_bytes + side * width


def spare_tiles(product: Product) -> int:
    """One, where pointers to operands [m, n] do not take its place."""
    return 0 if product.matrix_bytes else 1


def between_tiles(tile: Tile, rates: Rates, pause: Pause) -> float:
    """The loop rests for the epilogue."""
    return pause.epilogue


# Beside warp-specialized kernels, which overlap more, it is worth a file to few: the
# fastest other tile takes 0.3 % longer in the mean, the one that costs choose 1.1 %
# (164 shapes of 16 bits, H200).
SCHEDULE = Schedule(
    "persistent", "one program per SM, tiles in a loop", 30,
    why_not, sizes, search, shared_memory,
    described=frozenset({"inputs", "results"}), persistent=True,
    registers=registers_by_descriptors, spare_tiles=spare_tiles,
    between_tiles=between_tiles, auto=False,
)  # fmt: skip
