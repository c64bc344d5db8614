"""Which tile serves which shape: candidates, the model's choice, a short table.

Decides by the model alone; nothing is measured here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmgen.model import (
    Product,
    Tile,
    accumulator_registers,
    best_stages,
    instruction,
    predicted_time,
    why_not_compiled,
)
from gemmgen.targets import Target

GROUP_M = 8
"""Tiles a column of the L2 order; 4 to 16 hardly differ on square shapes."""

_M_LIMITS = (64, 512, None)
_N_LIMITS = (1024, None)
_BEYOND = 4
"""An open class is judged at this multiple of its last limit."""
_CLASS_K = 4096
_KEEP_WITHIN = 1.05
"""A class takes a larger one's tile when the model sees less than this between them."""

_BLOCK_BYTES = 128
"""Bytes of K in a block: a whole cache line of each row."""
_FMA_BLOCK_BYTES = 64
"""The same for multiply-adds, which keep the block of A and B in registers.

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
    "fp64": ((32, 32, 4), (64, 64, 8)),
}
"""(m, n, warps) by unit, but for fp64: none spills in any layout, Triton 3.6 to 3.9."""


@dataclass(frozen=True)
class Row:
    """For GPUs from `architecture` on and sizes up to M, N, K (None: any), a tile."""

    architecture: int
    m: int | None
    n: int | None
    tile: Tile
    k: int | None = None


def candidates(
    product: Product, target: Target, spare_registers: int, widest: int
) -> list[Tile]:
    """Tiles worth considering, stages filled in; all fit, none should spill.

    `spare_registers` is what the epilogue needs beside the accumulator, `widest` the
    largest n.
    """
    found = []
    for name, shapes in _CANDIDATES.items():
        block = _FMA_BLOCK_BYTES if name == "fma" else _BLOCK_BYTES
        k = max(16, block // product.bytes)
        for m, n, warps in shapes:
            tile = Tile(m, n, k, GROUP_M, 2, warps)
            unit = instruction(tile, product, target)
            if n > widest or name != ("fp64" if product.kind == "fp64" else unit):
                continue
            asynchronous = unit in ("wgmma", "tcgen05")
            # The parts of a split product live in registers beside the accumulator.
            most = 128 if asynchronous and product.kind != "tf32x3" else 64
            if accumulator_registers(tile, product) > min(most, 128 - spare_registers):
                continue
            stages = best_stages(tile, product, target)
            if stages is not None and not why_not_compiled(tile, product, target):
                found.append(replace(tile, stages=stages))
    return found


def table(tiles: Sequence[Tile], product: Product, target: Target) -> tuple[Row, ...]:
    """The model's choice among `tiles` for each class of M and N, in few rows."""
    rows: list[Row] = []
    for m_low, m_limit in reversed(_classes(_M_LIMITS)):
        for n_low, n_limit in reversed(_classes(_N_LIMITS)):
            sizes = (m_limit or _BEYOND * m_low, n_limit or _BEYOND * n_low, _CLASS_K)
            larger = [row.tile for row in rows[: len(_N_LIMITS)]]
            tile = _choice(sizes, tiles, larger, product, target)
            rows.insert(0, Row(target.architecture, m_limit, n_limit, tile))
    return tuple(_merged(rows))


def _classes(limits: Sequence[int | None]) -> list[tuple[int, int | None]]:
    """Each class as (the largest limit below it, its own limit)."""
    known = [limit for limit in limits if limit is not None]
    return list(zip((1, *known), limits, strict=True))


def _choice(
    sizes: tuple[int, int, int],
    tiles: Sequence[Tile],
    larger: Sequence[Tile],
    product: Product,
    target: Target,
) -> Tile:
    """The fastest tile by the model, or that of a larger class if it is as good."""
    times = {tile: predicted_time(sizes, tile, product, target) for tile in tiles}
    fastest = min(times.values())
    equals = [tile for tile in tiles if times[tile] <= 1.02 * fastest]
    # Among equals, what loads least for each element, then what has fewer warps.
    best = min(equals, key=lambda tile: (1 / tile.m + 1 / tile.n, tile.warps))
    for tile in larger:
        if times[tile] <= _KEEP_WITHIN * times[best]:
            return tile
    return best


def _merged(rows: Sequence[Row]) -> list[Row]:
    """Drop every row without which each class still finds its tile."""
    kept = list(rows)
    for row in rows[:-1]:
        fewer = [other for other in kept if other is not row]
        if all(_serving(fewer, one) == one.tile for one in rows):
            kept = fewer
    return kept


def _serving(rows: Sequence[Row], shape_class: Row) -> Tile:
    """The tile of the first row that holds the largest shape of a class."""
    return next(
        row.tile
        for row in rows
        if _holds(row.m, shape_class.m) and _holds(row.n, shape_class.n)
    )


def _holds(limit: int | None, size: int | None) -> bool:
    return limit is None or (size is not None and size <= limit)
