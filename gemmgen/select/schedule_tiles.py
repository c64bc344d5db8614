"""The tiles of the fast schedules that are worth considering, as far as they fit."""

from dataclasses import replace

from gemmgen.cost.resources import instruction, spills, why_not_compiled
from gemmgen.cost.split_product import line_bytes, most_accumulator_registers
from gemmgen.cost.time import best_stages
from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, schedule_of
from gemmgen.schedules.parts.consumers import multiplies_in_one
from gemmgen.schedules.parts.memory import (
    MOST_ACCUMULATED,
    accumulator_registers,
    block_k,
)
from gemmgen.schedules.parts.tile import GROUP_M, LINE_BYTES, Product, Tile

_FMA = (32, 32)
"""m, n of the tile for multiply-adds; with more some layout spills, for the block of A
and B is in registers too. Tensor cores take larger ones."""


def schedule_tiles(
    schedule: str, product: Product, target: Target, live_tiles: int
) -> list[Tile]:
    """The tiles of a schedule that are worth considering; all fit, none should spill.

    `live_tiles` is how many tiles the epilogue keeps beside the accumulator.
    """
    found, row = [], SCHEDULES[schedule]
    line = LINE_BYTES if row.memory_bound else line_bytes(product, target)
    for m, n, blocks, warps, split_k in row.sizes(product, target):
        if not row.memory_bound and _one_line(m, product, target):
            blocks = 1
        k = block_k(blocks * line, product)
        tile = Tile(m, n, k, GROUP_M, 2, warps, schedule, split_k)
        if not _multiplied(tile, product, target):
            continue
        stages = best_stages(tile, product, target)
        if stages and holds(tile, product, target, live_tiles):
            deep = replace(tile, stages=stages)
            found += [deep] * (not spills(deep, product))
    return found


def _multiplied(tile: Tile, product: Product, target: Target) -> bool:
    """Whether the tile is for the unit that multiplies it, and can be compiled."""
    row = schedule_of(tile)
    by_unit = instruction(tile, product, target) == "fma"
    fma = by_unit and not (row.memory_bound or row.by_fma)
    alike = row.by_fma or fma == ((tile.m, tile.n) == _FMA)
    return alike and not why_not_compiled(tile, product, target)


def _one_line(m: int, product: Product, target: Target) -> bool:
    """Whether two cache lines of K spill 8 or 16 bytes in some layout (Triton 3.9)."""
    return product.mma.terms > 1 or (target.unit == "tcgen05" and m >= 64)


def holds(tile: Tile, product: Product, target: Target, live_tiles: int) -> bool:
    """Whether a thread's registers hold the accumulator beside all else.

    The parts of a product split in three live there too. Sums of sides in one may be
    larger, and beside any epilogue, which has a piece at a time; where K comes in parts
    some bytes would spill.
    """
    own = accumulator_registers(tile, product)
    if own <= most_accumulator_registers(product, target):
        return True
    schedule = schedule_of(tile)
    few = live_tiles <= schedule.spare_tiles(product)
    if multiplies_in_one(tile, product):
        most = schedule.most_accumulated(tile, product)
        return own <= most and (few or tile.split_k == 1)
    return product.mma.terms == 1 and own <= MOST_ACCUMULATED and few
