"""The tiles of the fallback schedule that are worth considering."""

from dataclasses import replace

from gemmgen.cost.resources import (
    instruction,
    why_not_compiled,
)
from gemmgen.cost.split_product import line_bytes, most_accumulator_registers
from gemmgen.cost.time import best_stages
from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import (
    MOST_ACCUMULATED,
    accumulator_registers,
    block_k,
)
from gemmgen.schedules.parts.tile import GROUP_M, LINE_BYTES, Product, Tile

_FMA_BLOCK_BYTES = LINE_BYTES // 2
"""Bytes of K in a block of multiply-adds, which keep the block of A and B in registers.

With 128 both tiles spill 8 or 16 bytes in some layout (64x64 under Triton 3.7 and 3.9,
128x128 under 3.9, more beside gelu); with 64 neither does. The model sees no difference
on large shapes; an H200 takes 4 % (NN) or 13 % (NT) longer with 128x128 for 4096 cubed.
"""

_ASYNCHRONOUS = (
    *((64, 64, 4), (64, 128, 4)),
    *((128, 128, 4), (128, 128, 8), (128, 256, 8)),
)
_CANDIDATES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "fma": ((64, 64, 8), (128, 128, 8)),
    "mma": ((16, 64, 4), (64, 64, 4), (128, 128, 8)),
    "wgmma": _ASYNCHRONOUS,
    "tcgen05": _ASYNCHRONOUS,
    "double": ((32, 32, 4), (64, 64, 8)),
}
"""(m, n, warps) by unit, but for fp64: none spills in any layout, Triton 3.6 to 3.9."""


def fallback_tiles(
    product: Product, target: Target, spare_registers: int, widest: int
) -> list[Tile]:
    """Tiles worth considering, stages filled in; all fit, none should spill.

    `spare_registers` is what the epilogue needs beside the accumulator, `widest` the
    largest n.
    """
    found = []
    for name, shapes in _CANDIDATES.items():
        line = _FMA_BLOCK_BYTES if name == "fma" else line_bytes(product, target)
        k = block_k(line, product)
        for m, n, warps in shapes:
            tile = Tile(m, n, k, GROUP_M, 2, warps)
            unit = instruction(tile, product, target)
            if unit == "tcgen05" and product.mma.terms > 1 and n > m:
                continue  # spills 16 bytes with Triton 3.9
            if n > widest or name != (
                "double" if product.mma.unit == "double" else unit
            ):
                continue
            asynchronous = unit in ("wgmma", "tcgen05")
            # The parts of a split product live in registers beside the accumulator.
            most = most_accumulator_registers(product, target)
            if asynchronous and product.mma.terms == 1:
                most = MOST_ACCUMULATED
            if accumulator_registers(tile, product) > min(
                most, MOST_ACCUMULATED - spare_registers
            ):
                continue
            stages = best_stages(tile, product, target)
            if name == "fma" and m == 128 and product.layout == "TT" and stages:
                stages = min(stages, 2)  # 3 spill 16 bytes for sm_80 with Triton 3.9
            if stages is not None and not why_not_compiled(tile, product, target):
                found.append(replace(tile, stages=stages))
    return found
