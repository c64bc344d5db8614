"""From the times at a few shapes to a table for all: the model, corrected by them.

A tile's cost at a shape is the model's time, times how far the model was off for that
tile at the measured shapes near it.
"""

import math
from collections.abc import Mapping, Sequence

from gemmgen.decision import Point, Rule, Sizes, decide, grid
from gemmgen.model import Tile, predicted_time
from gemmgen.plan import Plan
from gemmgen.schedules import FALLBACK, SCHEDULES
from gemmgen.shapes import Shape
from gemmgen.targets import Target
from gemmgen.tuning_file import Times

_REACH = 1.5
"""Octaves of M, N and K within which a measured shape says something of another."""
_PRIOR = 0.05
"""Weight of the model alone, beside measured shapes of weight 1 at no distance."""
_MEASURED_WEIGHT = 6.0
"""Weight of a measured shape beside one of the grid."""
_SLOPE, _CLIFF = 1.05, 3.0
"""Beyond 5 % of the least time, every per cent counts for so many more."""


def rules_for(
    plan: Plan, target: Target, times: Times
) -> tuple[list[Rule], list[Rule]]:
    """The table for tensors that can be described, and that for all others."""
    if not times:
        return [], []
    tiles = list(dict.fromkeys(tile for each in times.values() for tile in each))
    plain = [tile for tile in tiles if not SCHEDULES[tile.schedule].described]
    everything = _decided(tiles, plan, target, times)
    fallback = _decided(plain, plan, target, times) if plain else []
    return everything, _served_by_all(fallback, plan, target)


def _served_by_all(rules: list[Rule], plan: Plan, target: Target) -> list[Rule]:
    """The rules, if the last one's schedule serves every call; else the model's."""
    return rules if rules and rules[-1].tile.schedule == FALLBACK else rules[:-1]


def _decided(
    tiles: Sequence[Tile], plan: Plan, target: Target, times: Times
) -> list[Rule]:
    """The decision list over the grid and the measured shapes."""
    errors = _errors(tiles, plan, target, times)
    points = []
    for sizes in grid():
        costs = {
            tile: predicted_time(sizes, tile, plan.product, target)
            * math.exp(_correction(sizes, errors[tile]))
            for tile in tiles
            if tile.schedule != "gemv" or sizes[0] == 1
        }
        points.append(_point(sizes, costs, 1.0))
    for shape, each in times.items():
        costs = {tile: time for tile, time in each.items() if tile in errors}
        if costs:
            points.append(_point((shape.m, shape.n, shape.k), costs, _MEASURED_WEIGHT))
    return decide(points)


def _point(sizes: Sizes, costs: Mapping[Tile, float], weight: float) -> Point:
    least = min(costs.values())
    return Point(
        sizes, {tile: _felt(cost / least) for tile, cost in costs.items()}, weight
    )


def _felt(ratio: float) -> float:
    """How bad it is to take so many times the least: cliffs count more than slopes."""
    return ratio + _CLIFF * max(0.0, ratio - _SLOPE)


def _errors(
    tiles: Sequence[Tile], plan: Plan, target: Target, times: Times
) -> dict[Tile, list[tuple[Shape, float]]]:
    """By tile, the logarithm of measured over predicted, less what all tiles share."""
    errors: dict[Tile, list[tuple[Shape, float]]] = {tile: [] for tile in tiles}
    for shape, each in times.items():
        off = {
            tile: math.log(time / predicted_time(shape, tile, plan.product, target))
            for tile, time in each.items()
            if tile in errors
        }
        shared = sorted(off.values())[len(off) // 2] if off else 0.0
        for tile, error in off.items():
            errors[tile].append((shape, error - shared))
    return errors


def _correction(sizes: Sizes, errors: Sequence[tuple[Shape, float]]) -> float:
    """The mean of a tile's errors, the nearer the shape the more it counts."""
    total, weight = 0.0, _PRIOR
    for shape, error in errors:
        apart = sum(
            math.log2(one / other) ** 2 for one, other in zip(sizes, shape, strict=True)
        )
        near = math.exp(-apart / (2 * _REACH**2))
        total += near * error
        weight += near
    return total / weight
