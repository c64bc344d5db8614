"""What tiles cost: fitted to times, kept in tuning files, chosen by in tables."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen.base.errors import Mistakes, SpecErrors
from gemmgen.cost.resources import fits, programs_at_a_time
from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Product, Rates, Tile
from gemmgen.select.plan import Plan, load, plans
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.costs import (
    MOST,
    Cost,
    Costs,
    costs_text,
    kind_of,
    read_costs,
)
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.parse import read
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.fitting import costs as tuning_costs
from gemmgen.tuning.fitting.choice import Choice
from gemmgen.tuning.fitting.costs import LEAST, costs_of, kinds
from gemmgen.tuning.fitting.fit import Sample, fitted
from gemmgen.tuning.measured_table import with_unaligned
from gemmgen.tuning.trials.spread import spread
from gemmgen.yaml.reader import load as load_yaml
from tests.own import OWN

H200 = TARGETS["sm_90"]
PLAIN = Product("bf16", 2, 2, 2)
GELU = Product("bf16", 2, 2, 2, operations=36)
RATES = Rates(
    *(2, 2, 1.5, 4.6e6, 1.9e7, 2.5e6, 1.8, 4.5),
    *(1.5, 7e4, 0.2, 4e8, 9e7, 140.0),
)
COSTS = Costs(
    RATES,
    {
        parse_tile(text): Cost(*numbers)
        for text, *numbers in (
            ("tma 16x64x256 kfill s5 w4", 0.22, 1.9, 3.4, 6e-5),
            ("tma 64x64x128 kfill s7 w4", 0.21, 2.2, 3.4, 6e-5),
            ("tma 64x64x128 s7 w4", 0.21, 2.2, 3.4, 6e-5),
            ("tma 64x128x64 s8 w4", 0.18, 2.6, 3.4, 6e-5),
            ("warp_specialized 128x128x64 s5 w4", 0.31, 0.3, 5.8, 8e-5),
            ("warp_specialized 128x192x64 s4 w12", 0.45, 0.9, 5.8, 8e-5),
        )
    },
)
FEW_ROWS = parse_tile("split_k 16x32x128 k2fill s4 w4")
ALL_ROWS = parse_tile("tiled 64x128x64 s3 w8")
UNALIGNED = (Rule((32, ANY, ANY), FEW_ROWS), Rule((ANY, ANY, ANY), ALL_ROWS))
SPEC = """\
gemmgen: 1
targets: [sm_90]
kernels:
  - name: plain
    op: linear
    dtype: fp16
  - name: added
    op: linear
    dtype: bf16
    epilogue: [residual]
  - name: mixed
    op: gemm
    layout: NN
    dtype: fp32
  - name: pointers
    op: linear
    dtype: bf16
    schedule: tiled
"""


def samples(number: int, noise: float = 0.0) -> list[Sample]:
    """Times that follow from `COSTS`, each off by a drawn share of at most `noise`."""
    draw = random.Random(0)
    return [
        Sample(
            product,
            shape,
            {
                tile: 1e-6
                * COSTS.fastest(tile, product, H200, shape.sizes)[1]
                * (1 + draw.uniform(-noise, noise))
                for tile in COSTS.tiles
            },
            1.0,
            COSTS.tiles,
        )
        for place, shape in enumerate(spread(number))
        for product in [GELU if place % 3 == 0 else PLAIN]
    ]


def test_costs_are_found_again() -> None:
    """What was fitted foretells other shapes, and other epilogues, as truth does."""
    found = fitted(samples(60, noise=0.01), list(COSTS.tiles), H200)
    product = Product("bf16", 2, 2, 2, operations=12)
    for shape in spread(40, start=1000):
        for tile in COSTS.tiles:
            _, truth = COSTS.fastest(tile, product, H200, shape.sizes)
            least = min(
                COSTS.fastest(one, product, H200, shape.sizes)[1] for one in COSTS.tiles
            )
            if truth <= 1.2 * least:
                _, told = found.fastest(tile, product, H200, shape.sizes)
                assert told == pytest.approx(truth, rel=0.05)


def test_parts_of_k_share_their_tile_s_costs() -> None:
    found = fitted(samples(40), list(COSTS.tiles), H200).tiles
    whole, parts = (parse_tile(f"tma 64x64x128 {k}s7 w4") for k in ("", "kfill "))
    assert found[whole] == found[parts]


def test_no_tile_that_is_kept_would_better_be_another() -> None:
    """Losses reckoned anew, of 8 tiles at 30 shapes; kept ones may not be left out."""
    draw = random.Random(3)
    tiles = [parse_tile(f"tma 64x64x64 s{2 + at} w4") for at in range(8)]
    predicted = [[draw.random() for _ in tiles] for _ in range(30)]
    lost = [[draw.random() for _ in tiles] for _ in range(30)]

    def loss(kept: list[Tile]) -> float:
        places = [tiles.index(tile) for tile in kept]
        pairs = zip(predicted, lost, strict=True)
        return sum(each[min(places, key=times.__getitem__)] for times, each in pairs)

    choice = Choice(tiles, predicted, lost)
    first = min(tiles, key=lambda tile: loss([tile]))
    assert choice.grown([], tiles, 1) == [first]
    third = min(
        (tile for tile in tiles[3:] if tile != first),
        key=lambda tile: loss([tiles[0], first, tile]),
    )
    assert choice.grown([tiles[0], first], tiles[3:], 3) == [tiles[0], first, third]
    kept = choice.exchanged(tiles[:3], tiles)
    assert loss(kept) < loss(tiles[:3]) and len({*kept}) == 3
    for place in range(3):
        for other in tiles:
            changed = [*kept[:place], other, *kept[place + 1 :]]
            assert loss(changed) >= loss(kept) or len({*changed}) < 3
    assert len(choice.grown(kept, tiles, 20)) == len(tiles)


def test_programs_that_wait_run_beside_others() -> None:
    """As many as an SM has room for; those that go from tile to tile have it alone."""
    few, many = parse_tile("tma 64x64x64 s4 w4"), parse_tile("tma 64x64x64 s8 w4")
    walking = parse_tile("warp_specialized 64x64x64 s4 w4")
    counts = [programs_at_a_time(one, PLAIN, H200) for one in (few, many, walking)]
    assert counts == [3, 1, 1]  # of 64 KiB and 128 KiB in 228


def test_regret_is_that_of_shapes_left_out() -> None:
    costs, regret = costs_of(samples(60), H200)
    assert set(costs.tiles) <= set(COSTS.tiles) and len(costs.tiles) <= MOST
    assert regret.shapes == 15 and regret.mean <= regret.percentile <= regret.worst
    assert regret.mean < 0.01
    assert str(regret).startswith(f"{regret.mean:.1%} slower than the fastest tile")


def test_a_kernel_that_cannot_have_some_tiles_gets_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning_costs, "MOST", 3)
    best, _ = costs_of(samples(60), H200)
    lacking = {*list(best.tiles)[:2]}
    costs, _ = costs_of(samples(60), H200, [lambda tile: tile not in lacking])
    assert len(best.tiles) == 3 and list(costs.tiles)[:3] == list(best.tiles)
    assert len([tile for tile in costs.tiles if tile not in lacking]) == 3


def test_a_table_has_the_first_tiles_that_a_kernel_can_have() -> None:
    sides = [(m, n) for n in (128, 64) for m in (16, 32, 64, 128)]
    texts = [f"tma {m}x{n}x{k} s2 w4" for m, n in sides for k in (64, 128, 32)]
    costs = Costs(RATES, dict.fromkeys(map(parse_tile, texts), Cost(0.3, 0.9, 5, 4e-5)))
    whole = [row.tile for row in one(SPEC, "plain", {"bf16": costs}).rows if row.timed]
    assert len(texts) > MOST and whole == list(costs.tiles)[:MOST]


def test_a_tile_that_was_never_tried_is_not_taken_for_slow() -> None:
    """Of a tile that only some kernels try, those times alone count."""
    rare = parse_tile("tma 64x128x64 s8 w4")
    every = samples(60)
    some = [
        (
            sample
            if place % 2
            else Sample(
                sample.product,
                sample.shape,
                {tile: time for tile, time in sample.times.items() if tile != rare},
                1.0,
                [tile for tile in COSTS.tiles if tile != rare],
            )
        )
        for place, sample in enumerate(every)
    ]
    for found in (fitted(some, list(COSTS.tiles), H200),):
        assert found.tiles[rare].block == pytest.approx(0.18, rel=0.1)


def test_what_was_not_tried_at_a_shape_loses_what_is_predicted() -> None:
    """And what was tried and left out a fifth more than what was kept at least."""
    timed, slow, untried = (parse_tile(f"tma 64x64x64 s{at} w4") for at in range(2, 5))
    shape = spread(1)[0]
    sample = Sample(PLAIN, shape, {timed: 10e-6}, 13e-6, {timed, slow})
    served = [(timed, 8.0), (slow, 8.0), (untried, 10.0)]
    losses = tuning_costs._losses(sample, [tile for tile, _ in served], served)
    assert losses == pytest.approx([0.0, 1.2 * 1.3 - 1, 0.25])


def test_tiles_are_tried_that_the_model_thinks_best_at_a_shape() -> None:
    """Of 256 rows for thousands of rows, and for sixteen none; timed ones as well."""
    times: Mapping[Tile, float] = dict.fromkeys(COSTS.tiles, 1e-5)
    every = Measured((), (), dict.fromkeys(spread(LEAST), times))
    found = kinds({"plain": one(SPEC, "plain")}, H200, {"plain": every})["bf16_along_k"]
    for sample in found:
        assert {*sample.times} <= {*sample.tried}
        most = max(tile.m for tile in sample.tried)
        assert most == 256 or sample.shape.m < 2048
        assert most < 256 or sample.shape.m > 64
    assert {sample.shape.m for sample in found} >= {16, 6020}


def test_kinds_need_enough_shapes() -> None:
    plan = one(SPEC, "plain")
    times: Mapping[Tile, float] = dict.fromkeys(COSTS.tiles, 1e-5)
    few = Measured((), (), dict.fromkeys(spread(LEAST - 1), times))
    enough = Measured((), (), dict.fromkeys(spread(LEAST), times))
    assert kinds({"plain": plan}, H200, {"plain": few}) == {}
    assert list(kinds({"plain": plan}, H200, {"plain": enough})) == ["bf16_along_k"]
    assert kinds({}, H200, {"plain": enough}) == {}


def one(text: str, name: str, costs: Mapping[str, Costs] | None = None) -> Plan:
    tuning = Tuning("NVIDIA H200", "sm_90", {}, {}, None, costs or {})
    found = plans(read(text.encode(), "spec.yaml", Mistakes()), [tuning])
    return next(plan for plan in found if plan.name == name)


def test_a_table_takes_what_is_known_of_its_kind() -> None:
    """Of fp16 too; not of fp32, nor where the spec asks for another schedule."""
    plan = one(SPEC, "plain", {"bf16": COSTS})
    costed = [row.tile for row in plan.rows if row.timed]
    assert costed == list(COSTS.tiles)
    places = [place for place, row in enumerate(plan.rows) if row.timed]
    assert places == list(range(places[0], places[-1] + 1))
    for row in plan.rows[: places[0]]:
        assert not schedule_of(row.tile).described
        assert row.m == 1 or (row.n is not None and row.n <= 8)
    for row in plan.rows[places[-1] + 1 :]:
        assert not schedule_of(row.tile).described
    assert plan.chosen_by.startswith("Timed on NVIDIA H200 for sm_90")
    for other in ("mixed", "pointers"):
        assert not any(row.timed for row in one(SPEC, other, {"bf16": COSTS}).rows)


def test_rows_for_tensors_without_descriptors_are_those_of_the_layout() -> None:
    """Behind tiles with costs: all that calls can reach, of schedules that serve."""
    for layout, told in (("NT", True), ("NN", False)):
        costs = replace(COSTS, unaligned={layout: UNALIGNED})
        rows = one(SPEC, "plain", {"bf16": costs}).rows
        behind = [row for row in rows if row.architecture == 90 and not row.timed]
        mine = [row for row in behind if row.tile in (FEW_ROWS, ALL_ROWS)]
        assert [(row.m, row.tile) for row in mine] == [
            *([(32, FEW_ROWS), (None, ALL_ROWS)] if told else [])
        ]
        assert not told or behind[-2:] == mine
    tiled = SPEC.replace("16\n", "16\n    schedule: [tma, tiled]\n", 2)
    there = one(tiled, "plain", {"bf16": replace(COSTS, unaligned={"NT": UNALIGNED})})
    assert FEW_ROWS not in [row.tile for row in there.rows]


def test_rules_for_tensors_without_descriptors_come_from_their_times() -> None:
    """Of the first kernel of a layout that has such; costs of other kinds have none."""
    plan = one(SPEC, "plain")
    odd = {Shape(m, 2047, 1023): {FEW_ROWS: m * 1e-6, ALL_ROWS: 9e-5} for m in (8, 400)}
    described = {shape: {tile: 1e-5 for tile in COSTS.tiles} for shape in spread(40)}
    timed = Measured((), (), {**odd, **described})
    tuning = Tuning("", "sm_90", {}, {"plain": timed}, None, {"bf16_along_k": COSTS})
    found = with_unaligned(tuning, [plan], H200).costs["bf16_along_k"].unaligned
    assert list(found) == ["NT"]
    rules = found["NT"]
    assert rules[0].tile == FEW_ROWS and rules[0].limits[0] < 400
    assert rules[-1] == Rule((ANY, ANY, ANY), ALL_ROWS)
    assert with_unaligned(replace(tuning, costs={}), [plan], H200).costs == {}
    only = replace(tuning, kernels={"plain": replace(timed, times=described)})
    assert with_unaligned(only, [plan], H200).costs["bf16_along_k"].unaligned == {}


def test_a_loop_that_waits_for_operands_is_left_out() -> None:
    """A persistent tile that reads a residual by pointers: 1.7 times as slow (H200)."""
    loop = parse_tile("persistent 128x128x64 s4 w8")
    costs = Costs(RATES, {**COSTS.tiles, loop: Cost(0.3, 0.9, 5.5, 4e-5)})
    spec = SPEC.replace("16\n", "16\n    schedule: [tma, persistent]\n", 2)
    there = [row.tile for row in one(spec, "plain", {"bf16": costs}).rows]
    beside = [row.tile for row in one(spec, "added", {"bf16": costs}).rows]
    assert loop in there and loop not in beside
    by_itself = [row.tile for row in one(SPEC, "plain", {"bf16": costs}).rows]
    assert loop not in by_itself


def test_every_kernel_of_the_project_fits_its_tiles() -> None:
    for plan in OWN.values():
        for row in plan.rows:
            if row.timed:
                assert fits(row.tile, plan.product, row.target)
                assert kind_of(plan.product) in ("bf16", "ieee")


def test_a_file_keeps_costs(tmp_path: Path) -> None:
    costs = replace(COSTS, unaligned={"NT": UNALIGNED, "TN": UNALIGNED[1:]})
    tuning = Tuning("NVIDIA H200", "sm_90", {}, {}, None, {"bf16": costs})
    path = tmp_path / "nvidia_h200.yaml"
    path.write_text(tuning.as_text())
    found = tuning_file.read(path).costs["bf16"]
    assert found.tiles == COSTS.tiles and found.unaligned == costs.unaligned
    assert found.rates[2:] == RATES[2:]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  bf16:", "  half:", "'half' is no kind of product (one of: bf16, "),
        ("wait: 1.5", "wait: 0", "wait must be a number above zero"),
        ("wait: 1.5", "slow: 1.5", "unknown key 'slow'"),
        ("wait: 1.5, ", "", "the rates lack wait: delete these costs, and `gemmgen "),
        ("[0.22, 1.9, 3.4, 6e-05]", "[0.22, 1.9, 3.4]", "costs are a list of 4 num"),
        ("[0.22, 1.9, 3.4, 6e-05]", "0.22", "costs are a list of 4 numbers: block, "),
        ("0.22, 1.9", "0.22, -1.9", "once must be a number above zero"),
        ("tma 16x64x256 kfill", "tma 17x64x256 kfill", "17x64x256"),
        ("      NT:", "      NX:", "'NX' is no layout (one of: NN, NT, TN, TT)"),
        ("{M: 32", "{M: 0", "M must be a whole number from 1 to"),
    ],
)
def test_what_is_wrong_with_costs_is_said(old: str, new: str, says: str) -> None:
    costs = replace(COSTS, unaligned={"NT": UNALIGNED})
    text = "\n".join(["costs:", *costs_text({"bf16": costs})]) + "\n"
    assert old in text
    mistakes = Mistakes()
    root = load_yaml(text.replace(old, new).encode(), "tuning.yaml", mistakes)
    read_costs(root.at("costs"), mistakes)
    with pytest.raises(SpecErrors, match=r"tuning\.yaml") as raised:
        mistakes.stop_if_any()
    assert says in str(raised.value)


def test_shapes_are_spread_the_same_way_each_time() -> None:
    found = spread(100)
    assert found == spread(100) and len(set(found)) == 100
    assert not set(found) & set(spread(100, start=400))
    assert all(2 * s.m * s.n * s.k <= 2e12 for s in found)
    assert all(s.n % 64 == 0 and s.k % 64 == 0 for s in found)
    rows = [s.m for s in found]
    assert min(rows) < 8 and max(rows) > 4096
    assert 40 <= sum(48 <= m <= 1536 for m in rows) <= 90
    assert sum(m & (m - 1) == 0 or m % 3 == 0 for m in rows) >= 40
    wide = [s.n for s in found if s.n > 2048]
    assert sum(n % 256 == 0 for n in wide) >= len(wide) // 2


def test_a_spec_anywhere_has_the_costs_that_come_with_gemmgen(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    entry = "- {name: one, op: linear, dtype: fp16, epilogue: relu(acc)}\n"
    spec.write_text(f"gemmgen: 1\ntargets: [sm_80, sm_90]\nkernels:\n{entry}")
    (ours,) = tuning_file.built_in()
    assert not ours.kernels
    rows = {row.tile: row for row in load(spec)[0].rows if row.timed}
    assert set(rows) <= set(ours.costs["bf16_along_k"].tiles) and len(rows) > 8
    assert {row.architecture for row in rows.values()} == {90}
    # Its own costs win, and its own rules are alone.
    folder = tmp_path / tuning_file.FOLDER
    folder.mkdir()
    tile = parse_tile("tma 64x128x64 s4 w4")
    costs = Costs(RATES, {tile: Cost(0.2, 2.0, 3.0, 6e-5)})
    own = Tuning("One", "sm_90", {}, {}, None, {"bf16": costs})
    (folder / "one.yaml").write_text(own.as_text())
    assert {row.tile for row in load(spec)[0].rows if row.timed} == {tile}
    rules = Measured((Rule((ANY, ANY, ANY), tile),), (), {})
    ruled = Tuning("One", "sm_90", {}, {"one": rules})
    (folder / "one.yaml").write_text(ruled.as_text())
    assert not [row for row in load(spec)[0].rows if row.timed]


def test_a_ring_with_fewer_stages_waits_for_blocks() -> None:
    """Of a loop over tiles; programs beside each other wait at different times."""
    *_, timed = COSTS.tiles
    costs = COSTS.timed(replace(timed, stages=3), PLAIN, H200, timed)
    assert costs.block == 1.2 / 2 > COSTS.tiles[timed].block
    assert COSTS.timed(timed, PLAIN, H200, timed).block == COSTS.tiles[timed].block
    deep = parse_tile("tma 64x128x64 s8 w4")
    assert COSTS.timed(replace(deep, stages=3), PLAIN, H200, deep).block == 0.18
    hidden = parse_tile("warp_specialized 128x128x64 s3 w4")  # in 2 * 0.3 us
    quick = Costs(RATES, {hidden: Cost(0.3, 1.0, 5.8, 8e-5)})
    assert quick.timed(replace(hidden, stages=2), PLAIN, H200, hidden).block == 0.6
