"""Tuning with a fake GPU: what is tried, kept, resumed, left out, and decided."""

import ast
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import gemmgen  # noqa: E402
from gemmgen.base.errors import EnvironmentMissing, SpecErrors, UsageError  # noqa: E402
from gemmgen.cli.main import main  # noqa: E402
from gemmgen.cost.resources import fits  # noqa: E402
from gemmgen.cost.time import predicted_time  # noqa: E402
from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.schedules import SCHEDULES, schedule_of  # noqa: E402
from gemmgen.schedules.parts.consumers import multiplies_in_one  # noqa: E402
from gemmgen.schedules.parts.memory import accumulator_registers  # noqa: E402
from gemmgen.schedules.parts.tile import GROUP_M, Tile  # noqa: E402
from gemmgen.select.model_table import describes_operands  # noqa: E402
from gemmgen.select.plan import Plan, plans  # noqa: E402
from gemmgen.select.tuned import tuning_file  # noqa: E402
from gemmgen.select.tuned.decision_list import ANY, Rule  # noqa: E402
from gemmgen.select.tuned.tile_text import format_tile, parse_tile  # noqa: E402
from gemmgen.spec.parse import parse  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from gemmgen.tuning import session  # noqa: E402
from gemmgen.tuning.measured_table import _passing, rules_for  # noqa: E402
from gemmgen.tuning.trials.candidates import (  # noqa: E402
    AS_SLOW,
    KEPT,
    MOST,
    at_shape,
    candidates,
    launched,
)
from gemmgen.tuning.trials.trial import Trial  # noqa: E402
from tests import forked  # noqa: E402
from tests.fake_device import FakeDevice  # noqa: E402
from tests.slow import all_but  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
H200 = TARGETS["sm_90"]


@cache
def untuned() -> dict[str, Plan]:
    spec = parse((ROOT / "spec.yaml").read_bytes(), "spec.yaml")
    return {plan.name: plan for plan in plans(spec)}


# -- candidates ----------------------------------------------------------------------

NAMES = ("linear_bf16", "gemm_nn_tf32", "gemm_nt_tf32x3", "gemm_nt_fp32",
         "gemm_nt_fp64", "linear_bias_silu_residual")  # fmt: skip


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", NAMES)
def test_candidates_fit_and_hold_the_table_s_own(name: str, target: str) -> None:
    plan, where = untuned()[name], TARGETS[target]
    found = candidates(plan, where)
    assert len(set(found)) == len(found) > 10
    assert {tile for one, tile in plan.tiles if one == where} <= set(found)
    for tile in found:
        assert fits(tile, plan.product, where)
        most = schedule_of(tile).most_accumulated(tile, plan.product)
        highest = 200 if multiplies_in_one(tile, plan.product) else 160
        assert accumulator_registers(tile, plan.product) <= most <= highest
        assert parse_tile(format_tile(tile)) == tile
        assert tile.schedule != "warp_specialized" or target == "sm_90"


def test_at_a_shape_are_the_model_s_best_that_can_serve_it() -> None:
    plan = untuned()["linear_bf16"]
    every = candidates(plan, H200)
    shape = Shape(64, 4096, 4096)

    def times(tiles: list[Tile]) -> list[float]:
        return [predicted_time(shape, tile, plan.product, H200) for tile in tiles]

    every = [tile for tile in every if tile.group_m == GROUP_M]
    kept = at_shape(every, plan, shape, H200, SCHEDULES)
    kept = [tile for tile in kept if tile.group_m == GROUP_M]
    assert times(kept) == sorted(times(kept))
    assert len(kept) <= MOST
    for schedule in {tile.schedule for tile in kept}:
        mine = [tile for tile in kept if tile.schedule == schedule]
        rest = [one for one in every if one.schedule == schedule and one not in kept]
        described = schedule_of(mine[0]).described
        assert described or len({launched(one, shape, H200) for one in mine}) <= 12
        if rest and len(kept) < MOST:
            assert max(times(mine)) <= min(times(rest))
            near = min(times(kept)) * 1.9
            assert not described or min(times(rest)) > near >= max(times(mine))
    assert min(times(every)) == pytest.approx(times(kept)[0]) or "gemv" in str(every[0])


@pytest.mark.parametrize(
    ("m", "groups"), [(100, set()), (300, {2}), (1024, {2}), (2048, {2, 16})]
)
def test_the_best_are_timed_in_other_groups_where_these_differ(
    m: int, groups: set[int]
) -> None:
    plan, shape = untuned()["linear_bf16"], Shape(m, 4096, 4096)
    every = candidates(plan, H200)
    kept = at_shape(every, plan, shape, H200, SCHEDULES)
    grouped = [tile for tile in kept if tile.group_m != GROUP_M]
    assert {tile.group_m for tile in grouped if tile.m == 128} == groups
    assert set(grouped) <= set(every) and len(grouped) <= 10
    for tile in grouped:
        assert replace(tile, group_m=GROUP_M) in kept


def able(aligned: bool) -> list[str]:
    """The schedules that can serve tensors."""
    return [name for name, row in SCHEDULES.items() if aligned or not row.described]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("m", [1, 4, 5, 4096])
def test_at_a_shape_descriptors_and_rows_decide(m: int, aligned: bool) -> None:
    plan = untuned()["linear_bf16"]
    shape = Shape(m, 4096, 4096)
    kept = at_shape(candidates(plan, H200), plan, shape, H200, able(aligned))
    assert kept
    assert any(SCHEDULES[one.schedule].described for one in kept) == aligned
    if m in (1, 5, 4096):  # of two to four rows, a tensor core may well be better
        assert any(tile.schedule == "gemv" for tile in kept) == (m == 1)


# -- from times to rules -------------------------------------------------------------


def timed(plan: Plan, *shapes: Shape, aligned: bool = True) -> dict[Shape, dict]:
    """As the model says, but for one tile that is twice as fast at each shape."""
    times = {}
    for number, shape in enumerate(shapes):
        kept = at_shape(candidates(plan, H200), plan, shape, H200, able(aligned))
        if aligned:
            kept = [tile for tile in kept if SCHEDULES[tile.schedule].needs_aligned]
        kept = kept[::4]  # a quarter as many take a quarter as long
        each = {tile: predicted_time(shape, tile, plan.product, H200) for tile in kept}
        surprise = kept[number % len(kept)]
        each[surprise] = 0.5 * min(each.values())
        times[shape] = each
    return times


def chosen(rules: list[Rule], shape: Shape) -> Tile:
    return next(
        rule.tile
        for rule in rules
        if all(one <= most for one, most in zip(shape, rule.limits, strict=True))
    )


SHAPES = [Shape(16, 8192, 8192), Shape(256, 4096, 4096), Shape(4096, 4096, 4096),
          Shape(1024, 512, 2048), Shape(128, 1024, 16384)]  # fmt: skip
ODD = [Shape(333, 4097, 1023), Shape(5, 1001, 999), Shape(3000, 513, 5001)]


@pytest.mark.parametrize(
    "name", all_but({"gemm_nt_tf32x3"}, ["linear_bf16", "gemm_nt_tf32x3"])
)
def test_measured_shapes_get_about_their_best_tile(name: str) -> None:
    plan = untuned()[name]
    times = timed(plan, *SHAPES) | timed(plan, *ODD, aligned=False)
    rules, others = rules_for(plan, H200, times)
    for shape in SHAPES:
        tile = chosen(rules, shape)
        assert times[shape][tile] <= 1.05 * min(times[shape].values())
    for shape in ODD:
        tile = chosen(others, shape) if others else None
        assert tile is None or times[shape][tile] <= 1.05 * min(times[shape].values())


def test_nothing_measured_decides_nothing() -> None:
    assert rules_for(untuned()["linear_bf16"], H200, {}) == ([], [])


def test_far_from_what_was_timed_the_model_chooses_among_its_own_tiles() -> None:
    """Of one large product alone none of the tiles near the fastest is for few rows."""
    plan = untuned()["gemm_nt_tf32x3"]
    large = Shape(4096, 4096, 4096)
    (each,) = timed(plan, large).values()
    near = {
        tile: time for tile, time in each.items() if time <= 1.2 * min(each.values())
    }
    assert min(tile.m for tile in near) >= 64
    rules, _ = rules_for(plan, H200, {large: near})
    first = next(rule for rule in rules if rule.limits[0] >= 4)
    assert first.tile.m == 16 and first.tile not in near
    assert rules[-1].tile in near


@pytest.mark.slow
def test_the_first_table_is_for_descriptors_and_ends_for_every_triton() -> None:
    plan = untuned()["linear_bf16"]
    rules, others = rules_for(plan, H200, timed(plan, *SHAPES))
    assert others == []
    assert all(SCHEDULES[rule.tile.schedule].needs_aligned for rule in rules)
    assert rules[-1].limits == (ANY, ANY, ANY)
    assert not describes_operands(rules[-1].tile)
    assert any(describes_operands(rule.tile) for rule in rules)


@pytest.mark.slow
def test_shapes_that_are_not_aligned_decide_the_second_table_alone() -> None:
    plan = untuned()["linear_bf16"]
    aligned = timed(plan, *SHAPES)
    alone, _ = rules_for(plan, H200, aligned)
    both, others = rules_for(plan, H200, aligned | timed(plan, *ODD, aligned=False))
    assert both == alone
    assert others[-1].limits == (ANY, ANY, ANY)
    assert others[-1].tile.schedule in ("tiled", "split_k")
    assert not any(SCHEDULES[rule.tile.schedule].described for rule in others)


def test_a_kernel_without_descriptors_has_one_table() -> None:
    plan = untuned()["gemm_nt_fp32"]
    rules, others = rules_for(plan, H200, timed(plan, *ODD, aligned=False))
    assert rules and others == []
    assert rules[-1].limits == (ANY, ANY, ANY)


@pytest.mark.slow
def test_a_measurement_says_something_of_shapes_nearby() -> None:
    """One tile is twice as fast as the model thinks, at one shape; next to it too."""
    plan = untuned()["linear_bf16"]
    shape, near = Shape(2048, 4096, 4096), Shape(4096, 6144, 4096)
    kept = at_shape(candidates(plan, H200), plan, shape, H200, SCHEDULES)
    kept = [tile for tile in kept if SCHEDULES[tile.schedule].needs_aligned][::3]
    slow = sorted(kept, key=lambda one: predicted_time(near, one, plan.product, H200))
    surprise = slow[3]
    times = {tile: predicted_time(shape, tile, plan.product, H200) for tile in kept}
    before, _ = rules_for(plan, H200, {shape: times})
    after, _ = rules_for(plan, H200, {shape: {**times, surprise: times[slow[0]] / 2}})
    assert chosen(before, near) != surprise
    assert chosen(after, near) == surprise


# -- a trial -------------------------------------------------------------------------

SMALL = Shape(16, 64, 128)


@cache
def rendered() -> tuple[list[Tile], ModuleType]:
    """The candidates' module, which takes a while to render."""
    trial = Trial(untuned()["linear_bf16"], H200, FakeDevice())
    return trial.tiles, trial.module


class Played(Trial):
    """A trial whose launches are torch's; `spoil` says what goes wrong with a tile."""

    def __init__(self, device: FakeDevice, spoil: Callable[[int], object]) -> None:
        self.plan, self.target, self.device = untuned()["linear_bf16"], H200, device
        self.tiles, self.module = rendered()
        self.rows = dict(zip(self.tiles, self.module.TILES, strict=True))
        self.left_out = {}
        self.spoil = spoil
        self.calls = 0

    def _call(self, tile, given, outs):  # type: ignore[no-untyped-def]
        number = self.tiles.index(tile)
        device: FakeDevice = self.device  # type: ignore[assignment]
        x, w = given.arguments
        right = x.double() @ w.double().T
        timed = device.call(str(number), 1e-3 * (1 + number))

        def call() -> object:
            self.calls += 1
            timed()
            spoiled = self.spoil(number)
            if isinstance(spoiled, Exception):
                raise spoiled
            outs[0].copy_(right)
            if spoiled == "wrong":
                outs[0][3, 5] += 1
            if spoiled == "unwritten":
                outs[0][0, 0] = torch.nan
            return SimpleNamespace(n_spills=7 if spoiled == "spills" else 0)

        return call


def test_a_trial_keeps_the_best_of_the_tiles_that_work() -> None:
    """A tile of `Played` takes the longer, the later it stands among the candidates."""
    trial = Played(FakeDevice(), lambda number: None)
    times = trial.race(SMALL)
    kept = at_shape(trial.tiles, trial.plan, SMALL, H200, SCHEDULES)
    order = sorted(kept, key=trial.tiles.index)
    limit = AS_SLOW * (1 + trial.tiles.index(order[0]))
    best = [tile for tile in order if 1 + trial.tiles.index(tile) <= limit][:KEPT]
    assert len(kept) > len(best) > 1 and set(times) == set(best)
    assert trial.left_out == {}
    for tile, seconds in times.items():
        assert seconds == pytest.approx(1e-3 * (1 + trial.tiles.index(tile)))


def test_times_of_the_losers_are_on_the_scale_of_the_final() -> None:
    """The GPU gets slower all the time; the order of the tiles is right even so."""
    trial = Played(FakeDevice(drift=1.0003), lambda number: None)
    times = trial.race(SMALL)
    order = sorted(times, key=lambda tile: times[tile])
    numbers = [trial.tiles.index(tile) for tile in order]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("wrong", "1 wrong elements"),
        ("unwritten", "1 wrong elements"),
        ("spills", "spills 7 registers"),
        (RuntimeError("out of resource\nand more"), "RuntimeError: out of resource"),
    ],
    ids=str,
)
def test_what_does_not_work_is_left_out(what: object, says: str) -> None:
    trial = Played(FakeDevice(), lambda number: None)
    kept = at_shape(trial.tiles, trial.plan, SMALL, H200, SCHEDULES)
    first = {launched(one, SMALL, H200): one for one in reversed(kept)}
    bad = trial.tiles.index(list(first.values())[-3])
    trial.spoil = lambda number: what if number == bad else None
    times = trial.race(SMALL)
    assert trial.left_out == {trial.tiles[bad]: says}
    assert trial.tiles[bad] not in times and times


def test_a_shape_at_which_nothing_works_has_no_times() -> None:
    trial = Played(FakeDevice(), lambda number: "wrong")
    assert trial.race(SMALL) == {}
    assert set(trial.left_out.values()) == {"1 wrong elements"}


def test_a_failure_beside_others_is_tried_again_alone() -> None:
    failed = set()

    def once(number: int) -> object:
        if number in failed:
            return None
        failed.add(number)
        return RuntimeError("no room")

    trial = Played(FakeDevice(), once)
    assert trial.race(SMALL)
    assert trial.left_out == {}


def test_tensors_that_no_descriptor_can_describe_race_pointers() -> None:
    trial = Played(FakeDevice(), lambda number: None)
    assert not any(
        SCHEDULES[one.schedule].described for one in trial.race(Shape(16, 65, 127))
    )


INTERPRETED = """
from gemmgen.verification.interpret import interpreter
interpreter.mend()
from gemmgen.measurement import Timing
from gemmgen.select.plan import plans
from gemmgen.spec.shapes import Shape
from gemmgen.spec.parse import parse
from gemmgen.hardware.targets import TARGETS
from gemmgen.select.tuned.tile_text import format_tile, parse_tile
from gemmgen.tuning.trials import trial
from tests.fake_device import FakeDevice

def race_once(calls, device, **options):  # the interpreter is slow
    return {tile: Timing(1.0, 0.0, 1) for tile, call in calls.items() if not call()}

SPEC = "gemmgen: 1\\nkernels: [{name: one, op: linear, dtype: fp16}]"
(plan,) = plans(parse(SPEC, "spec.yaml"))
tiles = [parse_tile(text) for text in (
    "tiled 16x16x16 s2 w4", "split_k 16x16x16 k2 s2 w4", "tma 16x16x16 k3 s2 w4",
    "persistent 16x16x16 s2 w4", "gemv 1x2x64 s1 w4",
)]
trial.candidates = lambda plan, target: tiles
trial.race = race_once
trial.cpu_count = lambda: 1  # the interpreter knows no threads
# There is no compiled kernel here that could spill.
trial._problem = lambda call, aligned: str(call() or "")
one = trial.Trial(plan, TARGETS["sm_90"], FakeDevice())
for shape in (Shape(3, 24, 40), Shape(3, 23, 39)):
    times = one.race(shape)
    print(sorted(tile.schedule for tile in times))
print(one.left_out)
"""


def test_a_trial_launches_the_tiles_themselves() -> None:
    done = forked.python(ROOT, "-c", INTERPRETED)
    assert done.stdout.splitlines() == [
        "['gemv', 'persistent', 'split_k', 'tiled', 'tma']",
        "['gemv', 'split_k', 'tiled']",
        "{}",
    ], done.stderr


# -- the command ---------------------------------------------------------------------

SPEC = """\
gemmgen: 1
targets: [sm_80, sm_90]
kernels:
  - {name: one, op: linear, dtype: bf16}
  - {name: two, op: gemm, layout: NN, dtype: fp16}
  - {name: fixed, op: linear, dtype: bf16, tiles: {m: 64, n: 64, k: 64}}
"""
LIST = "one: [16x512x512, 64x1024x1024]\ntwo: [128x512x512]\n"
MADE = {"date": "2026-01-01", "gpu": "NVIDIA H200", "driver": "580", "cuda": "13.0",
        "torch": "2.11.0", "triton": "3.6.0", "python": "3.12"}  # fmt: skip
FILE = Path("tuning/nvidia_h200.yaml")


TRIED = [
    *map(parse_tile, ("tma 16x64x128 s5 w4", "tma 128x128x64 s4 w4")),
    *map(
        parse_tile, ("warp_specialized 128x128x64 s5 w4", "persistent 128x128x64 s4 w8")
    ),
]


class Raced:
    """Stands for `Trial`: notes what is raced, and may be interrupted."""

    log: list[str] = []  # noqa: RUF012 (cleared by the fixture)
    stop_at: str | None = None
    left_out_of_all: Mapping[Tile, str] = {}

    def __init__(self, plan: Plan, target: object, device: object) -> None:
        self.plan = plan
        self.left_out: dict[Tile, str] = dict(self.left_out_of_all)
        self.log.append(plan.name)

    def race(self, shape: Shape, usual: Collection[Tile] = ()) -> Mapping[Tile, float]:
        if str(shape) == self.stop_at:
            raise KeyboardInterrupt
        self.log.append(str(shape))
        kept = at_shape(TRIED, self.plan, shape, H200, SCHEDULES)
        return {
            tile: predicted_time(shape, tile, self.plan.product, H200) for tile in kept
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec and shapes, on a machine with something like an H200."""
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    Path("shapes.yaml").write_text(LIST)
    monkeypatch.setattr(session, "require", lambda what: None)
    monkeypatch.setattr(session, "architecture", lambda: 90)
    monkeypatch.setattr(session, "environment", lambda: dict(MADE))
    monkeypatch.setattr(session, "Gpu", FakeDevice)
    monkeypatch.setattr(session, "Trial", Raced)
    monkeypatch.setattr(Raced, "log", [])
    monkeypatch.setattr(Raced, "stop_at", None)
    return tmp_path


def tune(**options: object) -> Path:
    """Tune the spec at its shapes."""
    return gemmgen.tune([Path("spec.yaml")], shapes=Path("shapes.yaml"), **options)


def said_of_tiles(kernel: str) -> str:
    """What a built kernel says of its tiles, on one line."""
    tree = ast.parse(Path(f"generated/{kernel}/tiles.py").read_text())
    return " ".join((ast.get_docstring(tree) or "").split())


def test_what_is_tuned_is_written_and_built(home: Path) -> None:
    done: list[str] = []
    path = tune(on_done=done.append)
    assert path == FILE
    assert done == ["one 16x512x512", "one 64x1024x1024", "two 128x512x512"]
    found = tuning_file.read(path)
    assert (found.gpu, found.target, found.made) == ("NVIDIA H200", "sm_90", MADE)
    assert list(found.kernels) == ["one", "two"]
    assert list(found.kernels["one"].times) == [Shape(16, 512, 512),
                                                Shape(64, 1024, 1024)]  # fmt: skip
    assert all(measured.rules for measured in found.kernels.values())
    assert main(["build", "spec.yaml"]) == 0
    assert "Timed on NVIDIA H200 for sm_90" in said_of_tiles("one")
    fixed = [path.read_text() for path in Path("generated/fixed").glob("*.py")]
    assert fixed and not any("Timed on" in text for text in fixed)
    rule, *_ = found.kernels["one"].rules
    table = Path("generated/one/tiles.py").read_text()
    assert f'Tile("{rule.tile.schedule}"' in table


@pytest.mark.slow
def test_an_interrupted_run_goes_on_where_it_stopped(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raced, "stop_at", "64x1024x1024")
    with pytest.raises(KeyboardInterrupt):
        tune()
    found = tuning_file.read(FILE).kernels
    assert list(found) == ["one"]
    assert list(found["one"].times) == [Shape(16, 512, 512)]
    monkeypatch.setattr(Raced, "stop_at", None)
    Raced.log.clear()
    tune()
    assert Raced.log == ["one", "64x1024x1024", "two", "128x512x512"]
    whole = FILE.read_text()
    FILE.unlink()
    tune()
    assert FILE.read_text() == whole


def test_a_file_without_rules_yet_changes_no_table(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["build", "spec.yaml"]) == 0
    before = said_of_tiles("one")
    monkeypatch.setattr(Raced, "stop_at", "64x1024x1024")
    with pytest.raises(KeyboardInterrupt):
        tune()
    assert main(["build", "spec.yaml"]) == 0
    assert said_of_tiles("one") == before
    assert before.endswith("Timed on NVIDIA H200 for sm_90, else chosen by the model.")


@pytest.mark.slow
def test_a_second_run_measures_nothing_and_a_fresh_one_all(home: Path) -> None:
    tune()
    before = FILE.read_text()
    Raced.log.clear()
    tune()
    assert Raced.log == ["one", "two"]
    assert FILE.read_text() == before
    Raced.log.clear()
    tune(fresh=True)
    assert Raced.log == ["one", "16x512x512", "64x1024x1024", "two", "128x512x512"]


def test_a_fresh_run_keeps_the_shapes_that_it_was_not_asked_for(home: Path) -> None:
    tune()
    Path("shapes.yaml").write_text("one: [16x512x512]\n")
    Raced.log.clear()
    tune(fresh=True)
    assert Raced.log == ["one", "16x512x512"]
    assert len(tuning_file.read(FILE).kernels["one"].times) == 2


@pytest.mark.slow
def test_more_shapes_are_added_to_those_known(home: Path) -> None:
    tune()
    Path("shapes.yaml").write_text("one: [4096x4096x4096]\n")
    Raced.log.clear()
    tune()
    assert Raced.log == ["one", "4096x4096x4096"]
    kernels = tuning_file.read(FILE).kernels
    assert len(kernels["one"].times) == 3
    assert len(kernels["two"].times) == 1


@pytest.mark.parametrize("key", ["driver", "torch", "triton"])
def test_other_versions_measure_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    tune(only="two")
    monkeypatch.setattr(session, "environment", lambda: {**MADE, key: "other"})
    Raced.log.clear()
    tune(only="two")
    assert Raced.log == ["two", "128x512x512"]
    assert tuning_file.read(FILE).made[key] == "other"


def test_another_day_measures_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(only="two")
    monkeypatch.setattr(session, "environment", lambda: {**MADE, "date": "2026-02-02"})
    Raced.log.clear()
    tune(only="two")
    assert Raced.log == ["two"]


def test_only_names_kernels(home: Path) -> None:
    tune(only="t*")
    assert Raced.log == ["two", "128x512x512"]


def test_without_shapes_there_are_default_ones(home: Path) -> None:
    gemmgen.tune([Path("spec.yaml")], only="one")
    assert Raced.log == ["one", *map(str, session.DEFAULT_SHAPES)]


def test_a_shape_at_which_nothing_could_be_timed_breaks_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raced, "race", lambda self, shape: {})
    tune()
    assert tuning_file.read(FILE).kernels["one"].rules == ()
    assert main(["build", "spec.yaml"]) == 0


@pytest.mark.slow
def test_it_says_beforehand_how_much_there_is_to_time(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned: list[int] = []
    done: list[str] = []
    tune(only="one", on_planned=planned.append, on_done=done.append)
    tune(on_planned=planned.append, on_done=done.append)  # goes on
    assert (planned, len(done)) == ([2, 1], 3)
    given = ["tune", "spec.yaml", "--shapes", "shapes.yaml"]
    assert main(given) == 0
    assert capsys.readouterr().err == ""  # nothing is left
    assert main([*given, "--fresh"]) == 0
    assert capsys.readouterr().err == (
        "tune: 3 shapes to time, about 1 min on 16 cores; "
        "interrupted, it goes on where it stopped\n"
    )


def test_what_was_left_out_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tile = parse_tile("tma 64x64x128 s5 w4")
    monkeypatch.setattr(Raced, "left_out_of_all", {tile: "spills 8 registers"})
    said: list[str] = []
    tune(only="two", on_left_out=said.append)
    assert said == ["two: tma 64x64x128 s5 w4: spills 8 registers"]
    assert main(["tune", "spec.yaml", "--shapes", "shapes.yaml", "--only", "two"]) == 0
    caught = capsys.readouterr()
    assert caught.err == f"left out: {said[0]}\n"
    assert caught.out == f"{FILE}: written; next: gemmgen build spec.yaml\n"


def test_no_such_kernel(home: Path) -> None:
    with pytest.raises(UsageError, match=r"no kernel with tiles: auto for sm_90 .*'x'"):
        tune(only="x")
    with pytest.raises(UsageError, match="no kernel with tiles: auto"):
        tune(only="fixed")
    assert not FILE.exists()


def test_a_shape_of_an_unknown_kernel(home: Path) -> None:
    Path("shapes.yaml").write_text("three: [1x2x3]\n")
    with pytest.raises(SpecErrors, match="1:1: unknown kernel 'three'"):
        tune()


def test_a_gpu_that_is_no_target(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "architecture", lambda: 75)
    with pytest.raises(EnvironmentMissing, match="no target like this GPU's, sm_75"):
        tune()


def test_a_gpu_that_the_spec_is_not_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "architecture", lambda: 100)
    with pytest.raises(UsageError, match="no kernel with tiles: auto for sm_100"):
        tune()


def test_a_bad_tuning_file_is_not_overwritten(home: Path) -> None:
    FILE.parent.mkdir()
    FILE.write_text("gemmgen-tuning: 7\n")
    with pytest.raises(SpecErrors, match="gemmgen-tuning must be 1"):
        tune()
    assert FILE.read_text() == "gemmgen-tuning: 7\n"


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["tune", "spec.yaml"]) == 3
    assert "tune needs an NVIDIA GPU that torch can use" in capsys.readouterr().err
    assert os.listdir() == ["spec.yaml"]


def test_calls_that_gemv_takes_from_others_count_in_its_table() -> None:
    """Odd rows get to a row of gemv before those for pointers."""
    gemv, slow, tma, pointers = map(
        parse_tile,
        ("gemv 1x1x256 s1 w1", "gemv 1x2x2048 s1 w4", "tma 16x64x64 s4 w4",
         "split_k 16x64x64 s4 w4"),
    )  # fmt: skip
    times = {Shape(1, 2048, 3001): {gemv: 10e-6, slow: 15e-6, pointers: 14e-6}}
    (point,) = _passing(times, [gemv, slow, tma])
    assert point.sizes == (1, 2048, 3001)
    assert point.times == {gemv: 10e-6, slow: 15e-6, tma: 10e-6}
    assert not list(_passing(times, [tma, pointers]))
