"""What a tile takes of a target: shared memory, registers, the unit that multiplies.

Pure arithmetic over the tables, nothing measured at run time. Tests compare shared
memory with what Triton takes, over every kernel and a grid of tiles.
"""

import math
from functools import cache

from gemmgen.cost.tile import Product, Tile
from gemmgen.hardware.targets import Target
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.schedules import (
    SCHEDULES,
    described,
    transposes,
)


def block_k(wanted: int, product: Product) -> int:
    """The k of a block that takes so many bytes of a row; units want 16 at least."""
    return max(16, wanted // product.bytes)


def sides(tile: Tile, product: Product) -> tuple[int, int]:
    """Rows and columns of what is multiplied: n and m where that is the transpose."""
    turned = transposes(tile.schedule, product.kind, product.layout)
    return (tile.n, tile.m) if turned else (tile.m, tile.n)


def instruction(tile: Tile, product: Product, target: Target) -> str:
    """The unit that Triton multiplies the tile with: fma, mma, wgmma or tcgen05.

    Asynchronous units take tiles of at least 64 rows and whole warp groups; schedules
    that compute the transpose have n rows.
    """
    if tile.streams or product.mma.unit == "fma":
        return "fma"
    if product.mma.unit == "double":
        return target.fp64_unit
    whole = sides(tile, product)[0] >= 64 and tile.warps % 4 == 0
    return target.unit if whole else "mma"


def why_not_compiled(tile: Tile, product: Product, target: Target) -> str | None:
    """Why Triton cannot compile the tile at all, or None."""
    missing = product.mma.unit == "double" and target.unit == "tcgen05"
    if missing and tile.m >= 64 and tile.warps % 4 == 0:
        return (
            f"Triton compiles fp64 for {target.name} only with m up to 32 or fewer "
            "than 4 warps"
        )
    if tile.specialized and not _shareable(tile, product):
        axis = "n" if transposes(tile.schedule, product.kind, product.layout) else "m"
        return (
            f"{tile.schedule} cuts {axis} into a part of 64, 128 or 256 for every 4 of "
            "the tile's warps, which are 4, 8 or 12"
        )
    return None


def _shareable(tile: Tile, product: Product) -> bool:
    """Whether a tile can be cut into the parts of its consumers."""
    shared, whole = sides(tile, product)
    parted = 4 * shared in (64 * tile.warps, 128 * tile.warps, 256 * tile.warps)
    return tile.warps in (4, 8, 12) and parted and not whole & (whole - 1)


def ring_blocks(tile: Tile, product: Product, target: Target) -> int:
    """K blocks of the ring: a stage each for the asynchronous units.

    The others have one less in shared memory: their last block is in registers.
    """
    if instruction(tile, product, target) in ("wgmma", "tcgen05"):
        return tile.stages
    return max(1, tile.stages - 1)


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """Bytes of shared memory that a program takes, never less than the compiler's.

    The ring of K blocks is used again: the result is reordered there, at most the whole
    tile, and the parts of a split K, of which tma has two where 128 KiB hold them.
    """
    if tile.streams:
        # A row of A is loaded along K, or along M and then reordered.
        row = tile.k if LAYOUTS[product.layout].a_transposed else tile.n * tile.warps
        return 4 * product.mma.accumulator_words * max(row, tile.n * tile.warps)
    if tile.specialized:
        return _specialized_memory(tile, product)
    ring = _ring_memory(tile, product, target)
    if tile.loops:
        return ring + _beside_the_ring(tile, product, target)
    parts = 4 * tile.m * tile.n * (tile.split_k != 1)  # fp32
    parts += parts * (tile.described and parts <= 2**16)
    return max(ring, tile.m * tile.n * product.out_bytes, parts)


def _beside_the_ring(tile: Tile, product: Product, target: Target) -> int:
    """What a persistent epilogue reorders while the next tile's blocks arrive.

    Results whole; operands, which come through pointers, in parts: fitted to what
    compiles, at most 16384 elements on sm_90 and a quarter of the tile on sm_100.
    """
    elements, side = tile.m * tile.n, max(tile.m, tile.n)
    part = elements // 4 if target.unit == "tcgen05" else min(elements, 16384)
    wide = side >= threads(tile) and product.vector_bytes
    width = max(4, product.vector_bytes) if wide else 0
    return elements * product.result_bytes + part * product.matrix_bytes + side * width


def _ring_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring of K blocks of A and B, and its barriers.

    A product split in three keeps two parts of its right block instead of the last
    stage. Descriptors need a barrier a block, two where tf32 is turned over for wgmma
    and where tma feeds mma, A's and B's. tcgen05 adds 8 bytes for a barrier, 16 when
    loads overlap.
    """
    unit, row = instruction(tile, product, target), SCHEDULES[tile.schedule]
    stage = (tile.m + tile.n) * tile.k * product.bytes
    ring = ring_blocks(tile, product, target) * stage
    if unit in ("wgmma", "tcgen05") and product.mma.terms > 1:
        ring += 2 * sides(tile, product)[1] * tile.k * product.bytes - stage
    if unit == "tcgen05":
        ring += 8 if tile.stages == 1 or product.mma.terms > 1 else 16
    if row.described:
        turned = product.mma.k_major and product.layout != "NT"
        barriers = 8 * tile.stages * (2 if turned else 1)
        if unit == "mma":
            barriers = 8 * ring_blocks(tile, product, target)
            barriers += 0 if tile.loops else _up(barriers, 16)
        ring += _up(barriers, 16) if unit == "tcgen05" else barriers
    return ring


def _specialized_memory(tile: Tile, product: Product) -> int:
    """Of a specialized kernel: ring, barriers, consumers' tiles and what is passed."""
    stage = (tile.m + tile.n) * tile.k * product.bytes
    barriers = 2 * _up(8 * tile.stages, 16) + (32 if tile.takes_turns else 0)
    passed = 144 + 32 * product.passed + (64 if product.matrix_bytes else 0)
    passed += 16 * (tile.consumers - 2)
    stores = "results" in described(tile.schedule, product.kind)
    each = product.tile_bytes if stores else product.matrix_bytes
    tiles = tile.m * tile.n * tile.consumers // tile.warpgroups * each
    return tile.stages * stage + tiles + barriers + passed


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def spills(tile: Tile, product: Product) -> bool:
    """Whether a tile is known to spill with some Triton from 3.6 to 3.9, for sm_90.

    Parts of K leave too few registers beside a large accumulator: split_k with 128x128
    and 4 warps spills 48 bytes. Multiply-adds of fp32 hold a block too, 8 to 16 bytes
    too much with 128 bytes of K; fp64 spills 16 with 128 words.
    """
    words = accumulator_registers(tile, product)
    if product.mma.unit == "fma":
        return tile.k * product.bytes > 64 and tile.m * tile.n > 32 * 32
    if product.mma.unit == "double":
        return words > 64
    return not tile.described and tile.split_k != 1 and words > 64


def fits(tile: Tile, product: Product, target: Target) -> bool:
    """Whether a block may have the shared memory that the tile takes, in any Triton."""
    needed = shared_memory(tile, product, target)
    if product.mma.terms > 1 and instruction(tile, product, target) == "wgmma":
        needed += sides(tile, product)[0] * tile.k * product.bytes  # 3.8 alone
    return needed <= target.shared_per_block


def accumulator_registers(tile: Tile, product: Product) -> int:
    """32-bit registers of the accumulator in each thread; a consumer has four warps."""
    if tile.specialized:
        return tile.m * tile.n // (128 * tile.warpgroups)
    return math.ceil(
        tile.m * tile.n * product.mma.accumulator_words / (32 * tile.warps)
    )


def registers(tile: Tile, product: Product) -> int:
    """32-bit registers of a thread: what the compiler gives, without an epilogue.

    Beside the accumulator, kernels that load through descriptors take 26, exactly in
    every tile compiled; pointers and masks take about 72 (Triton 3.6, sm_90).
    """
    if tile.specialized:
        # Of the launch; consumers then take 240 or 160, the producer 24.
        return 168 if tile.consumers == 2 else 128
    if tile.streams:  # the products, summed last, four blocks loaded, addresses
        return tile.n * tile.k // threads(tile) + 56
    beside = 26 if tile.described else 72
    return min(255, accumulator_registers(tile, product) + beside)


def threads(tile: Tile) -> int:
    """Threads of a program; a specialized one has consumers and a producer."""
    if tile.specialized:
        return 128 * (tile.consumers + 1)
    return 32 * tile.warps


@cache
def resident(tile: Tile, product: Product, target: Target) -> int:
    """Programs that fit on one SM at a time, one at least."""
    return max(1, min(residents(tile, product, target).values()))


def residents(tile: Tile, product: Product, target: Target) -> dict[str, int]:
    """Programs that fit on one SM by what each needs of it alone."""
    bytes_each = shared_memory(tile, product, target) + target.reserved_per_block
    return {
        "shared memory": target.shared_per_sm // bytes_each,
        "registers": 65536 // (registers(tile, product) * threads(tile)),
        "threads": target.threads_per_sm // threads(tile),
        "programs": target.blocks_per_sm,
    }
