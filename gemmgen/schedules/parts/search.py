"""What the searches and the reasons of several schedules share."""

from collections.abc import Iterator, Sequence
from itertools import product

from gemmgen.schedules.parts.memory import block_k
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import GROUP_M, LINE_BYTES, Product, Tile

SEARCHED_STAGES = 8
"""Stages of the deepest tiles of powers of two that searches try."""


def k_blocks(product: Product, *lines: float) -> list[int]:
    """Lengths of a K block that are so many cache lines of 128 bytes."""
    return [block_k(int(count * LINE_BYTES), product) for count in lines]


def not_by_descriptors(kernel: Kernel) -> str | None:
    """Why blocks of A and B that come through descriptors are of no use, or None."""
    mma, unit = kernel.product.mma, kernel.target.unit
    if mma.unit != "matrix":
        return (
            f"{mma.title or mma.name} is multiplied from registers, where blocks that "
            "descriptors load only take room"
        )
    if unit == "tcgen05" and mma.terms > 1:
        split = f"{mma.name} splits its operands in registers"
        return f"{split}, which tcgen05 reads none from"
    if unit == "tcgen05" and mma.one_k_major and kernel.layout != "NT":
        return (
            f"tcgen05 reads {mma.name} along K alone, which layout {kernel.layout} "
            "is not"
        )
    return None


PARTED = (
    *((16, 64, 4), (16, 128, 4), (32, 64, 4), (32, 128, 4), (64, 64, 4)),
    *((64, 128, 4), (128, 64, 4), (128, 128, 4)),
)
"""(m, n, warps) of tiles whose K may come in parts, for a search."""


def in_parts(
    schedule: str,
    sizes: Sequence[tuple[int, int, int]],
    lengths: Sequence[int],
    parts: Sequence[int],
    stages: Sequence[int],
) -> Iterator[Tile]:
    """All tiles of such sizes, K blocks, parts of K and stages."""
    every = product(sizes, lengths, parts, stages)
    for (m, n, warps), k, split_k, deep in every:
        yield Tile(m, n, k, GROUP_M, deep, warps, schedule, split_k)
