"""One output tile, or a part of its K, per program; A and B through descriptors."""

from collections.abc import Iterator

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import (
    registers_by_descriptors,
    ring_barriers,
    ring_memory,
    round_up,
    unit_of,
)
from gemmgen.schedules.parts.schedule import Kernel, Schedule, Size
from gemmgen.schedules.parts.search import (
    PARTED,
    SEARCHED_STAGES,
    in_parts,
    k_blocks,
    not_by_descriptors,
)
from gemmgen.schedules.parts.tile import FILL, Product, Tile

_WHOLE_TILE: Size = (128, 128, 1, 4, 1)
"""In tf32 persistent is as fast with it (NT, 4096^3 and 2048^3, H200)."""
_SQUARE_IN_PARTS: Size = (64, 64, 2, 4, FILL)

_SIZES: tuple[Size, ...] = (
    _WHOLE_TILE,
    (128, 64, 1, 4, FILL),
    (64, 128, 1, 4, 1),
    _SQUARE_IN_PARTS,
    (32, 64, 2, 4, FILL),
    (16, 64, 2, 4, FILL),
)
_FLAT = ((16, 64, 4),)
"""(m, n, warps) where memory is the limit, for longer rows of B at a time."""
_TWO_SUMS = 2**16
"""Bytes of a tile in fp32 that has room for another beside it."""


def why_not(kernel: Kernel) -> str | None:
    """It serves whatever gains by descriptors."""
    return not_by_descriptors(kernel)


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Whole tiles of many rows, parts of those of few.

    Parts spill 8 bytes in tf32x3 for sm_120 (Triton 3.6), of 64 rows with fp32 results
    for sm_100 (3.9).
    """
    mma, left_out = product.mma, set[Size]()
    if mma.one_k_major:
        left_out.add(_WHOLE_TILE)
    if mma.terms > 1 and target.unit == "mma":
        left_out |= {size for size in _SIZES if size[-1] == FILL}
    if product.out_bytes == 4 and target.unit == "tcgen05":
        left_out.add(_SQUARE_IN_PARTS)
    return tuple(size for size in _SIZES if size not in left_out)


def search(product: Product) -> Iterator[Tile]:
    """With K whole, and in as many parts as there are SMs for."""
    stages, lengths = (SEARCHED_STAGES, 6, 4), k_blocks(product, 1, 2)
    yield from in_parts("tma", PARTED, lengths, (1, FILL), stages)
    yield from in_parts("tma", _FLAT, k_blocks(product, 4), (1, FILL), stages)


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring and its barriers, used again for the result, and for the sums in fp32.

    Of those it has two where 128 KiB hold them. Where it feeds mma, A's blocks have
    barriers and so have B's.
    """
    unit, elements = unit_of(tile.n, tile.warps, product, target), tile.m * tile.n
    barriers = ring_barriers(tile, product, unit)
    if unit == "mma":
        barriers += round_up(barriers, 16)
    ring = ring_memory(tile, product, unit, tile.m) + barriers
    sums = 4 * elements if tile.split_k != 1 else 0
    sums *= 2 if sums <= _TWO_SUMS else 1
    return max(ring, elements * product.out_bytes, sums)


def transposes(tile: Tile, product: Product) -> bool:
    """Always: of few rows, the transpose has enough for an asynchronous unit."""
    return True


SCHEDULE = Schedule(
    "tma", "one output tile per program, by descriptors", 20,
    why_not, sizes, search, shared_memory,
    title_of_splits="one output tile, or a split of its K, per program; loads by TMA",
    described=frozenset({"inputs"}), splits=True, transposes=transposes,
    registers=registers_by_descriptors,
)  # fmt: skip
