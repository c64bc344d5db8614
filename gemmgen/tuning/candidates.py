"""The tiles that are worth timing for a kernel on a target: all fit, none should spill.

Wider than what `tiles: auto` chooses from, since here a wrong guess costs little.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product

from gemmgen.cost.resources import accumulator_registers, block_k, fits, spills
from gemmgen.cost.tile import FILL, GROUP_M, LINE_BYTES, Tile
from gemmgen.cost.time import predicted_time
from gemmgen.cost.why_not import Kernel, why_not
from gemmgen.hardware.targets import Target
from gemmgen.select.plan import Plan
from gemmgen.spec.shapes import Shape
from gemmgen.tables.schedules import FALLBACK, SCHEDULES, transposes

MOST = 48
"""Tiles that are timed at a shape: the model's best..."""
_MOST_EACH = 18
"""... and of one schedule at most so many, for the model may favour one..."""
_MOST_OF_FEW = 24
"""... but more where rows are not aligned, for few schedules serve such."""
_MOST_REGISTERS = 128
"""Of the accumulator in a thread; the rest is for addresses and the epilogue."""
_MOST_STAGES = 8
_GROUPS = (2, 16)
"""Tiles of a column that programs walk down, beside `GROUP_M`: where rows of B start
within cache lines fewer are faster, and more where there are many tiles (H200)..."""
_MOST_GROUPED = 5
"""... which so many of the model's best are timed with."""
_WIDEST_LOADS = 16
"""Bytes of a row of B for each thread of a gemv: less would halve its loads."""
_MOST_AT_ONCE = 64
"""... and more would fill the registers, for four blocks are loaded at a time."""
_GEMV_ROWS = 4
"""Rows above which a tensor core wins even where memory is the limit."""


def candidates(plan: Plan, target: Target) -> list[Tile]:
    """Every candidate of the schedules that can serve the kernel, and its table's."""
    own = [tile for where, tile in plan.tiles if where == target]
    kernel = Kernel(plan.layout, plan.product, target)
    found = [
        tile
        for schedule, tiles in _SEARCHES.items()
        if why_not(schedule, kernel) is None
        for tile in tiles(plan)
    ]
    deepest = [_deepest(tile, plan, target) for tile in found]
    fitting = [*own, *(tile for tile in deepest if tile)]
    return list(dict.fromkeys([*fitting, *_grouped(fitting)]))


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
        and (not tile.streams or shape.m <= _GEMV_ROWS)
    ]
    serving.sort(key=lambda tile: predicted_time(shape, tile, plan.product, target))
    described = any(SCHEDULES[schedule].described for schedule in able)
    most_each = _MOST_EACH if described else _MOST_OF_FEW
    kept: list[Tile] = []
    for tile in serving:
        same = [one for one in kept if one.schedule == tile.schedule]
        if len(same) < most_each and len(kept) < MOST:
            kept.append(tile)
    walking = [tile for tile in kept if tile.loops]
    grouped = [
        tile
        for tile in _grouped(walking[:_MOST_GROUPED])
        if shape.m > min(tile.group_m, GROUP_M) * tile.m
    ]
    return [*kept, *grouped]


def _grouped(tiles: Sequence[Tile]) -> Iterator[Tile]:
    """In the other groups, those whose programs walk from tile to tile."""
    for tile in tiles:
        if tile.loops:
            for group in _GROUPS:
                yield replace(tile, group_m=group)


def _deepest(tile: Tile, plan: Plan, target: Target) -> Tile | None:
    """The tile with as many stages as fit, or None if two do not."""
    if accumulator_registers(tile, plan.product) > _MOST_REGISTERS:
        return None
    if spills(tile, plan.product):
        return None
    for stages in range(tile.stages, 1, -1):
        deep = replace(tile, stages=stages)
        if fits(deep, plan.product, target):
            return deep
    return tile if tile.stages == 1 and fits(tile, plan.product, target) else None


def _k_blocks(plan: Plan, *lines: float) -> list[int]:
    """Lengths of a K block that are so many cache lines of 128 bytes."""
    return [block_k(int(count * LINE_BYTES), plan.product) for count in lines]


def _specialized(plan: Plan) -> Iterator[Tile]:
    for (m, n, warps), k in product(
        (
            *((256, 128, 8), (128, 128, 8), (64, 128, 8), (128, 256, 8)),
            *((128, 128, 4), (64, 128, 4), (256, 64, 4), (128, 64, 4), (64, 64, 4)),
            *((128, 192, 12), (64, 192, 12)),
        ),
        _k_blocks(plan, 1, 2),
    ):
        turned = transposes("warp_specialized", plan.product.kind, plan.layout)
        sides = (m, n) if turned else (n, m)
        yield Tile(*sides, k, GROUP_M, _MOST_STAGES, warps, "warp_specialized")


_PARTED = (
    *((16, 64, 4), (16, 128, 4), (32, 64, 4), (32, 128, 4), (64, 64, 4)),
    *((64, 128, 4), (128, 64, 4), (128, 128, 4)),
)
"""(m, n, warps) of tiles whose K may come in parts."""

_FLAT = ((16, 64, 4),)
"""The same where memory is the limit, for longer rows of B at a time."""

_APART = (
    *((16, 32, 4), (32, 32, 4)),
    *((64, 64, 8), (64, 128, 8), (128, 64, 8), (128, 128, 8)),
)
"""More of them for elements that come singly: threads hold few, and parts are many."""


def _tma(plan: Plan) -> Iterator[Tile]:
    stages = (_MOST_STAGES, 6, 4)
    yield from _split("tma", _PARTED, _k_blocks(plan, 1, 2), (1, FILL), stages)
    yield from _split("tma", _FLAT, _k_blocks(plan, 4), (1, FILL), stages)


def _split_k(plan: Plan) -> Iterator[Tile]:
    sizes, lengths = _PARTED + _APART, _k_blocks(plan, 0.5, 1, 2)
    parts, stages = (1, FILL, 2 * FILL, 4 * FILL), (_MOST_STAGES, 4)
    yield from _split("split_k", sizes, lengths, parts, stages)


def _split(
    schedule: str,
    sizes: Sequence[tuple[int, int, int]],
    lengths: Sequence[int],
    parts: Sequence[int],
    stages: Sequence[int],
) -> Iterator[Tile]:
    every = product(sizes, lengths, parts, stages)
    for (m, n, warps), k, split_k, deep in every:
        yield Tile(m, n, k, GROUP_M, deep, warps, schedule, split_k)


def _persistent(plan: Plan) -> Iterator[Tile]:
    for (m, n), k in product(((128, 256), (256, 128), (128, 128)), _k_blocks(plan, 1)):
        yield Tile(m, n, k, GROUP_M, 4, 8, "persistent")


def _gemv(plan: Plan) -> Iterator[Tile]:
    for n, k, warps in product((1, 2, 4), _k_blocks(plan, 4, 8, 16, 32), (1, 4, 8)):
        if _WIDEST_LOADS <= k * plan.product.bytes / (32 * warps) <= _MOST_AT_ONCE:
            yield Tile(1, n, k, GROUP_M, 1, warps, "gemv")


def _tiled(plan: Plan) -> Iterator[Tile]:
    for (m, n, warps), k in product(
        (
            *((64, 64, 4), (64, 64, 8), (64, 128, 4), (64, 128, 8), (128, 64, 4)),
            *((128, 128, 4), (128, 128, 8)),
        ),
        _k_blocks(plan, 1),
    ):
        for stages in (3, 4):
            yield Tile(m, n, k, GROUP_M, stages, warps, FALLBACK)


_SEARCHES = {
    "warp_specialized": _specialized,
    "tma": _tma,
    "split_k": _split_k,
    "persistent": _persistent,
    "gemv": _gemv,
    FALLBACK: _tiled,
}
