"""From the times at a few shapes to a table for all: the model, corrected by them.

A tile's time at a shape is the model's, times how far the model was off for that tile
at the measured shapes near it. Far from all of them the model chooses among its own
tiles too: tf32x3, timed at 4096 cubed alone, took tiles of 64 x 128 for four rows.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from gemmgen.cost.resources import spills
from gemmgen.cost.time import Sizes, best_stages, predicted_time
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.model_table import (
    FEW,
    ROUGH,
    describes_operands,
    reached,
    sampled,
)
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.costs import costed_as
from gemmgen.select.tuned.decision_list import ANY, Grid, Point, Rule, decide
from gemmgen.select.tuned.tuning_file import Times, Tuning
from gemmgen.select.waves import with_full_waves
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.trials.candidates import AS_SLOW

GRID = Grid(
    (1, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, ANY),
    (64, 512, 1024, 2048, 4096, 8192, ANY),
    (256, 1024, 2048, 4096, 8192, ANY),
)
_PRICE = 1.0
"""What a row must save, in times of a class."""
_SHARED_PRICE = 4.0
"""The same of rows that all kernels of a layout have: so few lose no more at what was
timed (15 shapes, 9 rows where it were 11)."""
_LEAST_GAIN = 0.02
"""What a row for full waves must save, in times of a measured shape."""
_WEIGHT = 40.0
"""Weight of a measured shape beside a class of the grid."""
_REACH = 1.5
"""Octaves of M, N and K within which a measured shape says something of another."""
_PRIOR = 0.05
"""Weight of the model alone, beside measured shapes of weight 1 at no distance."""


def rules_for(
    plan: Plan, target: Target, times: Times
) -> tuple[list[Rule], list[Rule]]:
    """The table for tensors that can be described, and that for all others.

    Pointer kernels are left out of the first, whose rows they would take from the
    second: what they lose where rows are not aligned is far more than they gain here.
    The first ends in rows for every Triton.
    """
    rest = _undescribed(times)
    described = {
        shape: {
            tile: time for tile, time in each.items() if schedule_of(tile).needs_aligned
        }
        for shape, each in times.items()
        if shape not in rest
    }
    few = {shape: each for shape, each in times.items() if shape.n <= FEW.n[-1]}
    rules = _decided(described, plan, target, GRID, aligned=True, beside=rest)
    others = _decided(rest, plan, target, ROUGH, aligned=not described)
    if not rules:
        return others, []
    if describes_operands(rules[-1].tile):
        every = {
            shape: {
                tile: time
                for tile, time in each.items()
                if not describes_operands(tile)
            }
            for shape, each in described.items()
        }
        rules += _decided(every, plan, target, ROUGH, aligned=True)
    rules = reached([*_decided(few, plan, target, FEW, aligned=True), *rules])
    if others and schedule_of(others[-1].tile).needs_aligned:
        return rules, []
    return rules, reached([*rules, *others])[len(rules) :]


def with_unaligned(tuning: Tuning, plans: Iterable[Plan], target: Target) -> Tuning:
    """The file with rules for tensors that no descriptor can describe, by layout.

    Costs have them, for all kernels of their kind. Of several kernels of a layout the
    first with times of such tensors makes them.
    """
    costs = dict(tuning.costs)
    for plan in plans:
        kind = costed_as(plan.product)
        if kind in costs and plan.name in tuning.kernels:
            times = tuning.kernels[plan.name].spread
            if rules := _unaligned_rules(plan, target, times):
                known = {plan.layout: tuple(rules), **costs[kind].unaligned}
                costs[kind] = replace(costs[kind], unaligned=known)
    return replace(tuning, costs=costs)


def _unaligned_rules(plan: Plan, target: Target, times: Times) -> list[Rule]:
    """The table for tensors that no descriptor can describe alone."""
    rest = _undescribed(times)
    return reached(
        _decided(rest, plan, target, ROUGH, aligned=False, price=_SHARED_PRICE)
    )


def _undescribed(times: Times) -> Times:
    """The shapes at which no tile that takes descriptors was timed."""
    return {
        shape: each
        for shape, each in times.items()
        if not any(schedule_of(tile).described for tile in each)
    }


def _decided(
    times: Times,
    plan: Plan,
    target: Target,
    grid: Grid,
    *,
    aligned: bool,
    beside: Times = MappingProxyType({}),
    price: float = _PRICE,
) -> list[Rule]:
    """The rules over all classes and the measured shapes.

    Calls of the shapes `beside` get to these rules too, and on to others from a row
    whose tile takes descriptors.
    """
    timed = dict.fromkeys(tile for each in times.values() for tile in each)
    if not timed:
        return []
    found = dict.fromkeys([*timed, *_like(timed, plan, target)])
    tiles = [tile for tile in found if not spills(tile, plan.product)]
    errors = _errors(tiles, plan, target, times)

    def time(sizes: Sizes, tile: Tile) -> float:
        corrected = math.exp(_correction(sizes, errors[tile]))
        return corrected * predicted_time(sizes, tile, plan.product, target)

    points = list(sampled(tiles, time, grid, plan.product, aligned=aligned))
    for shape, each in times.items():
        known = {tile: each[tile] for tile in tiles if tile in each}
        points += [Point(shape.sizes, known, _WEIGHT)] if known else []
    points += _passing(beside, tiles)
    return with_full_waves(decide(points, grid, price), times, target, _LEAST_GAIN)


def _like(timed: Collection[Tile], plan: Plan, target: Target) -> Iterator[Tile]:
    """The model's own tiles that take tensors as some of those that were timed do.

    As deep as the target's rates call for, which may be newer than the plan's.
    """
    described = {schedule_of(tile).described for tile in timed}
    for table in plan.tables:
        for tile in table.tiles if table.target == target.name else ():
            stages = best_stages(tile, plan.product, target)
            if stages and schedule_of(tile).described in described:
                yield replace(tile, stages=stages)


def _passing(times: Times, tiles: Sequence[Tile]) -> Iterator[Point]:
    """Shapes that no descriptor can describe, where some tile that needs none is timed.

    The others cost what the best of all tiles takes, to which they pass a call on.
    """
    described = [tile for tile in tiles if schedule_of(tile).described]
    for shape, each in times.items():
        taking = {
            tile: each[tile]
            for tile in tiles
            if schedule_of(tile).memory_bound and tile in each
        }
        if taking:
            passed = dict.fromkeys(described, min(each.values()))
            yield Point(shape.sizes, passed | taking, _WEIGHT)


def _errors(
    tiles: Sequence[Tile], plan: Plan, target: Target, times: Times
) -> dict[Tile, list[tuple[Shape, float]]]:
    """By tile, the logarithm of measured over predicted, less what all tiles share.

    A tile without a time took longer than those that are kept.
    """
    errors: dict[Tile, list[tuple[Shape, float]]] = {tile: [] for tile in tiles}
    for shape, each in times.items():
        predicted = {
            tile: predicted_time(shape, tile, plan.product, target) for tile in tiles
        }
        off = {
            tile: math.log(time / predicted[tile])
            for tile, time in each.items()
            if tile in errors
        }
        shared = sorted(off.values())[len(off) // 2] if off else 0.0
        slow = AS_SLOW * min(each.values())
        for tile in tiles:
            least = max(shared, math.log(slow / predicted[tile]))
            errors[tile].append((shape, off.get(tile, least) - shared))
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
