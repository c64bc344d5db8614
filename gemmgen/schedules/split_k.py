"""A part of the K of one output tile per program, through pointers."""

from collections.abc import Iterator

from gemmgen.cost.tile import FILL, Product, Tile
from gemmgen.schedules.base import (
    MOST_STAGES,
    PARTED,
    Kernel,
    Size,
    in_parts,
    k_blocks,
)

_APART = (
    *((16, 32, 4), (32, 32, 4)),
    *((64, 64, 8), (64, 128, 8), (128, 64, 8), (128, 128, 8)),
)
"""(m, n, warps) for elements that come singly: threads hold few, and parts are many."""


def why_not(kernel: Kernel) -> str | None:
    """It serves what a sum in fp32 is exact enough for."""
    if kernel.product.mma.accumulator_words > 1:
        kind = kernel.product.kind
        return f"the parts of a split K are summed in fp32, which {kind} exceeds"
    return None


def sizes(product: Product) -> tuple[Size, ...]:
    """Small tiles; the smallest is the only one for multiply-adds."""
    return (
        (64, 64, 1, 4, FILL),
        (64, 64, 1, 4, 2 * FILL),
        (32, 64, 1, 4, 2 * FILL),
        (16, 64, 2, 4, FILL),
        (32, 32, 1, 4, FILL),
    )


def search(product: Product) -> Iterator[Tile]:
    """In up to four times as many parts as there are SMs for."""
    parts, stages = (1, FILL, 2 * FILL, 4 * FILL), (MOST_STAGES, 4)
    lengths = k_blocks(product, 0.5, 1, 2)
    yield from in_parts("split_k", PARTED + _APART, lengths, parts, stages)
