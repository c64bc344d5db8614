"""Contests with a fake clock, their tables and pictures, and what `bench` refuses."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

torch = pytest.importorskip("torch")

import gemmgen  # noqa: E402
from gemmgen import benchmark  # noqa: E402
from gemmgen.base.errors import EnvironmentMissing, UsageError  # noqa: E402
from gemmgen.benchmark import tables  # noqa: E402
from gemmgen.benchmark.cells import RATIOS, SHARES, by_cells  # noqa: E402
from gemmgen.benchmark.contest import call_time, contest  # noqa: E402
from gemmgen.benchmark.page import as_html  # noqa: E402
from gemmgen.benchmark.reading import from_json, together  # noqa: E402
from gemmgen.benchmark.results import (  # noqa: E402
    Benchmark,
    CallTime,
    Roofline,
    Row,
    geometric_mean,
)
from gemmgen.cli.main import main  # noqa: E402
from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.measurement import Timing  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from tests.fake_device import FakeDevice  # noqa: E402
from tests.own import OWN  # noqa: E402

H200 = benchmark.roofline_of(TARGETS["sm_90"])
SHAPE = Shape(24, 16, 32)


def raced(
    name: str, launcher: Callable[..., object], peers: tuple[str, ...] = ("torch",)
) -> Row:
    device = FakeDevice()
    return contest(OWN[name], launcher, SHAPE, peers, H200, device, 0.001)


def test_a_contest_has_the_kernel_twice_its_peers_and_nothing() -> None:
    row = raced("linear_bf16", torch.nn.functional.linear)
    assert list(row.timings) == ["ours", "torch", "again", "empty"]
    assert list(row.peers) == ["torch"]
    assert row.outside == 0
    assert row.errors["ours"] == row.errors["torch"] != 0
    assert row.traffic == 2 * (24 * 32 + 16 * 32 + 24 * 16)


def test_out_is_given_where_torch_takes_it() -> None:
    given = []

    def launcher(a, b, out=None):  # type: ignore[no-untyped-def]
        given.append(out)
        return torch.mm(a, b, out=out)

    raced("gemm_nn_bf16", launcher)
    assert all(one is not None for one in given)


def test_a_wrong_result_is_found() -> None:
    def wrong(x, w):  # type: ignore[no-untyped-def]
        y = torch.nn.functional.linear(x, w)
        y[-1, -1] += 1
        return y

    row = raced("linear_bf16", wrong)
    assert row.outside == 1
    report = Benchmark({}, H200, 0, (row,))
    assert not report.ok
    assert "linear_bf16 at 24x16x32 is WRONG: 1 elements" in tables.as_text(report)


def test_a_result_that_is_nan_has_no_error_to_report() -> None:
    row = raced("linear_bf16", lambda x, w: torch.nn.functional.linear(x, w) * math.nan)
    assert row.outside == 24 * 16
    assert row.errors["ours"] is None
    json.dumps(Benchmark({}, H200, 0, (row,)).as_json(), allow_nan=False)


def test_a_peer_that_fails_is_told_and_left_out() -> None:
    """torch.mm(out_dtype=) is for GPUs alone."""
    launcher = lambda a, b: a.float() @ b.float()  # noqa: E731
    row = raced("gemm_nn_fp16_to_fp32", launcher, ("torch", "out_dtype"))
    assert list(row.peers) == ["torch"]
    assert "out_dtype" in row.failed
    text = tables.as_text(Benchmark({}, H200, 0, (row,)))
    assert "24x16x32: peer out_dtype could not run: " in text


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("gemm_nn_tf32", "high"),
        ("gemm_nn_tf32x3", "highest"),
        ("gemm_nn_fp32", "highest"),
    ],
)
def test_fp32_races_what_it_is_like(name: str, precision: str) -> None:
    seen = set()

    def launcher(a, b, out=None):  # type: ignore[no-untyped-def]
        seen.add(torch.get_float32_matmul_precision())
        return torch.mm(a, b, out=out)

    torch.set_float32_matmul_precision("medium")
    try:
        raced(name, launcher)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == {precision}


def test_too_little_memory_is_the_machine_s_lack() -> None:
    def launcher(x, w):  # type: ignore[no-untyped-def]
        raise torch.OutOfMemoryError

    with pytest.raises(EnvironmentMissing, match="linear_bf16 at 24x16x32 takes more"):
        raced("linear_bf16", launcher)


def test_cpu_time_is_of_calls_that_make_their_result() -> None:
    given = []

    def launcher(a, b, out=None):  # type: ignore[no-untyped-def]
        given.append(out)
        return a

    found = call_time(OWN["gemm_nn_fp16"], launcher, FakeDevice())
    assert set(given) == {None}
    assert found.ratio < 1
    assert found.timings["torch"].rounds >= 5


def row(kernel: str, shape: Shape, kind: str = "bf16", **microseconds: float) -> Row:
    """A canned row; its traffic is that of a 2-byte product."""
    traffic = 2 * (shape.m * shape.k + shape.n * shape.k + shape.m * shape.n)
    timings = {
        name.replace("_", "-"): Timing(one * 1e-6, 0.01, 100)
        for name, one in microseconds.items()
    }
    errors = {name: 1e-3 for name in ("ours", "torch")}
    return Row(
        kernel, kind, shape, traffic, H200.seconds(kind, shape.flops, traffic), timings,
        errors, 0, {"torch": "F.linear(x, w)"},
    )  # fmt: skip


CANNED = Benchmark(
    {"date": "2026-01-01", "gpu": "NVIDIA H200", "torch": "2.11", "triton": "3.6"},
    H200,
    240 * 2**20,
    (
        row("one", Shape(4096, 4096, 4096), ours=200, again=202, torch=180, empty=1.5),
        row("one", Shape(1, 4096, 4096), ours=10, again=10, torch=20, empty=1.5),
        row(
            "two", Shape(512, 4096, 4096), ours=40, again=40, torch=60, compile=50,
            activation=30, empty=1.5,
        ),
        row(
            "three", Shape(1024, 1024, 1024), "tf32", ours=30, again=30, torch=30,
            empty=1.5,
        ),
    ),
    (CallTime("one", Shape(16, 16, 16), {
        "ours": Timing(4e-6, 0.0, 9), "torch": Timing(8e-6, 0.0, 9),
    }),),
)  # fmt: skip


def test_ratios() -> None:
    square, thin, fused, _ = CANNED.rows
    assert square.ratio == pytest.approx(0.9)
    assert square.noise == pytest.approx(0.01)
    assert thin.ratio == pytest.approx(2.0)
    assert (fused.best, fused.ratio) == ("compile", pytest.approx(1.25))
    assert fused.ratio_to("activation") == pytest.approx(0.75)
    public = ("torch", "compile")
    rest = {name: one for name, one in fused.timings.items() if name not in public}
    assert replace(fused, timings=rest).best == "activation"
    assert square.flops == pytest.approx(2 * 4096**3 / 200e-6)
    assert thin.bandwidth == pytest.approx(thin.traffic / 10e-6)
    assert CANNED.calls[0].ratio == pytest.approx(0.5)
    assert CANNED.empty == 1.5e-6


def test_a_kernel_alone_has_no_ratio() -> None:
    alone = replace(CANNED.rows[0], timings={"ours": Timing(1e-6, 0, 9),
        "again": Timing(1e-6, 0, 9), "empty": Timing(0, 0, 9)})  # fmt: skip
    assert (alone.best, alone.ratio) == (None, None)
    assert "one" in tables.as_text(replace(CANNED, rows=(alone,)))


def test_the_roofline_is_the_slower_of_unit_and_memory() -> None:
    rates = Roofline("GPU", {"bf16": 1e12}, 1e9)
    assert rates.seconds("bf16", Shape(1000, 1000, 500).flops, 1000) == pytest.approx(
        1e-3
    )
    assert rates.seconds("bf16", Shape(1, 1, 1).flops, 10**9) == pytest.approx(1.0)
    target = TARGETS["sm_90"]
    assert H200.flops["bf16"] == 4096 * target.sms * target.rates.clock
    assert CANNED.rows[1].share == pytest.approx(
        CANNED.rows[1].traffic / target.rates.memory_bandwidth / 10e-6
    )


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 2.0, 16.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_json_and_back() -> None:
    text = json.dumps(CANNED.as_json(), allow_nan=False)
    assert from_json(json.loads(text)) == CANNED
    first = json.loads(text)["rows"][0]
    assert (first["shape"], first["best"]) == ("4096x4096x4096", "torch")
    assert first["ratio"] == pytest.approx(0.9)


def test_reports_together() -> None:
    """Of one GPU and the same versions, whatever the dates."""
    later = replace(CANNED, environment={**CANNED.environment, "date": "2026-01-03"})
    both = together([later, CANNED])
    assert both.environment == {
        **CANNED.environment,
        "date": "2026-01-01 to 2026-01-03",
    }
    assert (both.rows, both.calls) == (2 * CANNED.rows, 2 * CANNED.calls)
    assert together([CANNED]) == CANNED
    other = replace(CANNED, environment={**CANNED.environment, "triton": "3.8"})
    with pytest.raises(UsageError, match=r"is of triton 3\.6, one of 3\.8"):
        together([CANNED, other])


def test_cells() -> None:
    """By kernel and rows: geometric means, and where the lowest is."""
    rows = [
        row("one", Shape(m, 4096, 4096), ours=10, again=10, torch=time, empty=1.5)
        for m, time in ((5, 5), (16, 20), (17, 10), (9000, 40))
    ]
    alone = row("two", Shape(16, 64, 64), ours=10, again=10, empty=1.5)
    table = by_cells(replace(CANNED, rows=(*rows, alone)))
    assert table.columns == ("5 to 16", "17 to 64", "over 4096")
    (cells,) = table.kernels.values()
    few = cells["5 to 16"]
    assert (few.shapes, few.lowest, few.at) == (2, 0.5, "5x4096x4096")
    assert few.ratio == pytest.approx(1.0)
    assert few.share == pytest.approx(geometric_mean(one.share for one in rows[:2]))
    assert cells["over 4096"].ratio == pytest.approx(4.0)


def test_colours_of_cells() -> None:
    """White is as fast as the peer; beyond the ends nothing changes."""
    assert RATIOS.colour(1.0) == "#ffffff"
    assert RATIOS.colour(0.1) == RATIOS.colour(0.8) != RATIOS.colour(0.9)
    assert RATIOS.colour(9.0) == RATIOS.colour(1.25) != RATIOS.colour(1.1)
    assert SHARES.colour(0.0) == "#ffffff" != SHARES.colour(0.5)


def test_page() -> None:
    """Each cell has its number, its colour, and what is in it; names are escaped."""
    odd = row("<odd>", Shape(8, 64, 64), ours=10, again=10, torch=9, empty=1.5)
    text = as_html(replace(CANNED, rows=(*CANNED.rows, odd)))
    kinds = [cell.get("title") for cell in ElementTree.fromstring(text).iter("td")]
    assert "1 shape, lowest ratio 0.900 at 4096x4096x4096" in kinds
    assert "&lt;odd&gt;" in text and "<odd>" not in text
    assert f'style="background: {RATIOS.colour(2.0)}"' in text
    assert text.count("<tr><th>one</th>") == 2


def test_summary() -> None:
    one, two, three, together = tables.summary(CANNED)
    assert one["geometric mean"] == "1.342"
    assert (one["lowest"], one["at"]) == ("0.900", "4096x4096x4096")
    assert one["largest noise"] == "1.0%"
    assert (two["to compile"], two["to activation"]) == ("1.250 (1.25)", "0.750 (0.75)")
    assert three["kernel"] == "three"
    assert (together["kernel"], together["shapes"]) == ("all", "4")


def test_text() -> None:
    lines = tables.as_text(CANNED).splitlines()
    assert lines[0].split()[:3] == ["kernel", "MxNxK", "µs"]
    assert lines[1].split()[:2] == ["one", "4096x4096x4096"]
    assert "0.900" in lines[1]
    assert "687.2" in lines[1]
    assert any("An empty call takes 1.50 µs" in line for line in lines)
    assert any(
        line.split() == ["one", "16x16x16", "4.0", "8.0", "0.500"] for line in lines
    )


def test_markdown_tables_are_whole() -> None:
    text = tables.as_markdown(CANNED, "gemmgen bench spec.yaml")
    assert text.startswith("Made by `gemmgen bench spec.yaml`.\n")
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) <= 1
    assert "- `torch`: `F.linear(x, w)`" in text
    assert "| 512x4096x4096 | 40.0 | 1.0% |" in text


def test_plots_are_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = gemmgen.plot(CANNED, tmp_path / "new" / "folder")
    *pictures, page = written
    names = ["ratios.png", "by_rows.png", "speed.png", "roofline.png"]
    assert [path.name for path in pictures] == names
    assert page.name == "by_rows.html" and "<td" in page.read_text()
    for path in pictures:
        data = path.read_bytes()
        width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
        assert data.startswith(b"\x89PNG")
        assert width > 1000
        assert height > 400


def test_what_plots_show() -> None:
    pytest.importorskip("matplotlib")
    from gemmgen.benchmark import plots

    figure = plots.ratios(CANNED)
    assert figure is not None
    one, two, three = figure.axes
    assert [bar.get_width() for bar in one.patches] == pytest.approx([-0.1, 1.0])
    colours = [bar.get_facecolor() for bar in one.patches]
    assert colours[0] != colours[1]
    assert "1.25 (compile)" in [text.get_text() for text in two.texts]
    assert three.get_xlabel().startswith("time of the best peer / our time")
    speeds = plots.speed(CANNED)
    assert speeds is not None
    assert [axes.get_title(loc="left") for axes in speeds.axes] == ["bf16", "tf32"]
    assert all(axes.get_xlabel() == "2 M N K in GFLOP" for axes in speeds.axes)
    roof = plots.roofline(CANNED)
    assert roof is not None
    assert roof.axes[0].get_ylabel() == "TFLOP/s"
    empty = replace(CANNED, rows=())
    assert [draw(empty) for draw in (plots.ratios, plots.speed, plots.roofline)] == [
        *[None] * 3
    ]


GOOD = """\
gemmgen: 1
defaults: {tiles: {m: 16, n: 16, k: 16}}
kernels:
  - {name: one, op: linear, dtype: bf16}
  - {name: two, op: linear, dtype: fp16, epilogue: relu(acc)}
"""


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run `gemmgen bench good.yaml …` without a GPU: exit code and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Path("good.yaml").write_text(GOOD)
    gemmgen.build([Path("good.yaml")])

    def call(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["bench", "good.yaml", *arguments])
        return code, capsys.readouterr().err

    return call


Run = Callable[..., tuple[int, str]]


def test_without_a_gpu_it_is_3(run: Run) -> None:
    message = "gemmgen: bench needs an NVIDIA GPU that torch can use\n"
    assert run() == (3, message)


def test_without_matplotlib_plots_are_3(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, err = run("--plots", "plots")
    assert code == 3
    assert err == "gemmgen: plots needs matplotlib: pip install 'gemmgen[plots]'\n"


def test_a_shapes_file_names_kernels_of_the_spec(run: Run) -> None:
    Path("shapes.yaml").write_text("one: [1x2x3]\ntow: [1x2x3]\n")
    code, err = run("--shapes", "shapes.yaml")
    wanted = "unknown kernel 'tow'; did you mean 'two'? (one of: one, two)"
    assert (code, err) == (2, f"shapes.yaml:2:1: {wanted}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "x*"], "no kernel has a name like 'x*'"),
        (["--shapes", "none.yaml"], "cannot read 'none.yaml': no such file"),
        (
            ["--peers", "torch,compiled"],
            "unknown peer 'compiled'; did you mean 'compile'",
        ),
        (["--report", "report.txt"], "a report is one of .json, .md"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_2(run: Run, arguments: list[str], says: str) -> None:
    code, err = run(*arguments)
    assert code == 2
    assert err.startswith(f"gemmgen: {says}")
    assert len(err.splitlines()) == 1


def test_only_what_is_built_is_timed(run: Run) -> None:
    missing = "generated/two is missing; run `gemmgen build good.yaml` first"
    files = sorted(Path("generated/two").glob("*.py"))
    assert {"__init__", "tiled", "tiles"} <= {file.stem for file in files}
    for file in files:
        text = file.read_text()
        file.unlink()
        assert run() == (2, f"gemmgen: {missing}\n")
        assert run("--only", "one")[0] == 3  # not asked for, and not missed
        file.write_text(text + "# tried by hand\n")
        assert run()[0] == 3
        file.write_text(text)


def test_what_the_spec_no_longer_asks_for_is_not_timed(run: Run) -> None:
    wrong = "generated/two is not what the spec asks for; run `gemmgen build"
    tiled = Path("generated/two/tiled.py")
    old = tiled.read_text()
    Path("good.yaml").write_text(GOOD.replace("relu", "gelu"))
    code, err = run()
    assert code == 2 and wrong in err
    main(["build", "good.yaml"])
    assert run()[0] == 3
    tiled.write_text(old)
    code, err = run()
    assert code == 2 and wrong in err


@pytest.mark.parametrize("seconds", ["0", "-1", "long", "inf", "nan"])
def test_a_budget_is_above_0(run: Run, seconds: str) -> None:
    with pytest.raises(SystemExit) as leaving:
        run("--budget", seconds)
    assert leaving.value.code == 2


def test_the_command_of_a_report_repeats_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemmgen.api.bench", lambda *arguments, **options: CANNED)
    options = ["--only", "o*", "--budget", "1", "--cpu-time", "--shapes", "a b.yaml"]
    assert run(*options, "--report", "out.md") == (0, "")
    first = Path("out.md").read_text().splitlines()[0]
    assert first == (
        "Made by `gemmgen bench good.yaml --shapes 'a b.yaml' --only 'o*' --budget 1 "
        "--cpu-time`."
    )
    assert run("--report", "out.json", "--plots", "plots") == (0, "")
    assert from_json(json.loads(Path("out.json").read_text())) == CANNED
    assert Path("plots/ratios.png").exists()
