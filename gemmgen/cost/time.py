"""How long a tile takes for a shape on a target, and how many stages that calls for.

Pure arithmetic: physical limits from `targets`, constants fitted by `calibration`. It
ranks tiles and explains them; it never decides whether a kernel is right.
"""

import math
from dataclasses import dataclass, replace
from functools import cache

from gemmgen.cost.mainloop import BlockCost, block_cost, epilogue_time
from gemmgen.cost.resources import fits, programs_at_a_time
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.schedule import Pause
from gemmgen.schedules.parts.tile import FULL, LINE_BYTES, Product, Tile
from gemmgen.tables.layouts import LAYOUTS

Sizes = tuple[int, int, int]

MAX_STAGES = 6
"""Deeper rings gain at most 5 % in any tile timed, and spill in some (tf32, sm_100)."""

_BUSY = 2
"""How much longer a load takes when all SMs read from memory: 5 stages against 4 gain
12 % (64x64x128 tiles, 128 x 4096 x 4096, H200), where 4 would hide it unloaded."""

_OVERLAPPED = 0.5
"""Share of the time to read a part of K alone that it takes after another (256 x 256 x
32768 in 8 parts of 64x64 tiles and in 16 of 128x64: 20.4 and 25.8 us, H200)."""

_AFTER_LOADS = 0.5
"""Share of a block's time that follows its loads where none is under way before it
(64x64 to 128x128 tiles, tiled, K of 1023 to 3001, H200: 0.45 to 0.54)."""

_FILLED = 6e12
"""Bytes per second that descriptors fill with zeros beyond a matrix, all SMs together:
what tiles of more rows than M lose (64 to 128 rows, M = 4 to 32, H200: 4 to 8 TB/s)."""


@dataclass(frozen=True)
class Estimate:
    """Where the time goes; times in seconds, traffic in bytes.

    `tiles` of C in `parts` of K each make the programs; one SM takes `turns` of them,
    `together` at a time. A program has `blocks` K blocks, each of which costs `each`.
    """

    tiles: int
    parts: int
    turns: int
    together: int
    blocks: int
    each: BlockCost
    latency: float
    outside: float
    loop: float
    traffic: float
    memory: float
    launch: float

    @property
    def waits(self) -> bool:
        """Whether the loads of a ring arrive later than its blocks are multiplied."""
        return self.latency > self.each.ahead * self.together * self.each.seconds

    @property
    def seconds(self) -> float:
        """The prediction."""
        return self.launch + self.outside + max(self.loop, self.memory)


def parts_of(sizes: Sizes, tile: Tile, target: Target) -> int:
    """In how many parts K is cut; FILL makes as many as there are SMs for."""
    m, n, k = sizes
    launched = tile.launched
    return launched.splits(launched.tiles(m, n), k, target.sms)


def fills(tile: Tile, sizes: Sizes, target: Target) -> bool:
    """Whether the tiles of a shape fill their waves, one tile an SM."""
    m, n, _ = sizes
    return tile.launched._replace(waves=FULL).fills(m, n, target.sms)


def row_bytes(sizes: Sizes, product: Product) -> tuple[int, int]:
    """Bytes from one row of A, and of B, to the next."""
    m, n, k = sizes
    layout = LAYOUTS[product.layout]
    a, b = m if layout.a_transposed else k, k if layout.b_transposed else n
    return a * product.bytes, b * product.bytes


def row_starts(sizes: Sizes, product: Product) -> tuple[int, int]:
    """Of how many bytes, up to a line's, rows of A and of B begin at multiples.

    It decides how they load.
    """
    a, b = row_bytes(sizes, product)
    return math.gcd(LINE_BYTES, a), math.gcd(LINE_BYTES, b)


def estimate(sizes: Sizes, tile: Tile, product: Product, target: Target) -> Estimate:
    """The time of a tile for M, N, K, every size at least 1."""
    m, n, k = sizes
    rates, schedule = target.rates, schedule_of(tile)
    tiles = math.ceil(m / tile.m) * math.ceil(n / tile.n)
    parts = parts_of(sizes, tile, target)
    at_a_time = target.sms // tile.ctas
    turns = math.ceil(tiles * parts / at_a_time)
    if schedule.persistent:  # each program has tiles of one part
        turns = math.ceil(tiles / max(1, at_a_time // parts))
    together = min(programs_at_a_time(tile, product, target), turns)
    blocks = math.ceil(math.ceil(k / tile.k) / parts)
    starts = row_starts(sizes, product)
    joint = schedule.persistent or turns == 1
    each = block_cost(tile, product, target, starts, joint)
    ahead = min(each.ahead, blocks) if schedule.memory_bound else each.ahead
    block, wait = each.seconds, rates.latency / max(1, ahead)
    if each.ahead == 0:
        wait += _AFTER_LOADS * block
    full, rest = divmod(turns, together)
    loop = blocks * full * max(together * block, wait)
    loop += blocks * max(rest * block, wait) if rest else 0.0
    epilogue = epilogue_time(tile.of_cta, product, target)
    pause = Pause(epilogue, blocks * max(block, wait), together)
    loop += (full + (rest > 0) - 1) * schedule.between_tiles(tile, rates, pause)
    outside = rates.tile + epilogue * schedule.last_epilogues(tile)
    if parts > 1:
        sums = 4 * tile.m * tile.n * (1 + parts * _OVERLAPPED)
        outside += sums / rates.store_bandwidth
    traffic = compulsory(sizes, product) + read_again(sizes, tile, product)
    memory = traffic / rates.memory_bandwidth + schedule.ramp(rates)
    memory += filled_bytes(sizes, tile, product) / _FILLED
    return Estimate(
        tiles, parts, turns, together, blocks, each, rates.latency,
        outside, loop, traffic, memory, rates.launch,
    )  # fmt: skip


def compulsory(sizes: Sizes, product: Product) -> int:
    """Bytes that no tile can spare memory: all matrices once."""
    m, n, k = sizes
    results = m * n * max(product.out_bytes, product.tile_bytes)
    return product.rows(m, n) * k * product.bytes + results


def read_again(sizes: Sizes, tile: Tile, product: Product) -> int:
    """Bytes of a matrix that streams through, beyond the first time."""
    m, n, k = sizes
    columns = n * product.rights
    passes = schedule_of(tile).passes(tile, product, (m, columns, k))
    return (passes - 1) * (m * columns // passes) * k * product.bytes


def filled_bytes(sizes: Sizes, tile: Tile, product: Product) -> int:
    """Bytes of A and B beyond their last rows that descriptors fill with zeros."""
    if "inputs" not in schedule_of(tile).described:
        return 0
    m, n, k = sizes
    tiles_m, tiles_n = math.ceil(m / tile.m), math.ceil(n / tile.n)
    rows_a = (tiles_m * tile.m - m) * tiles_n
    rows_b = (tiles_n * tile.n - n) * tiles_m
    return product.rows(rows_a, rows_b) * k * product.bytes


def predicted_time(sizes: Sizes, tile: Tile, product: Product, target: Target) -> float:
    """Seconds for M, N, K."""
    return estimate(sizes, tile, product, target).seconds


@cache
def best_stages(tile: Tile, product: Product, target: Target) -> int | None:
    """The stages that the latency calls for, capped by shared memory; None: none fit.

    A load has the time of the other blocks in the ring to arrive in, so the latency
    over the time of a block, and one more, are enough: beyond, the prediction does not
    fall. Of programs that share an SM, deeper rings leave room for fewer, so the fewest
    within 0.5 % of the fastest win. A program that has the SM to itself takes all that
    fit.
    """
    schedule = schedule_of(tile)
    if schedule.memory_bound:
        return 1
    candidates = [replace(tile, stages=stages) for stages in range(1, MAX_STAGES + 1)]
    fitting = [
        candidate for candidate in candidates if fits(candidate, product, target)
    ]
    if schedule.persistent or len(fitting) < 2:
        return fitting[-1].stages if fitting else None
    sizes, latency = planned_for(tile, target)
    planned = replace(target, rates=replace(target.rates, latency=latency))
    times = [predicted_time(sizes, tile, product, planned) for tile in fitting[1:]]
    return next(
        one.stages
        for one, time in zip(fitting[1:], times, strict=True)
        if time <= 1.005 * min(times)
    )


def planned_for(tile: Tile, target: Target) -> tuple[Sizes, float]:
    """The shape and the latency that stages are sized for, for a class of shapes.

    Tiles of few rows and those that split K serve shapes that leave each SM one program
    and read from memory as fast as it goes, which makes loads late. The others are
    sized for 4096^3, whose loads mostly come from L2.
    """
    latency = target.rates.latency
    if tile.m <= 64 or tile.split_k != 1:
        tiles = target.sms // max(1, tile.split_k)
        return (tile.m, tile.n * tiles, 4096), _BUSY * latency
    return (4096, 4096, 4096), latency
