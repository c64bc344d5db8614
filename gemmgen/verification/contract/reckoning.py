"""What a table's rows mean for a call, reckoned apart from what launchers share."""

import math
from typing import Any

from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.table import Row
from gemmgen.verification.contract.choice_sizes import Sizes

_STEP = 8
"""Rows that predictions do not tell apart."""
_LINE, _SECTOR = 128, 32
"""Bytes."""


def predicted(
    row: Row, product: Product, sizes: Sizes, apart: tuple[int, int], sms: int
) -> dict[Tile, float]:
    """Microseconds by a row's costs, of every tile that its own stands for.

    Rows of A and rows of B lie so many bytes `apart`.
    """
    return {
        tile: _microseconds(row, tile, product, sizes, apart, sms)
        for tile in row.tiles(product)
    }


def _microseconds(
    row: Row,
    tile: Tile,
    product: Product,
    sizes: Sizes,
    apart: tuple[int, int],
    sms: int,
) -> float:
    """Those of one of these, by the four digits that a table has."""
    assert row.timed is not None
    m, n, k = sizes
    m = math.ceil(m / _STEP) * _STEP
    timed = row.timed
    rates = {
        name: float(f"{value:.4g}") for name, value in timed.rates._asdict().items()
    }
    block, once, launch, resident = (float(f"{value:.4g}") for value in timed[:-1])
    block *= row.tile.share(tile)
    high, wide = math.ceil(m / tile.m), math.ceil(n / tile.n)
    parts = parts_of(tile, high * wide, k, sms // tile.ctas)
    turns = math.ceil(high * wide * parts / (sms // tile.ctas))
    others = turns - math.ceil(turns / resident)
    loop = math.ceil(math.ceil(k / tile.k) / parts) * block + once
    loop *= turns - others + others * rates["beside"]
    stored = max(product.out_bytes, product.tile_bytes)
    once_each = product.bytes * k * (m + n) + stored * m * n
    inside = m * wide + n * high
    blocks = high * wide * (tile.m + tile.n)
    memory = rates["wait"] + once_each / rates["memory"]
    slow = m * wide * _slowness(apart[0], rates) + n * high * _slowness(apart[1], rates)
    through = slow / rates["l2"] + (blocks - inside) / rates["zeros"]
    drawn = high * wide * tile.m * tile.n * k / rates["powered"]
    drawn += product.bytes * k * inside / rates["carried"]
    slowed = max(0.0, drawn - rates["cool"])
    cubes = (loop, memory, product.bytes * k * through, slowed)
    found: float = launch + sum(each**3 for each in cubes) ** (1 / 3)
    if parts > 1:
        found += rates["meet"] + 4 * tile.m * tile.n * parts / rates["sums"]
    return found


def _slowness(step: int, rates: dict[str, float]) -> float:
    """How many times as long as those that fill lines rows take so many bytes apart.

    The mean of all: some begin where a line does, some in a line, some in a sector.
    """
    found = 0.0
    for row in range(_LINE):
        begin = step * row % _LINE
        longer = rates["sectors" if begin % _SECTOR else "lines"]
        found += (longer if begin else 1.0) / _LINE
    return found


def tiles_of(tile: Any, m: int, n: int) -> int:
    """How many tiles so many rows and columns have."""
    tiles: int = math.ceil(m / tile.m) * math.ceil(n / tile.n)
    return tiles


def parts_of(tile: Any, tiles: int, k: int, sms: int) -> int:
    """In how many parts K comes: as many as there are SMs for, of four blocks at least.

    Of programs that go from tile to tile, in whole turns of all tiles.
    """
    if tile.split_k > 0:
        return int(tile.split_k)
    times = -tile.split_k
    most = math.ceil(k / (4 // times * tile.k))
    here = times * sms // tiles
    if SCHEDULES[tile.schedule].persistent:
        here = sms // math.ceil(tiles / times)
    parts: int = max(1, min(here, most))
    return parts
