"""What programs of most schedules take of a target: the unit, shared memory, registers.

Pure arithmetic over the tables, nothing measured at run time. Tests compare shared
memory with what Triton takes, over every kernel and a grid of tiles.
"""

import math

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.tile import Product, Tile

_BESIDE_POINTERS, _BESIDE_DESCRIPTORS = 72, 26
"""Registers beside the accumulator, without an epilogue (Triton 3.6, sm_90): about so
many for pointers and masks, exactly so many in every tile compiled for descriptors."""

MOST_ACCUMULATED = 128
"""32-bit registers of a thread's sums; the rest is for addresses and the epilogue. Two
sums of 128x128 in 4 warps, 256, spill 520 bytes (bf16, tma, Triton 3.6, sm_90)."""


def block_k(wanted: int, product: Product) -> int:
    """The k of a block that takes so many bytes of a row; units want 16 at least."""
    return max(16, wanted // product.bytes)


def unit_of(rows: int, warps: int, product: Product, target: Target) -> str:
    """The unit that Triton multiplies so many rows with: fma, mma, wgmma or tcgen05.

    Asynchronous units take tiles of at least 64 rows and whole warp groups.
    """
    if product.mma.unit == "fma":
        return "fma"
    if product.mma.unit == "double":
        return target.fp64_unit
    return target.unit if rows >= 64 and warps % 4 == 0 else "mma"


def ring_blocks(stages: int, unit: str) -> int:
    """K blocks of the ring: a stage each for the asynchronous units.

    The others have one less in shared memory: their last block is in registers.
    """
    return stages if unit in ("wgmma", "tcgen05") else max(1, stages - 1)


def ring_memory(tile: Tile, product: Product, unit: str, columns: int) -> int:
    """Bytes of the ring of K blocks of A and B, as pointers fill it.

    A product split in three keeps two parts of each right block, of so many `columns`,
    instead of the last stage. tcgen05 adds 8 bytes for a barrier of each product, 16
    when loads overlap.
    """
    stage = product.rows(tile.m, tile.n) * tile.k * product.bytes
    ring = ring_blocks(tile.stages, unit) * stage
    if unit in ("wgmma", "tcgen05") and product.mma.terms > 1:
        ring += 2 * product.rights * columns * tile.k * product.bytes - stage
    if unit == "tcgen05":
        alone = tile.stages == 1 or product.mma.terms > 1
        ring += product.rights * (8 if alone else 16)
    return ring


def ring_barriers(tile: Tile, product: Product, unit: str) -> int:
    """Bytes of the barriers of a ring that descriptors fill.

    One a block, two where tf32 is turned over for wgmma.
    """
    if unit == "mma":
        return 8 * ring_blocks(tile.stages, unit)
    turned = product.mma.k_major and product.layout != "NT"
    barriers = 8 * tile.stages * (2 if turned else 1)
    return round_up(barriers, 16) if unit == "tcgen05" else barriers


def round_up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is no less than `size`."""
    return -(-size // unit) * unit


def accumulator_registers(tile: Tile, product: Product) -> int:
    """32-bit registers of the accumulators in each thread."""
    words = product.rights * product.mma.accumulator_words
    return math.ceil(tile.m * tile.n * words / (32 * tile.warps * tile.ctas))


def registers_by_pointers(tile: Tile, product: Product) -> int:
    """32-bit registers of a thread that loads A and B through pointers."""
    return min(255, accumulator_registers(tile, product) + _BESIDE_POINTERS)


def registers_by_descriptors(tile: Tile, product: Product) -> int:
    """The same where A and B come through descriptors."""
    return min(255, accumulator_registers(tile, product) + _BESIDE_DESCRIPTORS)


def threads_of(tile: Tile) -> int:
    """Threads of a program, whose warps all do the same."""
    return 32 * tile.warps
