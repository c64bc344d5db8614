"""Layers: timed at a ladder of rows, and served by tiles of their own where it pays."""

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import gemmgen  # noqa: E402
from gemmgen.base.errors import SpecErrors  # noqa: E402
from gemmgen.cli.main import main  # noqa: E402
from gemmgen.cost.time import predicted_time  # noqa: E402
from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.schedules import SCHEDULES  # noqa: E402
from gemmgen.schedules.parts.tile import Tile  # noqa: E402
from gemmgen.select.plan import Plan, load, plans  # noqa: E402
from gemmgen.select.serving import otherwise, row_for  # noqa: E402
from gemmgen.select.tuned import tuning_file  # noqa: E402
from gemmgen.select.tuned.tile_text import format_tile  # noqa: E402
from gemmgen.spec import shapes  # noqa: E402
from gemmgen.spec.parse import parse  # noqa: E402
from gemmgen.spec.shapes import LAYERS, Layer, Shape  # noqa: E402
from gemmgen.tuning.course import course_of  # noqa: E402
from gemmgen.tuning.layers import LADDER, ladder  # noqa: E402
from gemmgen.tuning.trials.candidates import at_shape, searched  # noqa: E402
from gemmgen.verification.contract.tile_choice import check_choice  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402
from gemmgen.verification.example.one_example import Wrong  # noqa: E402
from tests.slow import all_but  # noqa: E402
from tests.test_tuning import FILE, Raced, home  # noqa: E402, F401 (a fixture)

H200 = TARGETS["sm_90"]
LAYER = Layer(4096, 14336)


# -- the file ------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> dict[str, tuple[Shape, ...]]:
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    return shapes.read(path, ("up", "down"), LAYERS)


def test_a_layer_may_say_how_many_rows_its_calls_have(tmp_path: Path) -> None:
    assert read(tmp_path, "up: [4096x14336, 512x64x32]\n") == {
        "up": (Shape(16384, 4096, 14336), Shape(512, 64, 32))
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("up: [4096]", "1:6: a layer must be like 4096x14336, not number 4096"),
        ("up: [4096x]", "1:6: layer '4096x' must be like 4096x14336 (NxK) or"),
        ("up: [64x0]", "1:6: layer '64x0' has a size outside of 1 to 2147483647"),
        ("up: [64x32, 8x64x32]", "1:13: layer 8x64x32 is listed twice for up"),
        ("up: 64x32", "1:5: the layers of up must be a list, not text '64x32'"),
        ("[up]", "1:1: layers are a map from kernels to lists, not a list"),
    ],
)
def test_what_is_no_layer(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SpecErrors, match=re.escape(says)):
        read(tmp_path, text)


def test_a_ladder_ends_at_the_most_rows_and_where_products_get_large() -> None:
    rows = [shape.m for shape in ladder(Shape(100, 64, 32))]
    assert rows == [*(one for one in LADDER if one < 100), 100]
    assert [shape.m for shape in ladder(Shape(16384, 64, 32))] == list(LADDER)
    large = ladder(Shape(16384, 57344, 8192))
    assert large and all(shape.flops <= 2e12 for shape in large)


# -- what follows from times -----------------------------------------------------------


@cache
def plan() -> Plan:
    kernel = "{name: up, op: linear, dtype: bf16}"
    text = f"gemmgen: 1\ntargets: [sm_90]\nkernels: [{kernel}]\n"
    (one,) = plans(parse(text.encode(), "spec.yaml"))
    return one


@cache
def tiles() -> tuple[Tile, ...]:
    """Some that serve the layer, whatever its rows."""
    every = at_shape(
        searched(plan(), H200), plan(), Shape(256, *LAYER), H200, SCHEDULES
    )
    return tuple(every[:12:3])


def usual(rows: int) -> Tile:
    """The tile that a call takes where nothing is said of the layer."""
    shape = Shape(rows, *LAYER)
    return otherwise(plan(), shape, H200).tile_for(shape.sizes, plan().product)


Times = Mapping[int, Mapping[Tile, float]]


def pins(times: Times):  # type: ignore[no-untyped-def]
    by_shape = {Shape(rows, *LAYER): each for rows, each in times.items()}
    course = course_of(plan(), H200, LAYER, by_shape)
    return list(course.pins()) if course else []


def alike(rows: int) -> dict[Tile, float]:
    """What the model says, the usual tile among them."""
    shape = Shape(rows, *LAYER)
    return {
        tile: predicted_time(shape, tile, plan().product, H200)
        for tile in (*tiles(), usual(rows))
    }


def test_where_the_usual_tile_is_as_fast_nothing_is_pinned() -> None:
    times = {rows: dict.fromkeys(alike(rows), 1e-5) for rows in LADDER}
    assert pins(times) == []
    nearly = {
        rows: {tile: 1e-5 if tile == usual(rows) else 0.985e-5 for tile in each}
        for rows, each in times.items()
    }
    assert pins(nearly) == []
    assert pins({}) == []


def test_a_faster_tile_serves_the_rows_where_it_is_faster() -> None:
    """At 128 to 320 rows; what is chosen between rows of the ladder may be either."""
    fast, gaining = tiles()[0], [rows for rows in LADDER if 128 <= rows <= 320]
    times = {rows: dict.fromkeys((*tiles(), usual(rows)), 1e-5) for rows in LADDER}
    for rows in gaining:
        assert usual(rows) != fast
        times[rows][fast] = 0.8e-5
    found = pins(times)
    assert {pin.tile for pin in found} == {fast}
    served = [rows for rows in LADDER for pin in found if pin.least <= rows <= pin.most]
    assert served == gaining
    for pin in found:
        assert pin.least <= pin.at <= pin.most and pin.at in times
        assert (pin.seconds, pin.otherwise) == (0.8e-5, 1e-5)


def test_a_usual_tile_without_a_time_counts_as_slow() -> None:
    fast = tiles()[0]
    assert usual(512) != fast
    (pin,) = pins({512: {fast: 1e-5}})
    assert pin.tile == fast and pin.least <= 512 == pin.most == pin.at
    assert pin.otherwise == pytest.approx(1.35e-5)


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_pins_are_borne_out_by_times(data: st.DataObject) -> None:
    """They ascend; at rows that were timed none is slower than what else is taken.

    And no row of the ladder at which that loses much is left to it.
    """
    rungs = sorted(data.draw(st.sets(st.sampled_from(LADDER[:18]), min_size=1)))
    off = st.floats(0.9, 1.3)
    times = {
        rows: {tile: time * data.draw(off) for tile, time in alike(rows).items()}
        for rows in rungs
    }
    found, above = pins(times), 0
    for pin in found:
        assert above < pin.least <= pin.at <= pin.most <= max(rungs)
        above = pin.most
        assert pin.seconds == times[pin.at][pin.tile]
        assert pin.otherwise == times[pin.at][usual(pin.at)] > 1.02 * pin.seconds
    for rows, each in times.items():
        own = [pin.tile for pin in found if pin.least <= rows <= pin.most]
        taken = each[own[0]] if own else each[usual(rows)]
        # What a change costs, over the octaves that a row of the ladder counts for.
        assert taken <= min(each.values()) * (1.02 + 0.005 / 0.125)


def test_between_rows_of_the_ladder_waves_of_tiles_count() -> None:
    """A tile of which one wave holds 200 rows is not taken on for 250, nor for 260."""
    course = course_of(
        plan(), H200, LAYER, {Shape(rows, *LAYER): alike(rows) for rows in (128, 512)}
    )
    assert course is not None
    for tile in tiles():
        for rows in (136, 200, 264, 400):
            shape = Shape(rows, *LAYER)
            wanted = predicted_time(shape, tile, plan().product, H200)
            assert course.seconds(tile, rows) == pytest.approx(wanted)
    assert course.seconds(Tile(16, 16, 16, 8, 2, 4), 200) == math.inf


# -- the command ---------------------------------------------------------------------

SPECS = [Path("spec.yaml")]
LIST = "one:\n  - 256x4096x14336\n  - 64x512x512\n"


@pytest.fixture
def layered(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """The same place, and layers; one tile is faster than the model thinks."""

    def race(self: Raced, shape: Shape, usual: object = ()) -> Mapping[Tile, float]:
        if str(shape) == self.stop_at:
            raise KeyboardInterrupt
        self.log.append(str(shape))
        assert not usual or [*usual] == [  # type: ignore[misc]
            otherwise(self.plan, shape, H200).tile_for(shape.sizes, self.plan.product)
        ]
        tiles = [*usual, FAST]  # type: ignore[misc]
        product = self.plan.product
        times = {tile: predicted_time(shape, tile, product, H200) for tile in tiles}
        return times | {FAST: min(times.values()) * (0.7 if shape.m > 100 else 2)}

    monkeypatch.setattr(Raced, "race", race)
    Path("layers.yaml").write_text(LIST)
    text = Path("spec.yaml").read_text()
    Path("spec.yaml").write_text(text.replace("sm_90]", "sm_90, sm_100]"))
    return home


FAST = Tile(104, 128, 64, 8, 6, 8, "warp_specialized")


def tune(**options: object) -> tuning_file.Measured:
    path = gemmgen.tune(SPECS, layers=Path("layers.yaml"), **options)  # type: ignore[arg-type]
    return tuning_file.read(path).kernels["one"]


def test_layers_are_timed_and_built(
    layered: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    found = tune(on_fitted=said.append)
    large, small = Layer(4096, 14336), Layer(512, 512)
    assert [*found.layers] == [large, small] and found.rules == ()
    assert found.layers[small] == ()
    (pin,) = found.layers[large]
    assert (pin.tile, pin.most) == (FAST, 256) and 96 < pin.least <= 128
    rungs = [shape.m for shape in found.times if shape.n == 4096]
    assert rungs == [rows for rows in LADDER if rows <= 256] and 96 in rungs
    assert any("0.0% slower than the fastest tile" in line for line in said)
    assert main(["build", "spec.yaml"]) == 0
    table = Path("generated/one/tiles.py").read_text()
    assert f"from_rows={pin.least}),  # " in table
    (one,) = (each for each in load(SPECS[0]) if each.name == "one")
    for rows, n, taken in (
        (pin.least - 1, 4096, False), (pin.least, 4096, True), (256, 4096, True),
        (257, 4096, False), (200, 4104, False),
    ):  # fmt: skip
        _, row = row_for(one, Shape(rows, n, 14336), H200)
        assert (row.pin is not None) is taken
    capsys.readouterr()
    assert main(["explain", "spec.yaml", "one", "--shape", "200x4096x14336"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"tile: {format_tile(FAST)}" in told
    assert f"M from {pin.least} to 256, N 4,096 and K 14,336" in told
    assert "timed on NVIDIA H200 for this layer" in told


def test_an_interrupted_ladder_goes_on(
    layered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raced, "stop_at", "160x4096x14336")
    with pytest.raises(KeyboardInterrupt):
        tune()
    half = tuning_file.read(FILE).kernels["one"]
    assert half.layers == {Layer(4096, 14336): (), Layer(512, 512): ()}
    monkeypatch.setattr(Raced, "stop_at", None)
    Raced.log.clear()
    whole = tune()
    assert "128x4096x14336" not in Raced.log and "160x4096x14336" in Raced.log
    assert whole.layers[Layer(4096, 14336)]


def test_other_runs_keep_layers_and_make_nothing_else_of_their_times(
    layered: Path,
) -> None:
    before = tune().layers
    Path("shapes.yaml").write_text("one: [64x1024x1024]\n")
    gemmgen.tune(SPECS, shapes=Path("shapes.yaml"))
    after = tuning_file.read(FILE).kernels["one"]
    assert [*after.layers] == [*before] and after.layers[Layer(4096, 14336)]
    assert [*after.spread] == [Shape(64, 1024, 1024)]
    gemmgen.calibrate(SPECS)
    assert tuning_file.read(FILE).kernels["one"].layers == after.layers


# -- what verify says of it ------------------------------------------------------------


LAYER_FAULTS = [
    ("nothing", "", ""),
    ("N", "return self.N == N and self.K == K", "return self.K == K"),
    ("K", "return self.N == N and self.K == K", "return self.N == N"),
    (
        "the least row",
        "tile.from_rows <= M <= tile.M",
        "tile.from_rows < M <= tile.M",
    ),
    ("N up to", "self.N == N", "self.N >= N"),
    ("K from", "self.K == K", "self.K <= K"),
    ("no least row", "tile.from_rows <= M <= tile.M", "M <= tile.M"),
    ("the last row", "tile.from_rows <= M <= tile.M", "tile.from_rows <= M"),
]
QUICK_FAULTS = {LAYER_FAULTS[0], LAYER_FAULTS[1], LAYER_FAULTS[3]}


@pytest.mark.parametrize(("what", "text", "other"), all_but(QUICK_FAULTS, LAYER_FAULTS))
def test_verify_knows_which_calls_a_layer_has(
    layered: Path, what: str, text: str, other: str
) -> None:
    tune()
    assert main(["build", "spec.yaml"]) == 0
    (one,) = (each for each in load(SPECS[0]) if each.name == "one")
    for name in ("table", "tile"):
        path = Path(f"generated/_runtime/{name}.py")
        path.write_text(path.read_text().replace(text, other))
    module = subject.load(Path("generated/one/__init__.py").absolute())
    if what == "nothing":
        assert check_choice(one, module, 1) > 100
    else:
        with pytest.raises(Wrong):
            check_choice(one, module, 1)
