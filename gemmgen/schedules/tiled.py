"""One output tile per program, through pointers: serves every kernel and call."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import ring_memory, unit_of
from gemmgen.schedules.parts.schedule import Kernel, Schedule, Size
from gemmgen.schedules.parts.search import k_blocks
from gemmgen.schedules.parts.tile import GROUP_M, Product, Tile


def why_not(kernel: Kernel) -> None:
    """Nothing keeps it from serving."""


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """None: `select/fallback_tiles.py` has them, by the unit that multiplies."""
    return ()


def search(product: Product) -> Iterator[Tile]:
    """Square tiles and twice as wide or high ones, 64 to 128 a side."""
    shapes = (
        *((64, 64, 4), (64, 64, 8), (64, 128, 4), (64, 128, 8), (128, 64, 4)),
        *((128, 128, 4), (128, 128, 8)),
    )
    for (m, n, warps), k in every(shapes, k_blocks(product, 1)):
        for stages in (3, 4):
            yield Tile(m, n, k, GROUP_M, stages, warps, "tiled")


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring of K blocks, used again where the result is reordered."""
    unit = unit_of(tile.m, tile.warps, product, target)
    ring = ring_memory(tile, product, unit, tile.n)
    return max(ring, tile.m * tile.n * product.out_bytes)


SCHEDULE = Schedule(
    "tiled", "one output tile per program", 10,
    why_not, sizes, search, shared_memory,
    title_of_splits="one output tile, or a split of its K, per program",
)  # fmt: skip
