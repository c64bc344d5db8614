"""Sizes for which the choice of a tile is tried: at the bounds of rows, and drawn."""

import math
import random
from collections.abc import Iterator
from typing import Any

from gemmgen.schedules import SCHEDULES

MOST = 2**31 - 1
"""Of sizes; of programs along the first axis of a grid."""
_MOST_ELEMENTS = 2**38
"""Of a matrix: more fits no GPU."""
_DRAWN = 30
"""Sizes that are drawn for each GPU, beside those at the bounds of rows."""
_WAVES, _MOST_WAVES = 4, 4
"""Sizes that are drawn for each row which asks for full waves, or fills them with parts
of K, and of how many."""
_AGAIN = 8
"""How often sizes at the bounds of a layer are tried: of the GPUs and tensors that are
drawn for them many have no part in it."""
SMS = (1, 16, 78, 108, 132, 148, 192)
"""How many a GPU may have."""
_NARROW = 8
"""Columns that a descriptor can describe, whatever their type."""
_ALIGNED = 64
"""A step of sizes after which descriptors describe what they described before."""
Sizes = tuple[int, int, int]
"""M, N, K."""


def sizes_for(table: Any, draw: random.Random) -> Iterator[Sizes]:
    """Sizes at the corners of each row, one beyond along each side, and drawn ones."""
    for row in table:
        if row.from_rows:
            yield from _of_layer(row, draw)
        corner = [MOST if size == math.inf else int(size) for size in row[2:5]]
        yield _whole(corner, draw)
        for axis, size in enumerate(row[2:5]):
            if size != math.inf:
                beyond = list(corner)
                beyond[axis] += 1
                yield _whole(beyond, draw)
        if row.waves or row.split_k < 0:
            yield from _few_waves(row, draw)
    for _ in range(_DRAWN):
        yield _whole([_drawn(draw, MOST) for _ in range(3)], draw)
    for _ in range(_DRAWN // 3):  # rows of an odd multiple of 8 bytes among them
        yield _whole([4 * _drawn(draw, 2**20) for _ in range(3)], draw)
    for axis in range(3):
        yield _whole([0 if i == axis else _drawn(draw, MOST) for i in range(3)], draw)
    for most in (MOST + 1 - _NARROW, MOST + 1):  # coordinates of descriptors end there
        yield most, _NARROW, _NARROW
        yield _NARROW, most, _NARROW
    # A program for every few lines: beyond, the last row may have tiles of more lines.
    streams = [row for row in table if SCHEDULES[row.schedule].memory_bound]
    high = MOST * max(row.m for row in (*streams, table[-1]))
    wide = MOST * max(row.n for row in (*streams, table[-1]))
    for row in streams:
        for more in (0, 1):
            yield 1, min(MOST * row.n + more, wide), 1
            yield min(MOST * row.m + more, high), 1, 1


def _of_layer(row: Any, draw: random.Random) -> Iterator[Sizes]:
    """The first and last rows of a layer's range, those around it, and other layers."""
    least, most, n, k = int(row.from_rows), *map(int, row[2:5])
    for first, last in ((1, least), (least, most), (most, 2 * most)):
        yield draw.randint(first, last), n, k
    for _ in range(_AGAIN):
        for m in (least - 1, least, most, most + 1):
            yield m, n, k
        for step in (-_ALIGNED, _ALIGNED):
            yield least, max(1, n + step), k
            yield least, n, max(1, k + step)


def _few_waves(row: Any, draw: random.Random) -> Iterator[Sizes]:
    """Sizes of so few tiles that the last wave may well be too empty, or K in parts."""
    for _ in range(_WAVES):
        tiles = int(2 ** draw.uniform(0, math.log2(_MOST_WAVES * max(SMS))))
        high = draw.randint(1, tiles)
        found = (
            row.m * high,
            row.n * math.ceil(tiles / high),
            16 * draw.randint(1, 512),
        )
        bounds = zip(found, row[2:5], strict=True)
        yield _whole([int(min(size, most)) for size, most in bounds], draw)


def _drawn(draw: random.Random, most: int) -> int:
    """A size; each power of two is as likely as any other."""
    return min(most, int(2 ** draw.uniform(0, 31)))


def _whole(sizes: list[int], draw: random.Random) -> Sizes:
    """Such sizes whose matrices can exist: the largest shrink, in a drawn order."""
    found = list(sizes)
    for axis in draw.sample(range(3), 3):
        others = [size for i, size in enumerate(found) if i != axis]
        if max(others) * found[axis] > _MOST_ELEMENTS:
            found[axis] = _drawn(draw, max(1, _MOST_ELEMENTS // max(others)))
    m, n, k = found
    return m, n, k
