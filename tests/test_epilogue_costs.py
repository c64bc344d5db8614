"""What an epilogue adds to what a tile costs, and which tiles it leaves to a kernel."""

from dataclasses import replace

import pytest

from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules.parts.tile import Product, Rates, Tile
from gemmgen.select.tiling import with_costs_of
from gemmgen.select.tuned.costs import Cost, Costs
from gemmgen.select.tuned.epilogues import fetching, hides_epilogues, instructions
from gemmgen.select.tuned.tile_text import parse_tile

H200 = TARGETS["sm_90"]
PLAIN = Product("bf16", 2, 2, 2, result_bytes=2, own_bytes=(2,))
GELU = replace(PLAIN, operations=20)
RESIDUAL = replace(PLAIN, matrix_bytes=2, operations=13, passed=2, own_bytes=())
BESIDE = replace(PLAIN, out_bytes=4, tile_bytes=6, result_bytes=6, own_bytes=(2, 4))
"""With an fp32 result beside its own."""
RATES = Rates(
    *(2, 2, 1.5, 4.6e6, 1.9e7, 2.5e6, 1.8, 4.5),
    *(1.5, 7e4, 0.2, 4e8, 9e7, 140.0),
)
TURNS = parse_tile("warp_specialized 128x128x64 s5 w4")
SHARED = parse_tile("warp_specialized 128x128x64 s6 w8")
PROGRAM = parse_tile("tma 64x128x64 s8 w4")
TALL = parse_tile("warp_specialized 72-200x256x64 s3 w8")
IN_TURNS = parse_tile("warp_specialized 72-192x128x64 kfill s4 w4")


def timed(tile: Tile, product: Product, as_: Tile | None = None) -> Cost:
    """A tile of a product; an instruction of a warp for an element takes 40 ps."""
    costs = Costs(RATES, {as_ or tile: Cost(0.3, 1.0, 6.0, 4e-5)})
    found = costs.timed(tile, product, H200, as_)
    return Cost(found.block, found.once, found.launch, 4e-5)


def test_an_epilogue_adds_to_each_tile() -> None:
    for tile, warps in ((SHARED, 8), (PROGRAM, 4)):
        assert not hides_epilogues(tile)
        adds = 4e-5 * 20 * tile.m * tile.n / warps
        assert timed(tile, GELU).once == pytest.approx(1.0 + adds)
        assert timed(tile, GELU).launch == 6.0


def test_where_consumers_take_turns_it_adds_to_the_last() -> None:
    """The others are computed while the other consumer multiplies."""
    assert hides_epilogues(TURNS)
    few = replace(PLAIN, operations=10)
    assert timed(TURNS, few).once == 1.0
    assert timed(TURNS, few).launch == pytest.approx(6.0 + 4e-5 * 10 * 128 * 128 / 4)


def test_a_first_epilogue_of_many_instructions_is_waited_for() -> None:
    """Those of a thread's elements, of which consumers have a copy each."""
    assert fetching(SHARED, GELU) == 0.0  # 64 elements
    assert fetching(replace(TURNS, m=144), GELU) == pytest.approx(0.8)
    whole = replace(TALL, m=200, from_side=0)
    assert fetching(whole, GELU) == pytest.approx(0.01 * (20 * 200 - 2800))
    assert fetching(whole, PLAIN) == 0.0
    three = parse_tile("warp_specialized 192x192x64 s4 w12")
    assert fetching(three, GELU) == pytest.approx(0.01 * (20 * 96 - 5600 / 3))
    assert fetching(replace(PROGRAM, m=256, n=256), GELU) == 0.0  # a loop beside others
    assert timed(whole, GELU).launch == pytest.approx(6.0 + fetching(whole, GELU))


def test_a_row_stands_for_no_tile_that_waits_for_its_epilogue() -> None:
    found = with_costs_of(TALL, GELU, 1, H200)
    assert found == replace(TALL, m=144)
    assert fetching(replace(TALL, m=144, from_side=0), GELU) < 1.0
    assert fetching(replace(TALL, m=152, from_side=0), GELU) > 1.0
    assert with_costs_of(TALL, PLAIN, 1, H200) == TALL


def test_k_is_whole_where_parts_would_spill() -> None:
    """And a row stands for no tile that spills with K whole."""
    found = with_costs_of(IN_TURNS, RESIDUAL, 2, H200)
    assert found == replace(IN_TURNS, m=144, split_k=1)
    assert with_costs_of(IN_TURNS, PLAIN, 1, H200) == IN_TURNS


def test_rings_that_are_less_deep_than_timed_wait() -> None:
    """A second result leaves less room; the blocks of a ring but one take 1.2 us."""
    product = replace(BESIDE, operations=20)
    found = with_costs_of(IN_TURNS, product, 1, H200)
    assert found == replace(IN_TURNS, m=120)  # which was timed with six stages
    assert timed(IN_TURNS, PLAIN).block == 0.3
    share = IN_TURNS.share(replace(found, from_side=0))
    assert timed(found, product, IN_TURNS).block > 1.1 * 0.3 * share
    alone = replace(SHARED, stages=4)
    assert timed(alone, BESIDE, SHARED).block == pytest.approx(1.2 / 3)


def test_instructions_are_those_of_a_cta() -> None:
    pair = parse_tile("warp_specialized 256x256x64 c2 s4 w8")
    assert instructions(pair, GELU) == 20 * 256 * 256 / 2 / 8
