"""The tiles of the fast schedules that are worth considering, as far as they fit."""

from dataclasses import replace

from gemmgen.cost.resources import accumulator_registers, block_k, instruction
from gemmgen.cost.split_product import line_bytes, most_accumulator_registers
from gemmgen.cost.tile import FILL, GROUP_M, LINE_BYTES, Product, Tile
from gemmgen.cost.time import best_stages
from gemmgen.hardware.targets import Target
from gemmgen.schedules import MODULES
from gemmgen.tables.schedules import SCHEDULES

_FMA = (32, 32)
"""m, n of the tile for multiply-adds; with more some layout spills, for the block of A
and B is in registers too. Tensor cores take larger ones."""


def specials(
    schedule: str, product: Product, target: Target, burden: int
) -> list[Tile]:
    """The tiles of a schedule that are worth considering; all fit, none should spill.

    `burden` is that of the epilogue, in tiles beside the accumulator.
    """
    found, streams = [], SCHEDULES[schedule].streams
    line = LINE_BYTES if streams else line_bytes(product, target)
    for m, n, blocks, warps, split_k in MODULES[schedule].sizes(product):
        if not streams and _one_line(schedule, m, product, target):
            blocks = 1
        if _parts_spill(schedule, m, split_k, product, target):
            continue
        k = block_k(blocks * line, product)
        tile = Tile(m, n, k, GROUP_M, 1, warps, schedule, split_k)
        fma = not streams and instruction(tile, product, target) == "fma"
        if fma != ((m, n) == _FMA):
            continue
        stages = best_stages(tile, product, target)
        if stages and _holds(tile, product, target, burden):
            found.append(replace(tile, stages=stages))
    return found


def _parts_spill(
    schedule: str, m: int, split_k: int, product: Product, target: Target
) -> bool:
    """Whether parts of K spill 8 bytes in some kernel.

    32 rows in many parts do in tf32 for sm_90 and in bf16 with gelu for sm_80 (Triton
    3.6), 64 in tma with fp32 results for sm_100 (3.9), tf32x3 in tma for sm_120 (3.6).
    """
    described = SCHEDULES[schedule].described
    if product.mma.terms > 1 and described and target.unit == "mma":
        return split_k == FILL
    if (m, split_k) == (32, 2 * FILL):
        return product.mma.one_k_major or target.unit == "mma"
    wide = product.out_bytes == 4 and target.unit == "tcgen05"
    return bool(wide and described and (m, split_k) == (64, FILL))


def _one_line(schedule: str, m: int, product: Product, target: Target) -> bool:
    """Whether two cache lines of K spill 8 or 16 bytes in some layout.

    Triton 3.9, but for tf32 in split_k for sm_90: Triton 3.6.
    """
    row, mma = SCHEDULES[schedule], product.mma
    if mma.terms > 1 or (mma.k_major and row.splits and not row.described):
        return True
    return target.unit == "tcgen05" and m >= 64


def _holds(tile: Tile, product: Product, target: Target, burden: int) -> bool:
    """Whether a thread's registers hold the accumulator beside all else.

    The parts of a product split in three live there too. The consumers of a specialized
    kernel compute no addresses, which leaves them more.
    """
    most = most_accumulator_registers(product, target)
    if accumulator_registers(tile, product) <= most:
        return True
    tiles = 2 if tile.specialized else 1
    pointers = tile.loops and not tile.specialized and product.matrix_bytes > 0
    return product.mma.terms == 1 and burden + pointers <= tiles
