"""Which tile serves which shape, by a function that says how long each takes.

The function is the model's prediction, or that corrected by measurements.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from operator import ge
from random import Random

from gemmgen.cost.time import Sizes, predicted_time, row_bytes
from gemmgen.hardware.targets import DESCRIBED_BYTES, Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.tuned.costs import kind_of
from gemmgen.select.tuned.decision_list import ANY, Grid, Point, Rule, decide
from gemmgen.select.waves import with_full_waves

Time = Callable[[Sizes, Tile], float]

GRID = Grid(
    (1, 16, 64, 128, 256, 512, 1024, 2048, 4096, ANY),
    (64, 512, 1024, 2048, 4096, 8192, ANY),
    (1024, ANY),
)
"""Classes of shapes for the model, which sees less than measurements do."""

FEW = Grid((32, 1024, ANY), (8,), (1024, ANY))
"""Of so few columns a descriptor loads 64 or more, of which most are filled with zeros,
so pointers serve them, aligned or not (4096 x 1 x 8192: 23.8 us against 26.5, H200)."""

_MANY, _SHORT = (1024, 16384, ANY), (512, 1024, ANY)
ONE_COLUMN, ONE_ROW = Grid(_MANY, (1,), _SHORT), Grid((1,), _MANY, _SHORT)
"""Where a matrix streams past the other, if a schedule of the kernel does that: with
pointers a tensor core took 1.2 to 2.7 times as long (bf16, NN and NT, nine shapes of
one column, H100)."""

ROUGH = Grid((1, 32, 128, 512, 2048, ANY), (512, 2048, ANY), (1024, ANY))
"""Fewer, where rows are not aligned, and where a schedule's Triton is not there."""

_PRICE, _PRICE_UNALIGNED = 0.9, 0.7
"""What a row must save, in times of a class; and where rows are not aligned: with the
other 67x384x2432 TN takes 1.27 times as long (bf16, H200)."""

_LINE = 64
"""Sizes along rows are whole lines of so many elements; rows are any number."""

_SPREAD, _OCTAVES = 350, ((6, 14), (9, 15), (9, 14))
"""Shapes drawn to see whose waves are full, and the octaves of their M, N and K."""
_LEAST_GAIN = 0.15
"""What a row for full waves must save, in times of a drawn shape."""

_BEYOND = 4
"""An open class is judged up to this multiple of its last limit."""


def modelled(
    tiles: tuple[Tile, ...], product: Product, target: Target, *, rest: bool = False
) -> tuple[Rule, ...]:
    """The model's table: tiles for what descriptors can describe, then for the `rest`.

    Each part holds every shape, but for a few columns, which come before. A call gets
    to the second if no descriptor can describe its tensors. warp_specialized needs an
    exact Triton, so rows without it follow the first part.
    """
    return _modelled(tiles, _alike(product), target, rest)


def one_column(
    tiles: tuple[Tile, ...], product: Product, target: Target
) -> tuple[Rule, ...]:
    """The model's rows for one column, if a tile streams A past it."""
    return _streaming(tiles, _alike(product), target, ONE_COLUMN)


def narrow(
    tiles: tuple[Tile, ...], product: Product, target: Target
) -> tuple[Rule, ...]:
    """The model's rows by pointers for one column, for one row and for few columns."""
    return _narrow(tiles, _alike(product), target)


def _alike(product: Product) -> Product:
    """What takes the same time, as fp16 and bf16 do, shares a table."""
    return replace(product, kind=kind_of(product))


@cache
def _streaming(
    tiles: tuple[Tile, ...], product: Product, target: Target, grid: Grid
) -> tuple[Rule, ...]:
    """The rows of what streams a matrix past one row, or column, that `grid` is of."""
    m, n, k = (int(axis[0]) for axis in grid.axes)
    able = [
        tile
        for tile in tiles
        if schedule_of(tile).memory_bound and serves(tile, product, (m, n, k))
    ]
    return tuple(_table(able, product, target, grid) if able else ())


@cache
def _narrow(
    tiles: tuple[Tile, ...], product: Product, target: Target
) -> tuple[Rule, ...]:
    plain = [tile for tile in tiles if not schedule_of(tile).described]
    few = _table(plain, product, target, FEW, aligned=False)
    return tuple(reached([*_one_line(tiles, product, target), *few]))


def _one_line(
    tiles: tuple[Tile, ...], product: Product, target: Target
) -> Iterator[Rule]:
    """The rows for one column and for one row."""
    for grid in (ONE_COLUMN, ONE_ROW):
        yield from _streaming(tiles, product, target, grid)


@cache
def _modelled(
    tiles: tuple[Tile, ...], product: Product, target: Target, rest: bool
) -> tuple[Rule, ...]:
    plain = [tile for tile in tiles if not schedule_of(tile).described]
    if rest:
        return tuple(_table(plain, product, target, ROUGH, aligned=False))
    lone = _one_line(tiles, product, target)
    if len(plain) == len(tiles):
        return tuple(reached([*lone, *_table(plain, product, target, GRID)]))
    rules = [*lone, *_table(plain, product, target, FEW, aligned=False)]
    leading = aligned = [tile for tile in tiles if schedule_of(tile).needs_aligned]
    if any(map(describes_operands, leading)):
        # Warps of their own do what a persistent loop does, and overlap more.
        leading = [
            tile
            for tile in leading
            if not schedule_of(tile).persistent or describes_operands(tile)
        ]
    rules += with_full_waves(
        _table(leading, product, target, GRID),
        {
            sizes: {
                tile: predicted_time(sizes, tile, product, target) for tile in leading
            }
            for sizes in _spread()
        },
        target,
        _LEAST_GAIN,
    )
    every = [tile for tile in aligned if not describes_operands(tile)]
    if every and describes_operands(rules[-1].tile):
        rules += _table(every, product, target, ROUGH)
    rules += _table(plain, product, target, ROUGH, aligned=False)
    return tuple(reached(rules))


def _spread() -> Iterator[Sizes]:
    """Shapes that show whose waves are full: drawn evenly in octaves, the same ones."""
    drawn = Random(0)
    for _ in range(_SPREAD):
        m, n, k = (2 ** drawn.uniform(low, high) for low, high in _OCTAVES)
        yield max(1, int(m)), int(n) // _LINE * _LINE, int(k) // _LINE * _LINE


def reached(rules: Sequence[Rule]) -> list[Rule]:
    """Without the rows that no call gets to, since one before them takes all of theirs.

    Rows of kernels that descriptors describe, or that ask for full waves, may pass a
    call on.
    """
    kept: list[Rule] = []
    for rule in rules:
        takers = (
            rule for rule in kept if not (schedule_of(rule.tile).described or rule.full)
        )
        if not any(all(map(ge, taker.limits, rule.limits)) for taker in takers):
            kept.append(rule)
    return kept


def describes_operands(tile: Tile) -> bool:
    """Whether descriptors must describe operands too, not the inputs alone."""
    return "operands" in schedule_of(tile).described


def _table(
    tiles: Sequence[Tile],
    product: Product,
    target: Target,
    grid: Grid,
    *,
    aligned: bool = True,
) -> list[Rule]:
    def time(sizes: Sizes, tile: Tile) -> float:
        return predicted_time(sizes, tile, product, target)

    points = sampled(tiles, time, grid, product, aligned=aligned)
    price = _PRICE if aligned else _PRICE_UNALIGNED
    return decide(list(points), grid, price)


def sampled(
    tiles: Sequence[Tile], time: Time, grid: Grid, product: Product, *, aligned: bool
) -> Iterator[Point]:
    """Shapes of every class that some tile serves, whose weights add up to 1 in each.

    Shapes at the limits of a class, such as powers of two, count as much as all others.
    Rows of the operands are odd along N and K unless aligned.
    """
    less = 0 if aligned else 1
    for m, m_inside in _samples(grid.m, 1):
        for n, n_inside in _samples(grid.n, _LINE):
            for k, k_inside in _samples(grid.k, _LINE):
                for sizes in (
                    (m, max(1, n - less), k - less),
                    (m_inside, max(1, n_inside - less), k_inside - less),
                ):
                    serving = [tile for tile in tiles if serves(tile, product, sizes)]
                    times = {tile: time(sizes, tile) for tile in serving}
                    if times:
                        yield Point(sizes, times, 0.5)


def serves(tile: Tile, product: Product, sizes: Sizes) -> bool:
    """Whether a tile is for such a shape: each matrix goes through once.

    No descriptor describes the rows of a matrix of one or a few columns.
    """
    narrow = min(row_bytes(sizes, product)) < DESCRIBED_BYTES
    if schedule_of(tile).described and narrow:
        return False
    return schedule_of(tile).passes(tile, product, sizes) == 1


def _samples(limits: Sequence[float], unit: int) -> list[tuple[int, int]]:
    """Of each class along one axis: its largest size, and one in its middle."""
    known = [int(limit) for limit in limits if limit != ANY]
    ends = [*known, *[_BEYOND * known[-1]] * (len(limits) - len(known))]
    lows = [ends[0] // 16, *ends]
    middles = [math.isqrt(low * high) for low, high in zip(lows, ends, strict=False)]
    return [
        (end, middle // unit * unit or max(1, middle))
        for end, middle in zip(ends, middles, strict=True)
    ]
