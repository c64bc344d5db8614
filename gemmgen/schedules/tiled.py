"""One output tile per program, through pointers: serves every kernel and call."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.cost.tile import GROUP_M, Product, Tile
from gemmgen.schedules.base import Kernel, Size, k_blocks


def why_not(kernel: Kernel) -> None:
    """Nothing keeps it from serving."""


def sizes(product: Product) -> tuple[Size, ...]:
    """None: `select/candidates.py` has them, by the unit that multiplies."""
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
