"""The tiles that are worth timing for a kernel on a target: all fit, none should spill.

Wider than what `tiles: auto` chooses from, since here a wrong guess costs little.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from gemmgen.cost.resources import fits, spills, why_not_compiled
from gemmgen.cost.time import predicted_time
from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, named, schedule_of, why_not
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import GROUP_M, Tile
from gemmgen.select.plan import Plan
from gemmgen.spec.shapes import Shape

MOST = 96
"""Tiles that are timed at a shape: the model's best..."""
_SLOWER = 1.9
"""... up to those that it thinks so many times as slow, for it is rough..."""
_MOST_WITHOUT = 12
"""... and of schedules that take no descriptors so many, where others serve too..."""
_MOST_OF_FEW = 24
"""... but more where rows are not aligned, for few schedules serve such."""
KEPT, AS_SLOW = 32, 1.35
"""Tiles whose times a tuning file keeps at a shape, and how many times as long as the
fastest they may take: slower ones are chosen nowhere."""
_MOST_PASSES = 4
"""How often a matrix streams through: above, a tensor core wins even where memory is
the limit."""
_GROUPS = (2, 16)
"""Tiles of a column that programs walk down, beside `GROUP_M`: where rows of B start
within cache lines fewer are faster, and more where there are many tiles (H200)..."""
_MOST_GROUPED = 5
"""... which so many of the model's best are timed with."""


def candidates(plan: Plan, target: Target) -> list[Tile]:
    """Every candidate of the schedules that can serve the kernel, and its table's."""
    own = [tile for where, tile in plan.tiles if where == target]
    fitting = [*own, *searched(plan, target)]
    return list(dict.fromkeys([*fitting, *_grouped(fitting)]))


def searched(plan: Plan, target: Target) -> list[Tile]:
    """Every candidate of the schedules that can serve the kernel.

    Without those that `auto` leaves out, unless the spec names them. Where the model
    sees no difference, descriptors come before pointers, and the
    fallback last.
    """
    kernel = Kernel(plan.layout, plan.product, target)
    wanted = named(plan.schedule)
    known = [row for row in SCHEDULES.values() if row.auto or row.name in wanted]
    rows = sorted(reversed(known), key=lambda row: not row.described)
    found = [
        tile
        for row in rows
        if why_not(row.name, kernel) is None
        for tile in row.search(plan.product)
    ]
    deepest = [_deepest(tile, plan, target) for tile in found]
    return [tile for tile in deepest if tile]


def at_shape(
    tiles: list[Tile], plan: Plan, shape: Shape, target: Target, able: Collection[str]
) -> list[Tile]:
    """Those of the `able` schedules, the model's best first, so many as are timed.

    Its very best last, in other groups where that makes a difference.
    """
    serving = [
        tile
        for tile in tiles
        if tile.schedule in able
        and tile.group_m == GROUP_M
        and schedule_of(tile).passes(tile, plan.product, shape) <= _MOST_PASSES
    ]
    times = {
        tile: predicted_time(shape, tile, plan.product, target) for tile in serving
    }
    serving.sort(key=lambda tile: times[tile])
    launches = {tile: launched(tile, shape, target) for tile in serving}
    near = [tile for tile in serving if times[tile] <= _SLOWER * times[serving[0]]]
    kept = _not_too_many(near, launches)
    persistent = [
        tile for tile in kept if schedule_of(tile).persistent and tile.split_k == 1
    ]
    grouped = [
        tile
        for tile in _grouped(persistent[:_MOST_GROUPED])
        if shape.m > min(tile.group_m, GROUP_M) * tile.m
    ]
    return [*kept, *grouped]


def _not_too_many(tiles: Sequence[Tile], launches: Mapping[Tile, Tile]) -> list[Tile]:
    """So many of the first as are timed, and those that make the launch of another."""
    described = any(schedule_of(tile).described for tile in tiles)
    most_without = _MOST_WITHOUT if described else _MOST_OF_FEW
    kept: list[Tile] = []
    for tile in tiles:
        same = {launches[one] for one in kept if one.schedule == tile.schedule}
        few = len(same | {launches[tile]}) <= most_without
        if (few or schedule_of(tile).described) and len(kept) < MOST:
            kept.append(tile)
    return kept


def launched(tile: Tile, shape: Shape, target: Target) -> Tile:
    """The tile in as many parts of K as it has there, which others may have too."""
    tiles = tile.launched.tiles(shape.m, shape.n)
    return replace(tile, split_k=tile.launched.splits(tiles, shape.k, target.sms))


def _grouped(tiles: Sequence[Tile]) -> Iterator[Tile]:
    """In the other groups, those whose programs walk from tile to tile."""
    for tile in tiles:
        if schedule_of(tile).persistent:
            for group in _GROUPS:
                yield replace(tile, group_m=group)


def _deepest(tile: Tile, plan: Plan, target: Target) -> Tile | None:
    """The tile with as many stages as fit, or None if two do not."""
    most = schedule_of(tile).most_accumulated(tile, plan.product)
    if accumulator_registers(tile, plan.product) > most:
        return None
    if spills(tile, plan.product) or why_not_compiled(tile, plan.product, target):
        return None
    for stages in range(tile.stages, 1, -1):
        deep = replace(tile, stages=stages)
        if fits(deep, plan.product, target):
            return deep
    return tile if tile.stages == 1 and fits(tile, plan.product, target) else None
