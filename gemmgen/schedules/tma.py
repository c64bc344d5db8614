"""One output tile, or a part of its K, per program; A and B through descriptors."""

from collections.abc import Iterator

from gemmgen.cost.tile import FILL, Product, Tile
from gemmgen.schedules.base import (
    MOST_STAGES,
    PARTED,
    Kernel,
    Size,
    in_parts,
    k_blocks,
    not_by_descriptors,
)

_WHOLE_TILE: Size = (128, 128, 1, 4, 1)
"""In tf32 persistent is as fast with it (NT, 4096^3 and 2048^3, H200)."""

_SIZES: tuple[Size, ...] = (
    _WHOLE_TILE,
    (128, 64, 1, 4, FILL),
    (64, 128, 1, 4, 1),
    (64, 64, 2, 4, FILL),
    (32, 64, 2, 4, FILL),
    (16, 64, 2, 4, FILL),
)
_FLAT = ((16, 64, 4),)
"""(m, n, warps) where memory is the limit, for longer rows of B at a time."""


def why_not(kernel: Kernel) -> str | None:
    """It serves whatever gains by descriptors."""
    return not_by_descriptors(kernel)


def sizes(product: Product) -> tuple[Size, ...]:
    """Whole tiles of many rows, parts of those of few."""
    if product.mma.one_k_major:
        return tuple(size for size in _SIZES if size != _WHOLE_TILE)
    return _SIZES


def search(product: Product) -> Iterator[Tile]:
    """With K whole, and in as many parts as there are SMs for."""
    stages, lengths = (MOST_STAGES, 6, 4), k_blocks(product, 1, 2)
    yield from in_parts("tma", PARTED, lengths, (1, FILL), stages)
    yield from in_parts("tma", _FLAT, k_blocks(product, 4), (1, FILL), stages)
