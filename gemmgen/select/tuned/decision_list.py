"""From what each tile takes at many shapes to a short table: which tile serves which.

The table is a decision list: the first rule whose limits hold a shape gives its tile.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import add, itemgetter
from typing import Any

from gemmgen.cost.time import Sizes
from gemmgen.schedules.parts.tile import Tile

Limits = tuple[float, float, float]

ANY = float("inf")

CANNOT = 9.0
"""The loss of a tile without a time at a shape: like one ten times as slow."""

_STEEP = 4.0
"""How much more large losses count: 25 % slower counts twice as much as it is."""


@dataclass(frozen=True)
class Point:
    """A shape, what each tile takes there, in any unit, and how much the shape counts.

    A tile without a time cannot serve it.
    """

    sizes: Sizes
    times: dict[Tile, float]
    weight: float = 1.0


@dataclass(frozen=True)
class Rule:
    """Sizes up to `limits` are served by `tile`; if `full`, if they fill its waves."""

    limits: Limits
    tile: Tile
    full: bool = False


@dataclass(frozen=True)
class Grid:
    """Where classes of M, N and K end; the last of each is ANY."""

    m: tuple[float, ...]
    n: tuple[float, ...]
    k: tuple[float, ...]

    @property
    def axes(self) -> tuple[tuple[float, ...], ...]:
        """The limits along M, N and K."""
        return self.m, self.n, self.k

    def cell(self, sizes: Sizes) -> tuple[int, ...]:
        """The class of a shape."""
        return tuple(map(bisect_left, self.axes, sizes))


def decide(points: Sequence[Point], grid: Grid, price: float) -> list[Rule]:
    """The rules that lose least over all points, a rule counting as a loss of `price`.

    M is cut into ranges of classes, the range of each into ranges of N, those into
    ranges of K: the best of all such divisions. What a tile loses at a point is how
    much longer it takes than the fastest, large losses counting more. The last rule
    holds every shape.
    """
    tiles = list(dict.fromkeys(tile for point in points for tile in point.times))

    def for_m(planes: _Losses) -> _Division:
        return _divided(planes, for_n)

    def for_n(lines: _Losses) -> _Division:
        return _divided(lines, cheapest)

    def cheapest(sums: _Losses) -> _Division:
        least = min(sums)
        return least + price, sums.index(least)

    _, ranges = _divided(_losses(points, tiles, grid), for_m)
    return [
        Rule((grid.m[m], grid.n[n], grid.k[k]), tiles[tile])
        for tile, (m, n, k) in _needed(list(_rows(ranges)))
    ]


_Losses = list[Any]
"""For each class along an axis, lists along the next; innermost, numbers by tile."""
_Row = tuple[int, tuple[int, ...]]
"""The number of a tile, and the last class that it serves along each axis."""


_Division = tuple[float, Any]
"""The loss of a division, each row counted as one too, and its ranges: those before
the last, the last class of that, and its own division; None before the first. Inside
the last axis, the number of a tile."""


def _losses(points: Sequence[Point], tiles: Sequence[Tile], grid: Grid) -> _Losses:
    """What each tile loses in each class, over all points in it."""
    m, n, k = map(len, grid.axes)
    losses = [
        [[[0.0] * len(tiles) for _ in range(k)] for _ in range(n)] for _ in range(m)
    ]
    for point in points:
        at_m, at_n, at_k = grid.cell(point.sizes)
        cell, fastest = losses[at_m][at_n][at_k], min(point.times.values())
        for number, tile in enumerate(tiles):
            time = point.times.get(tile)
            slower = CANNOT if time is None else time / fastest - 1
            cell[number] += point.weight * slower * (1 + _STEEP * slower)
    return losses


def _divided(losses: _Losses, inner: Callable[[_Losses], _Division]) -> _Division:
    """The cheapest division of an axis into ranges, `inner` dividing what is in one."""
    best: list[_Division] = [(0.0, None)]
    for end, last in enumerate(losses):
        ways = []
        sums = last
        for start in reversed(range(end + 1)):
            sums = _added(sums, losses[start]) if start < end else sums
            loss, ranges = inner(sums)
            before = best[start]
            ways.append((before[0] + loss, (before[1], end, ranges)))
        best.append(min(ways, key=itemgetter(0)))
    return best[-1]


def _added(left: _Losses, right: _Losses) -> _Losses:
    """The sum, element by element, of lists of any depth."""
    return list(map(add if isinstance(left[0], float) else _added, left, right))


def _rows(ranges: Any) -> Iterator[_Row]:
    """The rows of a division, in order."""
    if isinstance(ranges, int):
        yield ranges, ()
    elif ranges is not None:
        before, last, inside = ranges
        yield from _rows(before)
        for tile, classes in _rows(inside):
            yield tile, (last, *classes)


def _needed(rows: Sequence[_Row]) -> list[_Row]:
    """The rows without those whose shapes find the same tile further down."""
    kept = list(rows)
    for row in reversed(rows[:-1]):
        at = kept.index(row)
        mine = [
            cell
            for cell in product(*(range(last + 1) for last in row[1]))
            if not any(_holds(other, cell) for other in kept[:at])
        ]
        below = kept[at + 1 :]
        found = (next(other for other in below if _holds(other, cell)) for cell in mine)
        if all(other[0] == row[0] for other in found):
            kept.pop(at)
    return kept


def _holds(row: _Row, cell: tuple[int, ...]) -> bool:
    m, n, k = row[1]
    return cell[0] <= m and cell[1] <= n and cell[2] <= k
