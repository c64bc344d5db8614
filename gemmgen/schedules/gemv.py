"""Rows times the matrix without a tensor core: B streams past rows of A."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.cost.tile import GROUP_M, Product, Tile
from gemmgen.schedules.base import Kernel, Size, k_blocks
from gemmgen.tables.layouts import LAYOUTS

_WIDEST_LOADS = 16
"""Bytes of a row of B for each thread: less would halve its loads."""
_MOST_AT_ONCE = 64
"""... and more would fill the registers, for four blocks are loaded at a time."""


def why_not(kernel: Kernel) -> str | None:
    """It serves a B that lies along K."""
    if not LAYOUTS[kernel.layout].b_transposed:
        return f"gemv streams B along K; in layout {kernel.layout} it lies along N"
    return None


def sizes(product: Product) -> tuple[Size, ...]:
    """One column and a warp at a time."""
    return ((1, 1, 4, 1, 1),)


def search(product: Product) -> Iterator[Tile]:
    """Those whose threads load enough of a row, and not too much."""
    lengths = k_blocks(product, 4, 8, 16, 32)
    for n, k, warps in every((1, 2, 4), lengths, (1, 4, 8)):
        if _WIDEST_LOADS <= k * product.bytes / (32 * warps) <= _MOST_AT_ONCE:
            yield Tile(1, n, k, GROUP_M, 1, warps, "gemv")
