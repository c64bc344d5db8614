"""Which tile serves which shape: candidates, the model's choice, a short table.

Decides by the model alone; nothing is measured here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of

from gemmgen.model import (
    Product,
    Tile,
    accumulator_registers,
    best_stages,
    default_warps,
    fits,
    instruction,
    predicted_time,
    why_not_compiled,
)
from gemmgen.targets import Target

GROUP_M = 8
"""Tiles a column of the L2 order; between 4 and 16 it hardly matters on square shapes."""

_M_LIMITS = (32, 128, 512, None)
_N_LIMITS = (512, 2048, None)
_BEYOND = 4
"""An open class is judged at this multiple of its last limit."""
_CLASS_K = 4096
_KEEP_WITHIN = 1.05
"""A class takes its neighbour's tile when the model sees less than this between them."""

_SIDES = (16, 32, 64, 128, 256)
_BLOCK_BYTES = 128
"""Bytes of K in a block: a whole cache line of each row."""


@dataclass(frozen=True)
class Row:
    """For GPUs from `architecture` on and shapes up to M and N (None: any), a tile."""

    architecture: int
    m: int | None
    n: int | None
    tile: Tile


def candidates(product: Product, target: Target, spare_registers: int) -> list[Tile]:
    """Tiles worth considering, stages filled in; all fit, none should spill.

    `spare_registers` is what the epilogue needs beside the accumulator.
    """
    found = []
    k = max(16, _BLOCK_BYTES // product.bytes)
    for m, n in product_of(_SIDES, _SIDES):
        tile = Tile(m, n, k, GROUP_M, 2, default_warps(m, n, product))
        registers = accumulator_registers(tile, product)
        # Multiply-add units starve on small patches: each loaded word serves too few.
        fewest = 32 if instruction(tile, product, target) == "fma" else 1
        if not fewest <= registers <= 128 - spare_registers:
            continue
        stages = best_stages(tile, product, target)
        if stages is not None and stages > 1:
            found.append(replace(tile, stages=stages))
    found = [tile for tile in found if not why_not_compiled(tile, product, target)]
    return found


def table(tiles: Sequence[Tile], product: Product, target: Target) -> tuple[Row, ...]:
    """The model's choice among `tiles` for each class of M and N, as few rows as serve."""
    rows: list[Row] = []
    for m_low, m_limit in _classes(_M_LIMITS):
        for n_low, n_limit in _classes(_N_LIMITS):
            sizes = (m_limit or _BEYOND * m_low, n_limit or _BEYOND * n_low, _CLASS_K)
            near = [row.tile for row in rows if (row.m, row.n) != (m_limit, n_limit)]
            tile = _choice(sizes, tiles, near[-1:] + near[-len(_N_LIMITS) :][:1],
                           product, target)  # fmt: skip
            rows.append(Row(target.architecture, m_limit, n_limit, tile))
    return tuple(_merged(rows))


def _classes(limits: Sequence[int | None]) -> Iterable[tuple[int, int | None]]:
    """Each class as (the largest limit below it, its own limit)."""
    known = [limit for limit in limits if limit is not None]
    return zip((1, *known), limits, strict=True)


def _choice(
    sizes: tuple[int, int, int],
    tiles: Sequence[Tile],
    neighbours: Sequence[Tile],
    product: Product,
    target: Target,
) -> Tile:
    """The fastest tile by the model, or a neighbouring class's if that is as good."""
    times = {tile: predicted_time(sizes, tile, product, target) for tile in tiles}
    # Among equals, the tile that loads least for each element of the result.
    best = min(tiles, key=lambda tile: (times[tile], 1 / tile.m + 1 / tile.n))
    for tile in neighbours:
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


def fitting(tiles: Iterable[Tile], product: Product, target: Target) -> list[Tile]:
    """The tiles that the target can hold and Triton can compile for it."""
    return [
        tile
        for tile in tiles
        if fits(tile, product, target) and not why_not_compiled(tile, product, target)
    ]
