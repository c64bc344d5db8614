"""A part of the K of one output tile per program, through pointers."""

from collections.abc import Iterator

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import (
    accumulator_registers,
    ring_memory,
    unit_of,
)
from gemmgen.schedules.parts.schedule import Kernel, Schedule, Size
from gemmgen.schedules.parts.search import PARTED, SEARCHED_STAGES, in_parts, k_blocks
from gemmgen.schedules.parts.tile import FILL, Product, Tile

_IN_MANY_PARTS: Size = (32, 64, 1, 4, 2 * FILL)
_APART = (
    *((16, 32, 4), (32, 32, 4)),
    *((64, 64, 8), (64, 128, 8), (128, 64, 8), (128, 128, 8)),
)
"""(m, n, warps) for elements that come singly: threads hold few, and parts are many."""


def why_not(kernel: Kernel) -> str | None:
    """It serves what a sum in fp32 is exact enough for."""
    if kernel.product.rights > 1:
        return "the parts of a split K meet in one sum, of one right side"
    if kernel.product.mma.accumulator_words > 1:
        kind = kernel.product.kind
        return f"the parts of a split K are summed in fp32, which {kind} exceeds"
    return None


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Small tiles; the smallest is the only one for multiply-adds.

    32 rows in many parts spill 8 bytes in tf32 for sm_90 and in bf16 with gelu for
    sm_80 (Triton 3.6), two cache lines of K in tf32 for sm_90 (3.6).
    """
    lines = 1 if product.mma.k_major else 2
    found: tuple[Size, ...] = (
        (64, 64, 1, 4, FILL),
        (64, 64, 1, 4, 2 * FILL),
        _IN_MANY_PARTS,
        (16, 64, lines, 4, FILL),
        (32, 32, 1, 4, FILL),
    )
    if product.mma.one_k_major or target.unit == "mma":
        return tuple(size for size in found if size != _IN_MANY_PARTS)
    return found


def search(product: Product) -> Iterator[Tile]:
    """In up to four times as many parts as there are SMs for."""
    parts, stages = (1, FILL, 2 * FILL, 4 * FILL), (SEARCHED_STAGES, 4)
    lengths = k_blocks(product, 0.5, 1, 2)
    yield from in_parts("split_k", PARTED + _APART, lengths, parts, stages)


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring of K blocks, used again for the result, and for the sums in fp32."""
    unit, elements = unit_of(tile.m, tile.warps, product, target), tile.m * tile.n
    ring = ring_memory(tile, product, unit, tile.n)
    sums = 4 if tile.split_k != 1 else 0
    return max(ring, elements * product.out_bytes, elements * sums)


def spills(tile: Tile, product: Product) -> bool:
    """Parts of K leave too few registers beside a large accumulator.

    128x128 with 4 warps spills 48 bytes with some Triton from 3.6 to 3.9, for sm_90.
    """
    return tile.split_k != 1 and accumulator_registers(tile, product) > 64


SCHEDULE = Schedule(
    "split_k", "K cut into parts, reduced in order", 40,
    why_not, sizes, search, shared_memory,
    splits=True, spills=spills,
)  # fmt: skip
