"""Predicted times: larger never means faster, and why so many stages."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.cost.resources import fits
from gemmgen.cost.time import (
    MAX_STAGES,
    best_stages,
    estimate,
    filled_bytes,
    parts_of,
    planned_for,
    predicted_time,
    row_bytes,
)
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.runtime.tile import FILL
from gemmgen.schedules import SCHEDULES, why_not
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import LINE_BYTES, Product, Tile
from gemmgen.select.fallback_tiles import fallback_tiles
from gemmgen.select.schedule_tiles import schedule_tiles

H200 = TARGETS["sm_90"]
HALF = Product("bf16", 2, 2, 2)
PRODUCTS = [
    *(HALF, Product("fp16", 2, 2, 2, "NN"), Product("tf32", 4, 4, 4)),
    *(Product("tf32x3", 4, 4, 4, "NN"), Product("ieee", 4, 4, 4)),
    *(Product("fp64", 8, 8, 8), Product("bf16", 2, 4, 6, "TN", 2, 4, 3, 30)),
]
CASES = [
    (tile, product, target)
    for target in TARGETS.values()
    for product in PRODUCTS
    for tile in (
        *fallback_tiles(product, target, 0, 256),
        *(
            tile
            for schedule in SCHEDULES
            if why_not(schedule, Kernel(product.layout, product, target)) is None
            for tile in schedule_tiles(schedule, product, target, 0)
        ),
    )
]
Case = tuple[Tile, Product, Target]

cases = st.sampled_from(CASES)
rows = st.one_of(st.integers(1, 300), st.integers(1, 8192))
lines = st.integers(1, 128).map(lambda count: 64 * count)


@settings(deadline=None)
@given(cases, rows, lines, lines)
def test_twice_as_deep_is_never_faster(case: Case, m: int, n: int, k: int) -> None:
    deeper, time = (predicted_time((m, n, size), *case) for size in (2 * k, k))
    assert time <= deeper <= 2.2 * time


@settings(deadline=None)
@given(cases, st.integers(1, 32), st.integers(1, 32), lines)
def test_more_whole_tiles_are_never_faster(
    case: Case, tiles_m: int, tiles_n: int, k: int
) -> None:
    """With as many parts of K as there are SMs for, more tiles mean fewer parts.

    Twice as many elements to a row may fill lines that so many do not.
    """
    tile = replace(case[0], split_k=1)
    m, n = (math.lcm(LINE_BYTES, side) for side in (tile.m, tile.n))
    m, n = tiles_m * m, tiles_n * n
    time = predicted_time((m, n, k), tile, *case[1:])
    assert time <= predicted_time((2 * m, n, k), tile, *case[1:])
    assert time <= predicted_time((m, 2 * n, k), tile, *case[1:])


@settings(deadline=None)
@given(cases, rows, lines, lines)
def test_no_time_is_under_the_roofline(case: Case, m: int, n: int, k: int) -> None:
    tile, product, target = case
    rates, time = target.rates, predicted_time((m, n, k), *case)
    moved = (m * k + n * k + m * n) * product.bytes
    # A product split in three takes the time of three; the table's rate holds them.
    flops = target.sms * target.flops_per_clock[product.kind] * rates.clock
    assert time > rates.launch + moved / rates.memory_bandwidth
    if tile.schedule != "gemv":
        assert time > rates.launch + 2 * m * n * k / flops


@settings(deadline=None)
@given(cases, rows, lines, lines)
def test_an_estimate_adds_up(case: Case, m: int, n: int, k: int) -> None:
    tile, _, target = case
    found = estimate((m, n, k), *case)
    assert found.tiles * tile.m * tile.n >= m * n
    assert found.turns * target.sms >= found.tiles * found.parts
    assert 1 <= found.together <= found.turns
    assert found.blocks * found.parts * tile.k >= k
    parts = (found.launch, found.outside, found.loop, found.memory)
    assert min(parts) > 0
    assert found.seconds == pytest.approx(sum(parts) - min(found.loop, found.memory))


RINGS = [case for case in CASES if case[0].schedule != "gemv"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_deeper_ring_is_slower_only_where_fewer_programs_fit(target: str) -> None:
    seen = 0
    for tile, product, where in RINGS:
        if where.name != target:
            continue
        sizes, _ = planned_for(tile, where)
        before = None
        for stages in range(1, MAX_STAGES + 1):
            deeper = replace(tile, stages=stages)
            if not fits(deeper, product, where):
                break
            found = estimate(sizes, deeper, product, where)
            if before and found.together >= before.together:
                assert found.seconds <= before.seconds * (1 + 1e-9)
                seen += 1
            before = found
    assert seen > 50


@settings(deadline=None)
@given(st.sampled_from(RINGS))
def test_best_stages_are_the_fewest_within_half_a_percent(case: Case) -> None:
    tile, product, target = case
    stages = best_stages(tile, product, target)
    assert stages is not None and fits(replace(tile, stages=stages), product, target)
    sizes, latency = planned_for(tile, target)
    late = replace(target, rates=replace(target.rates, latency=latency))
    rings = [replace(tile, stages=count) for count in range(2, MAX_STAGES + 1)]
    times = {
        one.stages: predicted_time(sizes, one, product, late)
        for one in rings
        if fits(one, product, target)
    }
    if tile.schedule in ("persistent", "warp_specialized"):
        assert stages == max(times, default=1)  # alone on its SM, it takes all
    elif times:
        least = min(times.values())
        assert times[stages] <= 1.005 * least
        assert all(times[one] > 1.005 * least for one in times if one < stages)


def test_stages_known_by_hand() -> None:
    size = Tile(128, 256, 64, 8, 2, 8)
    assert best_stages(size, HALF, H200) == 3
    assert best_stages(replace(size, m=256, k=128), HALF, H200) == 1
    assert best_stages(replace(size, m=256, k=256), HALF, H200) is None
    assert best_stages(Tile(1, 2, 1024, 8, 1, 4, "gemv"), HALF, H200) == 1


def test_a_later_answer_calls_for_more_stages() -> None:
    size = Tile(64, 64, 64, 8, 2, 4)
    quick, slow = (
        replace(H200, rates=replace(H200.rates, latency=latency))
        for latency in (0.2e-6, 3e-6)
    )
    few, many = (best_stages(size, HALF, target) for target in (quick, slow))
    assert few is not None and many is not None and few < many


def test_a_ring_waits_until_its_blocks_hide_the_latency() -> None:
    sizes, size = (4096, 4096, 4096), Tile(64, 64, 64, 8, 2, 4)
    waits = []
    for stages in range(2, 9):
        found = estimate(sizes, replace(size, stages=stages), HALF, H200)
        hidden = (stages - 1) * found.together * found.each.seconds
        assert found.waits == (H200.rates.latency > hidden)
        waits.append(found.waits)
        late = replace(H200, rates=replace(H200.rates, latency=1.01e-6))
        later = predicted_time(sizes, replace(size, stages=stages), HALF, late)
        assert (later > found.seconds) == found.waits
    assert waits == sorted(waits, reverse=True)
    assert waits[0] and not waits[-1]


def test_rows_beyond_the_matrix_cost_what_descriptors_fill() -> None:
    size = Tile(64, 128, 64, 8, 4, 4, "tma")
    assert filled_bytes((64, 128, 512), size, HALF) == 0
    assert filled_bytes((65, 128, 512), size, HALF) == 63 * 512 * 2
    assert filled_bytes((65, 130, 512), size, HALF) == (63 * 2 + 126 * 2) * 512 * 2
    assert filled_bytes((1, 1, 512), replace(size, schedule="tiled"), HALF) == 0
    few, whole = ((m, 8192, 8192) for m in (4, 64))
    assert predicted_time(few, size, HALF, H200) > predicted_time(
        whole, size, HALF, H200
    )
    small = replace(size, m=16)
    assert predicted_time(few, small, HALF, H200) < predicted_time(
        few, size, HALF, H200
    )


@settings(deadline=None)
@given(st.sampled_from(CASES), rows, lines, lines)
def test_rows_that_are_not_aligned_are_slower(
    case: Case, m: int, n: int, k: int
) -> None:
    """An element less to load, and yet no faster; pointers load one by one.

    Two bytes are too few to load them past the registers, so nothing is ahead.
    """
    tile = case[0]
    aligned, odd = (m * 64, n, k), (m * 64 - 1, n - 1, k - 1)
    one = estimate(aligned, *case).each
    other = estimate(odd, *case).each
    assert other.seconds >= one.seconds
    pointers = not SCHEDULES[tile.schedule].described and tile.schedule != "gemv"
    assert (other.prepared > one.prepared) == pointers
    assert other.ahead == (0 if pointers and case[1].bytes == 2 else one.ahead)
    assert other.l2 > one.l2


def test_where_rows_start_depends_on_the_layout() -> None:
    sizes = (3, 5, 7)
    wanted = {"NN": (14, 10), "NT": (14, 14), "TN": (6, 10), "TT": (6, 14)}
    for layout, bytes_ in wanted.items():
        assert row_bytes(sizes, replace(HALF, layout=layout)) == bytes_


def test_the_wider_rows_allow_loads_the_faster_they_are() -> None:
    tile = Tile(64, 64, 64, 8, 4, 4)
    each = [estimate((64, 4096, k), tile, HALF, H200).each for k in (2047, 2046, 2044)]
    seconds = [one.prepared for one in each]
    assert seconds == sorted(seconds, reverse=True) and seconds[1] == 2 * seconds[2]
    assert [one.ahead for one in each] == [0, 3, 3]


@settings(deadline=None)
@given(rows, lines, st.integers(1, 65536))
def test_parts_fill_the_gpu_and_are_never_short(m: int, n: int, k: int) -> None:
    size = Tile(64, 64, 64, 8, 4, 4, "split_k", FILL)
    tiles = -(-m // 64) * -(-n // 64)
    parts = parts_of((m, n, k), size, H200)
    assert parts >= 1 and (parts == 1 or parts * tiles <= H200.sms)
    assert parts == 1 or k > (parts - 1) * 4 * 64
    assert parts_of((m, n, k), replace(size, split_k=3), H200) == 3
    twice = parts_of((m, n, k), replace(size, split_k=2 * FILL), H200)
    assert parts <= twice and (twice == 1 or twice * tiles <= 2 * H200.sms)
    assert twice == 1 or k > (twice - 1) * 2 * 64


def test_each_part_of_a_split_k_costs_its_sums() -> None:
    sizes, size = (64, 64, 8192), Tile(64, 64, 64, 8, 4, 4, "split_k", 4)
    rates = H200.rates
    more = replace(size, split_k=8)
    four, eight = (estimate(sizes, one, HALF, H200).outside for one in (size, more))
    each = 4 * 64 * 64 / rates.store_bandwidth
    assert eight - four == pytest.approx(0.5 * 4 * each)
    assert estimate(sizes, size, HALF, H200).parts == 4


def test_splitting_k_pays_where_there_are_few_tiles() -> None:
    whole = Tile(64, 64, 128, 8, 5, 4, "tma")
    split = replace(whole, split_k=FILL)
    few, many = (64, 512, 16384), (4096, 4096, 4096)
    assert predicted_time(few, split, HALF, H200) < 0.5 * predicted_time(
        few, whole, HALF, H200
    )
    assert predicted_time(many, split, HALF, H200) == predicted_time(
        many, whole, HALF, H200
    )


@settings(max_examples=30, deadline=None)
@given(cases, rows, lines, lines, st.floats(1.1, 4.0))
def test_a_faster_gpu_is_faster(
    case: Case, m: int, n: int, k: int, times: float
) -> None:
    tile, product, target = case
    time = predicted_time((m, n, k), *case)
    rates = target.rates
    for name in ("clock", "l2_bandwidth", "memory_bandwidth", "store_bandwidth"):
        better = replace(rates, **{name: times * getattr(rates, name)})
        faster = predicted_time((m, n, k), tile, product, replace(target, rates=better))
        assert faster <= time
    for name in ("latency", "ramp", "launch", "tile", "handover"):
        better = replace(rates, **{name: getattr(rates, name) / times})
        faster = predicted_time((m, n, k), tile, product, replace(target, rates=better))
        assert faster <= time
