"""The decision list: sorted, total, and the best there is, by brute force."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.decision_list import ANY, Grid, Point, Rule, decide

TILES = [Tile(16 << number, 64, 64, 8, 3, 4) for number in range(4)]
GRID = Grid((1, 16, ANY), (512, ANY), (1024, 4096, ANY))
SMALL = Grid((16, ANY), (512, ANY), (1024, ANY))
SIZES = (1, 7, 16, 17, 512, 513, 1024, 1025, 4096, 4097, 2**31 - 1)

sizes = st.tuples(*[st.sampled_from(SIZES)] * 3)
microseconds = st.integers(100, 300).map(float)


@st.composite
def points(draw: st.DrawFn) -> Point:
    able = draw(st.sets(st.sampled_from(TILES), min_size=1))
    times = {tile: draw(microseconds) for tile in sorted(able, key=TILES.index)}
    return Point(draw(sizes), times, draw(st.sampled_from((0.5, 1.0, 20.0))))


many = st.lists(points(), min_size=1, max_size=12)
prices = st.sampled_from((1e-9, 0.1, 0.5, 1.0, 4.0))


def found(rules: Sequence[Rule], at: tuple[int, int, int]) -> Tile:
    """The tile that a launcher would take."""
    return next(
        rule.tile
        for rule in rules
        if all(size <= most for size, most in zip(at, rule.limits, strict=True))
    )


def loss(tile: Tile, point: Point) -> float:
    """What is lost, written a second time: 25 % slower counts double."""
    time = point.times.get(tile)
    slower = 9.0 if time is None else time / min(point.times.values()) - 1
    return point.weight * (slower + 4.0 * slower**2)


def total(rules: Sequence[Rule], points: Sequence[Point]) -> float:
    return sum(loss(found(rules, point.sizes), point) for point in points)


@settings(deadline=None)
@given(many, prices)
def test_every_shape_finds_a_rule(points: list[Point], price: float) -> None:
    rules = decide(points, GRID, price)
    assert rules[-1].limits == (ANY, ANY, ANY)
    for at in product(SIZES, repeat=3):
        assert found(rules, at) in TILES


@settings(deadline=None)
@given(many, prices)
def test_rules_are_sorted_and_end_where_classes_do(
    points: list[Point], price: float
) -> None:
    rules = decide(points, GRID, price)
    limits = [rule.limits for rule in rules]
    assert limits == sorted(limits)
    assert len(set(limits)) == len(limits)
    for m, n, k in limits:
        assert m in GRID.m and n in GRID.n and k in GRID.k


@settings(deadline=None)
@given(many, prices)
def test_no_rule_can_be_left_out(points: list[Point], price: float) -> None:
    """Each serves some shape that would find another tile without it."""
    rules = decide(points, GRID, price)
    inside = [[low + 1 for low in (0, *axis[:-1])] for axis in GRID.axes]
    cells = [tuple(map(int, cell)) for cell in product(*inside)]
    before = [found(rules, cell) for cell in cells]
    for rule in rules[:-1]:
        rest = [one for one in rules if one is not rule]
        assert before != [found(rest, cell) for cell in cells]


@settings(deadline=None)
@given(many)
def test_for_nothing_each_class_gets_its_fastest_tile(points: list[Point]) -> None:
    one_each = list({GRID.cell(point.sizes): point for point in points}.values())
    rules = decide(one_each, GRID, 1e-9)
    for point in one_each:
        best = min(point.times.values())
        assert point.times[found(rules, point.sizes)] == best


@settings(deadline=None)
@given(many, prices, prices)
def test_a_higher_price_buys_no_better_table(
    points: list[Point], one: float, other: float
) -> None:
    cheap, dear = (decide(points, GRID, price) for price in sorted((one, other)))
    assert total(cheap, points) <= total(dear, points) + 1e-9


def test_a_higher_price_gives_no_more_rules() -> None:
    for seed in range(20):
        drawn = random.Random(seed)
        points = [
            Point(
                tuple(drawn.choice(SIZES) for _ in range(3)),
                {tile: drawn.uniform(1.0, 3.0) for tile in TILES},
            )
            for _ in range(20)
        ]
        prices = (1e-9, 0.1, 0.5, 1.0, 2.0, 4.0, 100.0)
        counts = [len(decide(points, GRID, price)) for price in prices]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > counts[-1] == 1


@settings(deadline=None)
@given(many)
def test_at_a_price_beyond_all_losses_there_is_one_rule(points: list[Point]) -> None:
    (rule,) = decide(points, GRID, 1e9)
    least = min(sum(loss(tile, point) for point in points) for tile in TILES)
    assert math.isclose(sum(loss(rule.tile, point) for point in points), least)


@settings(deadline=None)
@given(st.lists(points(), min_size=2, max_size=6))
def test_a_tile_that_cannot_serve_is_not_chosen_where_another_can(
    points: list[Point],
) -> None:
    """Of points that count alike, at times within a factor of three."""
    alike = [replace(point, weight=1.0) for point in points]
    rules = decide(alike, GRID, 1.0)
    cells: dict[tuple[int, ...], list[Point]] = {}
    for point in alike:
        cells.setdefault(GRID.cell(point.sizes), []).append(point)
    for together in cells.values():
        tile = found(rules, together[0].sizes)
        if any(all(one in point.times for point in together) for one in TILES):
            assert all(tile in point.times for point in together)


def cuts(count: int) -> Iterator[tuple[int, ...]]:
    """The ends of every division of so many classes into ranges."""
    for number in range(count):
        for inner in combinations(range(count - 1), number):
            yield (*inner, count - 1)


def best_by_force(points: Sequence[Point], grid: Grid, price: float) -> float:
    """The least loss and price over all divisions of M, of N in each, of K in those."""
    at = [(grid.cell(point.sizes), point) for point in points]

    @cache
    def least(axis: int, ranges: tuple[tuple[int, int], ...]) -> float:
        inside = [
            point
            for cell, point in at
            if all(low <= one <= high for one, (low, high)
                   in zip(cell, ranges, strict=False))
        ]  # fmt: skip
        if axis == 3:
            used = [tile for tile in TILES if any(tile in p.times for p in points)]
            return price + min(sum(loss(one, p) for p in inside) for one in used)
        return min(
            sum(
                least(axis + 1, (*ranges, (low, high)))
                for low, high in zip(
                    [0, *(end + 1 for end in ends)], ends, strict=False
                )
            )
            for ends in cuts(len(grid.axes[axis]))
        )

    return least(0, ())


@settings(deadline=None)
@given(st.lists(points(), min_size=1, max_size=8), prices)
def test_no_other_division_is_better(points: list[Point], price: float) -> None:
    """Rows that say what a later one says are left out after the count."""
    best = best_by_force(points, SMALL, price)
    rules = decide(points, SMALL, price)
    assert total(rules, points) + price * len(rules) <= best + 1e-6
    # A price of nothing leaves the losses alone.
    free = decide(points, SMALL, 1e-9)
    assert math.isclose(
        total(free, points), best_by_force(points, SMALL, 0.0), abs_tol=1e-6
    )


def test_the_class_of_a_shape_holds_its_limits() -> None:
    assert GRID.cell((1, 512, 1024)) == (0, 0, 0)
    assert GRID.cell((2, 513, 1025)) == (1, 1, 1)
    assert GRID.cell((17, 10**9, 10**9)) == (2, 1, 2)


def test_a_table_by_hand() -> None:
    """Small M wants one tile, all else another; K matters at small M alone."""
    low, high, deep = TILES[:3]
    points = [
        Point((16, 512, 1024), {low: 1.0, high: 2.0, deep: 2.0}),
        Point((16, 512, 4096), {low: 2.0, high: 2.0, deep: 1.0}),
        Point((512, 512, 1024), {low: 2.0, high: 1.0, deep: 2.0}),
        Point((512, 512, 4096), {low: 2.0, high: 1.0, deep: 2.0}),
    ]
    assert decide(points, SMALL, 0.5) == [
        Rule((16, ANY, 1024), low),
        Rule((16, ANY, ANY), deep),
        Rule((ANY, ANY, ANY), high),
    ]


def test_weights_decide_where_tiles_disagree() -> None:
    one, other = TILES[:2]
    points = [
        Point((1, 1, 1), {one: 1.0, other: 1.2}, 1.0),
        Point((1, 1, 1), {one: 1.2, other: 1.0}, 20.0),
    ]
    assert found(decide(points, GRID, 0.5), (1, 1, 1)) == other
    assert found(decide(points[:1], GRID, 0.5), (1, 1, 1)) == one


def test_one_slow_class_costs_more_than_many_slightly_slow_ones() -> None:
    """One tile 3 % slower in ten shapes against one 25 % slower in a single one."""
    even, uneven = TILES[:2]
    shapes = [(1, 1, 1)] * 10
    points = [Point(at, {even: 1.03, uneven: 1.0}) for at in shapes]
    points.append(Point((1, 1, 1), {even: 1.0, uneven: 1.25}))
    assert found(decide(points, GRID, 0.5), (1, 1, 1)) == even
