"""Tiles that stand for others, which differ in rows alone, from times to launches."""

import math
import random
from dataclasses import replace

import pytest

from gemmgen.cost.resources import fits, shared_memory, why_not_compiled
from gemmgen.hardware.targets import TARGETS
from gemmgen.runtime.sides import CLOCKS, clocks, heights
from gemmgen.schedules.parts.consumers import multiplies_in_one
from gemmgen.schedules.parts.tile import FILL, Product, Tile
from gemmgen.select.plan import Plan
from gemmgen.select.tiling import with_costs_of
from gemmgen.select.tuned.costs import Cost, Costs, instructions
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.tuning.fitting import costs as fitting
from gemmgen.tuning.fitting.fit import Sample, fitted
from gemmgen.tuning.fitting.standing import known_of, standing
from gemmgen.tuning.trials.spread import spread
from tests.own import OWN
from tests.test_costs import RATES

H200 = TARGETS["sm_90"]
PLAIN = Product("bf16", 2, 2, 2)
WHOLE = parse_tile("warp_specialized 160-256x128x64 kfill s4 w8")
LOWER = [
    parse_tile(f"warp_specialized {text}")
    for text in (
        *("256x128x64 kfill s4 w8", "160x128x64 kfill s5 w8"),
        *("208x128x64 kfill s5 w8", "128x128x64 kfill s6 w8"),
    )
]
IN_ONE = parse_tile("warp_specialized 72-200x128x64 kfill s4 w8")
COLUMNS = parse_tile("warp_specialized 128x72-224x64 kfill s4 w8")
WIDE = [
    parse_tile(f"warp_specialized {text}")
    for text in (
        *("128x160x64 kfill s5 w8", "128x72x64 kfill s8 w8"),
        *("128x224x64 s4 w8", "128x96x64 s7 w8", "128x128x64 s6 w8"),
    )
]
LOW = [
    parse_tile(f"warp_specialized {text}")
    for text in (
        *("200x128x64 kfill s4 w8", "72x128x64 kfill s6 w8"),
        "104x128x64 kfill s6 w8",
    )
]


def test_heights_are_sums_of_few_powers_of_two() -> None:
    assert heights(144, 256) == [144, 160, 192, 208, 224, 256]
    assert all(clocks(48 + side) > 0.95 * clocks(64 + side) for side in (128, 192))
    assert clocks(208) == CLOCKS[128] + CLOCKS[64] + CLOCKS[16]


def test_heights_in_one_are_all_multiples_of_8() -> None:
    assert heights(72, 144) == [72, 80, 88, 96, 104, 112, 120, 128, 136, 144]
    assert heights(136, 256) == [*range(136, 257, 8)]


def test_each_has_its_rows_its_depth_and_its_part_of_a_block() -> None:
    """Up to `deep` a stage more; what else there is stays as it was."""
    own = WHOLE.launched._replace(block=0.6, once=1.2, shared=230_000, deep=(208,))
    found = own.members()
    assert [(one.m, one.stages) for one in found] == [
        *((160, 5), (192, 5), (208, 5), (224, 4), (256, 4)),
    ]
    for one in found:
        assert one.block == pytest.approx(0.6 * clocks(one.m) / clocks(256))
        same = {"m": 256, "stages": 4, "block": 0.6, "from_side": 160, "deep": (208,)}
        assert not one.from_side and not one.deep and one._replace(**same) == own
        assert one.members() == [one]
    assert [one.m for one in WHOLE.members] == [one.m for one in found]


def test_those_in_one_have_their_rows_and_stages() -> None:
    """And a block takes as long as its rows say, from 80 on; some load for longer."""
    own = IN_ONE.launched._replace(block=0.6, once=1.2, shared=230_000)
    found = own._replace(deep=(160, 120)).members()
    assert [one.m for one in found] == [*range(72, 208, 8)]
    assert [one.stages for one in found] == [6] * 7 + [5] * 5 + [4] * 5
    for one in found:
        assert one.block == pytest.approx(0.6 * max(one.m, 80) / 200)
        parts = 1 if one.m in (120, 184) else FILL
        same = {"m": 200, "stages": 4, "block": 0.6, "from_side": 72, "split_k": FILL}
        assert not one.from_side and not one.deep and one._replace(**same) == own
        assert one.split_k == parts
    members = IN_ONE.members
    assert [one.m for one in members] == [one.m for one in found]
    assert {one.stages for one in members} == {4}
    assert all(multiplies_in_one(one, PLAIN) for one in members if one.m != 128)
    assert all(fits(one, PLAIN, H200) for one in members)
    assert IN_ONE.share(members[0]) == IN_ONE.share(members[1]) == 0.4


def test_those_of_columns_have_widths_that_are_not_cut() -> None:
    """Lines of 64, and a box of what is left; of three pieces K is whole."""
    own = COLUMNS.launched._replace(block=0.6, deep=(192, 96))
    widths = [72, 80, 96, 136, 144, 160, 192, 200, 208, 224]
    assert [one.n for one in own.members()] == widths
    assert [one.stages for one in own.members()] == [6] * 3 + [5] * 4 + [4] * 3
    for one, member in zip(own.members(), COLUMNS.members, strict=True):
        assert one.m == 128 and one.cut_axis == "m"
        assert one.split_k == (1 if one.n in (200, 208, 224) else FILL)
        assert one.block == pytest.approx(0.6 * max(one.n, 80) / 224)
        assert COLUMNS.share(member) == one.block / 0.6
        assert multiplies_in_one(member, PLAIN)
        assert not why_not_compiled(member, PLAIN, H200)
        for layout in ("NN", "TN"):  # whose columns do not lie along K
            assert not multiplies_in_one(member, replace(PLAIN, layout=layout))


def test_a_costed_tile_of_columns_is_left_to_those_it_was_timed_for() -> None:
    """Where columns come in pieces, a block takes longer than it says."""
    for layout, kept in (("NT", COLUMNS), ("NN", None)):
        product = replace(PLAIN, layout=layout)
        assert with_costs_of(COLUMNS, product, 1, H200) == kept
        assert with_costs_of(IN_ONE, product, 1, H200) == IN_ONE


def test_where_there_is_less_room_the_largest_are_left_out() -> None:
    """So that all others are as deep as they were timed, and a block takes as long."""
    product = OWN["linear_bias_silu_residual"].product
    timed = replace(IN_ONE, m=208)
    found = with_costs_of(timed, product, 2, H200)
    assert found == replace(timed, m=200)
    costs = Costs(RATES, {timed: Cost(0.52, 1.0, 6.0, 0.0)})
    assert costs.timed(found, product, H200, timed).block == pytest.approx(0.5)
    deep = replace(timed, stages=6)  # of which too few would be left
    assert with_costs_of(deep, product, 2, H200) == replace(timed, stages=3)


def test_an_epilogue_takes_as_long_as_that_of_the_mean_tile() -> None:
    product = replace(PLAIN, operations=10)
    mean = sum(range(72, 208, 8)) / 17
    assert instructions(IN_ONE, product) == pytest.approx(10 * mean * 128 / 8)
    assert instructions(LOW[1], product) == 10 * 72 * 128 / 8


@pytest.mark.parametrize("plan", OWN.values(), ids=OWN.get)
def test_all_fit_what_their_row_says(plan: Plan) -> None:
    """And a stage more than that fits none, or they would have it.

    Lower ones may have less: up to each `deep` all have a stage more.
    """
    for row in plan.rows:
        for tile in row.tiles(plan.product) if row.tile.from_side else ():
            assert fits(tile, plan.product, row.target)
            assert not why_not_compiled(tile, plan.product, row.target)
            used = shared_memory(tile, plan.product, row.target)
            assert used <= row.shared_memory(plan.product)
            higher = replace(tile, stages=tile.stages + 1)
            largest = tile.shared_side == row.tile.shared_side
            own = largest or not row.tile.stands_in_one
            beyond = own and tile.stages == row.tile.stages
            assert not (beyond and fits(higher, plan.product, row.target))


def test_kernels_of_spec_yaml_have_some() -> None:
    """Of NN, NT, TN and TT; the launcher takes the height that it predicts best."""
    for name in ("gemm_nn_bf16", "linear_bf16", "gemm_tn_bf16", "gemm_tt_fp16"):
        plan = OWN[name]
        rows = [row for row in plan.rows if row.tile.from_side]
        assert rows
        for row in rows:
            for m in (1, 160, 200, 300, 3000):
                sizes = m, 4096, 4096
                tile = row.tile_for(sizes, plan.product)
                assert tile in row.tiles(plan.product) and row.timed
                times = [
                    row.timed._replace(
                        block=row.timed.block * row.tile.share(one)
                    ).predicted(one, plan.product, sizes, H200.sms)
                    for one in row.tiles(plan.product)
                ]
                chosen = row.tiles(plan.product).index(tile)
                assert times[chosen] == pytest.approx(min(times))


def test_those_timed_say_which_there_are() -> None:
    """As many stages as the highest or one more; others have another ring."""
    deep = replace(LOWER[1], m=144, stages=6)
    whole = [replace(tile, split_k=1) for tile in LOWER]
    other = parse_tile("tma 64x128x64 s8 w4")
    found = [*standing([*LOWER, deep, *whole, other], in_pieces)]
    assert found == [WHOLE, replace(WHOLE, split_k=1)]
    assert known_of(WHOLE, [*LOWER, deep, *whole]) == LOWER[:3]
    assert known_of(LOWER[3], LOWER) == [LOWER[3]]
    assert not known_of(LOWER[3], whole)
    assert not [*standing(LOWER[:1], in_pieces)]


def in_pieces(tile: Tile) -> bool:
    """As if no side were multiplied in one."""
    return False


def test_those_in_one_stand_apart_whatever_their_stages() -> None:
    """Each has those that its ring holds, which may be more than one beyond."""
    found = [*standing([*LOWER, *LOW], LOW.__contains__)]
    assert found == [WHOLE, IN_ONE]
    assert known_of(IN_ONE, [*LOW, LOWER[0]]) == LOW
    assert not [*standing([*LOWER[:1], *LOW[1:2]], LOW.__contains__)]


def test_those_with_parts_of_k_stand_for_such_as_have_it_whole() -> None:
    """Which are timed so, since sums of parts would spill."""
    found = [*standing(WIDE, lambda tile: tile.n != 128)]
    assert found == [COLUMNS, replace(COLUMNS, from_side=96, split_k=1)]
    assert known_of(COLUMNS, WIDE) == WIDE[:3]


def test_its_costs_come_from_all_their_times() -> None:
    """From times that follow the rule, the very costs."""
    truth = Costs(RATES, {WHOLE: Cost(0.6, 1.2, 6.0, 1e-5)})
    draw, samples = random.Random(0), []
    for shape in spread(60):
        times = {}
        for tile in LOWER[:3]:
            timed = truth.timed(WHOLE, PLAIN, H200)
            timed = timed._replace(block=timed.block * WHOLE.share(tile))
            off = 1 + draw.uniform(-0.01, 0.01)
            times[tile] = (
                off * 1e-6 * timed.predicted(tile, PLAIN, shape.sizes, H200.sms)
            )
        samples.append(Sample(PLAIN, shape, times, 1.0, dict.fromkeys(times)))
    found = fitted(samples, [WHOLE], H200)
    for shape in spread(40, start=1000):
        wanted = truth.fastest(WHOLE, PLAIN, H200, shape.sizes)
        tile, time = found.fastest(WHOLE, PLAIN, H200, shape.sizes)
        assert time == pytest.approx(wanted[1], rel=0.05)
    assert found.tiles[WHOLE].block == pytest.approx(0.6, rel=0.1)


def test_a_launch_has_one_time_however_its_parts_were_asked_for() -> None:
    """Where there are as many tiles as SMs, K comes whole."""
    times = {parse_tile("tma 64x64x128 s6 w4"): 9e-6}
    filled = parse_tile("tma 64x64x128 kfill s6 w4")
    times[filled] = 8e-6
    other = parse_tile("tma 64x64x128 k2fill s6 w4")
    few, many = (next(s for s in spread(200) if less(s)) for less in (
        lambda s: _tiles(s) < 40 and s.k > 4096, lambda s: _tiles(s) > 2 * H200.sms,
    ))  # fmt: skip
    tried = [*times, other]
    found = fitting._of_launches(times, tried, many, H200)
    assert found == dict.fromkeys(tried, 8e-6)
    assert fitting._of_launches(times, tried, few, H200) == times


def _tiles(shape: tuple[int, int, int]) -> int:
    return math.ceil(shape[0] / 64) * math.ceil(shape[1] / 64)


@pytest.mark.parametrize(
    "text",
    [
        "tma 160-256x128x64 s4 w8",
        "warp_specialized 160-256x128x64 s4 w4",
        "warp_specialized 256-160x128x64 s4 w8",
        "warp_specialized 160-160x128x64 s4 w8",
        "warp_specialized 152-256x128x64 s4 w8",
        "warp_specialized 128-256x128x64 s4 w8",
        "warp_specialized 160-240x128x64 s4 w8",
        "warp_specialized 64-200x128x64 s4 w8",
        "warp_specialized 76-200x128x64 s4 w8",
        "warp_specialized 72-128x128x64 s4 w8",
        "warp_specialized 72-256x128x64 s4 w8",
        "warp_specialized 128x72-256x64 s4 w8",
        "warp_specialized 128x160-224x64 s4 w8",
        "warp_specialized 72-128x224x64 s4 w8",
        "warp_specialized 72-128x72-224x64 s4 w8",
    ],
)
def test_others_stand_for_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"sides that nothing is known of|no side"):
        parse_tile(text)


def test_a_tile_without_times_is_judged_by_what_it_stands_for() -> None:
    """Whatever depth the one that is launched was timed with."""
    shape = next(one for one in spread(200) if one.m > 1000)
    served = replace(LOWER[1], stages=4)
    sample = Sample(PLAIN, shape, {LOWER[0]: 10e-6, LOWER[1]: 12e-6}, 1.0, LOWER[:2])
    found = fitting._losses(sample, [LOWER[0], WHOLE], [(LOWER[0], 9.0), (served, 8.0)])
    assert found == pytest.approx([0.0, 0.2])
