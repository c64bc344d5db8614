"""Rows of a table for the shapes that fill the waves of a large tile."""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import le
from typing import TypeVar

from gemmgen.cost.time import Sizes, fills
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.decision_list import Rule

_Shape = TypeVar("_Shape", bound=Sizes)
_Times = Mapping[_Shape, Mapping[Tile, float]]


def with_full_waves(
    rules: Sequence[Rule], times: _Times[_Shape], target: Target, least: float
) -> list[Rule]:
    """The rules, each behind those for shapes that fill the waves of faster tiles.

    A large tile with the SM to itself is the fastest where its waves are full, and the
    slowest where one tile more begins a wave: no range of sizes tells these apart. A
    row must gain more than `least`, in times of a shape, over those of `times`.
    """
    found: list[Rule] = []
    left = dict(times)
    for rule in rules:
        own = {
            shape: left.pop(shape)
            for shape in list(left)
            if all(map(le, shape, rule.limits))
        }
        for tile in _faster(rule.tile, own, target, least):
            found.append(Rule(rule.limits, tile, full=True))
        found.append(rule)
    return found


def _faster(
    tile: Tile, times: _Times[_Shape], target: Target, least: float
) -> Iterator[Tile]:
    """Tiles for full waves, the one that gains most of the shapes left each time."""
    left = dict(times)
    while left:
        gains = {
            one: _gain(one, tile, left, target)
            for one in dict.fromkeys(tile for each in left.values() for tile in each)
            if schedule_of(one).persistent
        }
        best = max(gains, key=lambda one: gains[one], default=tile)
        if gains.get(best, 0.0) <= least:
            return
        yield best
        left = {
            shape: each
            for shape, each in left.items()
            if not fills(best, shape, target)
        }


def _gain(tile: Tile, other: Tile, times: _Times[_Shape], target: Target) -> float:
    """By how much a tile is faster than another where it fills its waves, summed.

    The slowest of the tiles that were timed at a shape are forgotten: one that has no
    time there is no faster than the slowest that has.
    """
    gain = 0.0
    for shape, each in times.items():
        if fills(tile, shape, target):
            slowest = max(each.values())
            gain += math.log(each.get(other, slowest) / each.get(tile, slowest))
    return gain
