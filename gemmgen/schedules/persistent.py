"""One program per SM, tiles in a loop; A, B and results through descriptors."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.cost.tile import GROUP_M, Product, Tile
from gemmgen.schedules.base import Kernel, Size, k_blocks, not_by_descriptors


def why_not(kernel: Kernel) -> str | None:
    """It serves whatever gains by descriptors."""
    return not_by_descriptors(kernel)


def sizes(product: Product) -> tuple[Size, ...]:
    """The largest: a loop pays where a tile's own time is long."""
    return ((128, 256, 1, 8, 1), (128, 128, 1, 8, 1))


def search(product: Product) -> Iterator[Tile]:
    """Large tiles with a cache line of K."""
    shapes = ((128, 256), (256, 128), (128, 128))
    for (m, n), k in every(shapes, k_blocks(product, 1)):
        yield Tile(m, n, k, GROUP_M, 4, 8, "persistent")
