"""`gemmgen explain`: the arguments in words agree with what model and oracle do."""

import dataclasses
import json
import math
import re
import shlex
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

import gemmgen
from gemmgen.base.errors import UsageError
from gemmgen.cli.main import main
from gemmgen.cost.resources import fits, resident, shared_memory
from gemmgen.cost.time import estimate, predicted_time
from gemmgen.explanation import Argument, argue
from gemmgen.explanation.raced import raced
from gemmgen.explanation.serving import target_of
from gemmgen.explanation.text import as_text
from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.select.tuned.tuning_file import beside, read
from gemmgen.spec.shapes import Shape
from gemmgen.tables.functions import OPS
from gemmgen.verification.oracle.error_budget import explain
from tests.own import OWN
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
SPEC = str(ROOT / "spec.yaml")
TUNINGS = [read(path) for path in beside(ROOT / "spec.yaml")]


def told(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", *arguments])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


@pytest.mark.parametrize("plan", OWN.values(), ids=lambda plan: plan.name)
def test_every_kernel_has_an_argument(plan) -> None:
    explanation = explain(plan)
    text = explanation.as_text()
    assert max(map(len, explanation.product + explanation.results)) <= 88
    for function in plan.epilogue.functions:
        assert function in text
        if function in OPS:
            assert OPS[function].moved.text in text
            assert OPS[function].rounding.text in text
    for result in plan.results:
        assert f"  {result.name}: value - E" in text


def test_the_numbers_are_those_of_the_oracle(capsys) -> None:
    _, text, _ = told(capsys, SPEC, "linear_gelu_aux", "--error")
    assert "u_acc = 2^-23" in text
    assert "E_acc = 10 (c/8) u_acc (T + P), c = 32: 40 units of T + P" in text
    assert "1.13 e" in text and "10 (|f| + |x|)" in text
    assert "then to bf16 (u = 2^-8)" in text
    assert "out: exact but for what gelu may lose" in text
    assert "  pre: exact\n" in text + "\n"
    _, text, _ = told(capsys, SPEC, "gemm_nn_tf32", "--error")
    assert "c_in = 0.001954" in text and "+ c_in T" in text
    assert "min(sqrt(2^23 / K), 2^11)" in text
    assert "none: the product is the result" in text


def test_a_shape_gives_the_size_of_the_bound(capsys) -> None:
    pytest.importorskip("torch")
    arguments = (SPEC, "linear_gelu_aux", "--error", "--shape", "100x3x256")
    code, out, _ = told(capsys, *arguments, "--format", "json")
    found = json.loads(out)
    assert (code, found["command"], found["kernel"]) == (0, "explain", arguments[1])
    assert found["shape"] == "normal data, seed 0, 64x3x256 of 100x3x256"
    for size in found["sizes"]:
        assert 0 < size["mean_error"] < size["most_error"] < 0.01
        assert size["unbounded"] == 0
    assert [one["result"] for one in found["sizes"]] == ["out", "pre"]
    _, out, _ = told(capsys, *arguments)
    assert "mean |value|" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SPEC, "linear_bia"), "did you mean 'linear_bias'"),
        (
            (SPEC, "linear_bias", "--target", "sm_89"),
            "linear_bias is not built for 'sm_89' (one of: sm_80, sm_90, sm_100)",
        ),
        ((SPEC, "linear_bias", "--plot", "x.jpg"), "a plot is a .png, not 'x.jpg'"),
        ((SPEC, "linear_bias", "--plot", "/no/x.png"), "cannot write '/no/x.png'"),
        ((SPEC, "linear_bia", "--error"), "did you mean 'linear_bias'"),
        ((SPEC, "linear_bias", "--error", "--shape", "1x1x999999"), "K is at most"),
        ((SPEC, "linear_bias", "--error", "--target", "sm_90"), "leave out --error"),
        ((SPEC, "linear_bias", "--error", "--plot", "x.png"), "leave out --error"),
        ((SPEC, "linear_bias", "--measured", "x.json"), "takes --plot FILE.png"),
    ],
    ids=[
        *("no kernel", "no target", "no picture", "no folder"),
        *("no kernel's error", "too large", "target of errors", "plot of errors"),
        "nothing drawn",
    ],
)
def test_what_cannot_be_explained(capsys, arguments, message: str) -> None:
    code, out, err = told(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("more", [(), ("--error",)], ids=["tile", "error"])
@pytest.mark.parametrize("shape", ["3", "3x4", "axbxc", "0x1x1", "-1x1x1"])
def test_bad_shapes_are_usage(capsys, shape: str, more: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as leaving:
        told(capsys, SPEC, "linear_bias", *more, f"--shape={shape}")
    assert leaving.value.code == 2
    assert "--shape" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more", [["--error"], ["--shape", "16x512x512"]], ids=["error", "tile"]
)
def test_no_torch_is_needed(more: list[str]) -> None:
    """A fresh process, in which torch cannot be imported."""
    words = ["explain", "spec.yaml", "linear_bias_gelu", *more]
    code = (
        "import sys; sys.modules.update(torch=None, triton=None, numpy=None); "
        f"from gemmgen.cli.main import main; sys.exit(main({words}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


SHAPES = [
    Shape(4096, 4096, 4096),
    Shape(16, 8192, 8192),
    Shape(1, 4096, 14336),
    Shape(333, 4097, 1023),
    Shape(256, 256, 32768),
    Shape(1, 1, 1),
]
CASES = [
    (plan, shape, target)
    for plan in OWN.values()
    for shape in SHAPES
    for target in plan.targets
]


def argued(
    name: str, shape: Shape = SHAPES[0], target: str = "sm_90", **asked: bool
) -> Argument:
    return argue(OWN[name], shape, target, TUNINGS, **asked)


@pytest.mark.parametrize("plan", OWN.values(), ids=lambda plan: plan.name)
def test_figures_are_those_of_the_model(plan) -> None:
    for shape in SHAPES:
        for name in plan.targets:
            one, target = argue(plan, shape, name, TUNINGS), target_of(
                plan, name, TUNINGS
            )
            tile, guess = parse_tile(one.choice.tile), one.prediction
            cost = estimate(shape.sizes, tile, plan.product, target)
            assert guess.seconds == cost.seconds
            total = guess.launch + guess.outside + max(guess.loop, guess.memory)
            assert guess.seconds == pytest.approx(total)
            assert guess.share == pytest.approx(one.roofline.seconds / guess.seconds)
            assert one.occupancy.resident == resident(tile, plan.product, target)
            assert one.waves.programs == cost.tiles * cost.parts
            assert 0 < one.waves.last <= one.waves.sms
            assert 0 < one.waves.busy <= 1 and 0 < one.waves.inside <= 1
            assert one.block.seconds == cost.each.seconds
            assert [row.chosen for row in one.candidates].count(True) == 1
            timed = {
                row.tile_for(shape.sizes, plan.product): 1e-6
                * row.timed.predicted(row.tile, plan.product, shape.sizes, target.sms)
                for row in plan.rows
                if row.timed and name == "sm_90"
            }
            for row in one.candidates:
                each = parse_tile(row.tile)
                time = predicted_time(shape.sizes, each, plan.product, target)
                assert row.seconds == timed.get(each, time)
            best = min(row.seconds for row in one.candidates)
            if tile in timed:
                assert guess.by_costs == best


@pytest.mark.parametrize("plan", OWN.values(), ids=lambda plan: plan.name)
def test_stages_and_what_caps_them(plan) -> None:
    for shape in SHAPES:
        for name in plan.targets:
            one, target = argue(plan, shape, name, TUNINGS), target_of(
                plan, name, TUNINGS
            )
            tile, stages = parse_tile(one.choice.tile), one.stages
            for depth in stages.depths:
                deep = dataclasses.replace(tile, stages=depth.stages)
                assert depth.shared_memory == shared_memory(deep, plan.product, target)
                assert depth.fits == fits(deep, plan.product, target)
            used = next(row for row in stages.depths if row.stages == tile.stages)
            assert used.fits and used.stages <= stages.most
            assert used.shared_memory == one.occupancy.shared_memory
            arriving = stages.together * one.block.seconds
            assert (stages.needed - 1) * arriving >= stages.planned
            assert (stages.needed - 2) * arriving < stages.planned


@pytest.mark.parametrize(
    ("name", "shape", "target"),
    [(plan.name, *case) for plan, *case in CASES[::7]],
    ids=str,
)
def test_text_is_narrow_and_whole(name: str, shape: Shape, target: str) -> None:
    text = as_text(argued(name, shape, target))
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 88] == []
    titles = [line for line in lines[2:] if line and not line.startswith(" ")]
    assert titles == [
        *("table row", "schedules", "stages", "shared memory and occupancy"),
        *("waves", "roofline", "prediction", "alternatives", "sources"),
    ]
    assert not re.search(r"\bnan\b|\binf\b|None", text)


def test_the_worked_example() -> None:
    """128x256x64, bf16, H200: the arithmetic of docs/stages.md, by hand."""
    spec = ROOT / "examples" / "stages.yaml"
    one = gemmgen.explain(spec, "large")
    block, rates = one.block, TARGETS["sm_90"].rates
    assert block.unit == "wgmma"
    assert block.flops == 2 * 128 * 256 * 64
    assert block.loaded == (128 + 256) * 64 * 2
    assert block.moved == 2 * block.loaded
    assert block.unit_seconds == pytest.approx(block.flops / 4096 / rates.clock)
    assert block.shared_seconds == pytest.approx(block.moved / 128 / rates.clock)
    l2 = block.loaded * 132 / rates.l2_bandwidth
    assert block.l2_seconds == pytest.approx(l2)
    assert one.stages.needed == math.ceil(rates.latency / block.seconds) + 1
    assert one.stages.stages == one.stages.needed_stages == one.stages.needed
    times = [depth.seconds for depth in one.stages.depths]
    assert times[one.stages.needed - 1] == min(times)
    assert all(early >= late for early, late in pairwise(times))
    assert one.occupancy.next_stage == one.occupancy.shared_memory + block.loaded + 8
    assert (one.roofline.flops, one.roofline.bytes) == (2 * 4096**3, 6 * 4096**2)


@pytest.mark.parametrize("name", ["linear_bf16", "gemm_tn_bf16", "linear_gelu_aux"])
def test_the_row_is_the_launcher_s(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `select` of the generated module takes for contiguous tensors."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip(f"generated.{name}")
    from generated._runtime import table as _table

    plan, row_of = OWN[name], {}
    for shape in [*SHAPES, Shape(100, 1000, 520), Shape(2048, 512, 4096)]:
        m, n, k = shape
        a, b = (one.transposed for one in plan.contraction.inputs)
        inputs = (
            torch.empty((k, m) if a else (m, k), dtype=torch.bfloat16),
            torch.empty((n, k) if b else (k, n), dtype=torch.bfloat16),
        )
        types = {"bf16": torch.bfloat16, "fp32": torch.float32}
        results = tuple(
            torch.empty(m, n, dtype=types[one.dtype]) for one in plan.results
        )
        for target in plan.targets:
            sm, sms = TARGETS[target].architecture, TARGETS[target].sms
            monkeypatch.setattr(_table, "compute_capability", lambda device, sm=sm: sm)
            monkeypatch.setattr(_table, "num_sms", lambda device, sms=sms: sms)
            given = (*inputs, *(None for _ in plan.operands), *results)
            described = partial(module.LAUNCHES.via_tma, given)
            starts = _table.row_starts(*inputs[:2])
            found = _table.select(
                module.TILES, inputs[0].device, shape.sizes, starts, described
            )
            row = argued(name, shape, target).choice.row
            assert row is not None and row.of == len(module.TILES)
            members = module.TILES[row.number - 1].members()
            assert found in [member._replace(starts=starts) for member in members]
            limits = [math.inf if one is None else one for one in row.limits.values()]
            assert list(found[2:5]) == limits
            assert parse_tile(row.tile) == Tile(
                found.m, found.n, found.k, found.group_m, found.stages, found.warps,
                found.schedule, found.split_k,
            )  # fmt: skip
            row_of[shape, target] = row.number
    assert len(set(row_of.values())) > 3


def test_measured_times_are_those_of_the_tuning_file() -> None:
    measured = TUNINGS[0].kernels["linear_bf16"].times
    one = argued("linear_bf16", next(iter(measured)))
    assert one.choice.source == "the least predicted time of 17 tiles with costs"
    times = measured[next(iter(measured))]
    assert one.prediction.measured == times[parse_tile(one.choice.tile)]
    assert any(
        row.measured == times.get(parse_tile(row.tile)) for row in one.candidates
    )
    for offer in one.schedules:
        if offer.measured is not None:
            same = [t for tile, t in times.items() if tile.schedule == offer.schedule]
            assert offer.measured == min(same)
    other = argued("linear_bf16", Shape(100, 104, 112))
    assert other.prediction.measured is None and not other.sources.measured_here
    assert "this shape was not timed" in as_text(other)
    model = argued("linear_bias")
    for told_ in (one, model, argued("study_matmul")):
        assert told_.sources.rates == dataclasses.asdict(TUNINGS[0].rates)
        assert told_.sources.rates_from == "tuning/nvidia_h200.yaml"
    assert argued("linear_bias", target="sm_80").sources.rates_from.endswith(".py")
    assert model.sources.tuning is None
    assert model.choice.source == one.choice.source
    source = argued("linear_bias", target="sm_80").choice.source
    assert source.startswith("the model, among ")


def test_schedules_have_the_reasons_of_the_rules() -> None:
    found = {one.schedule: one for one in argued("gemm_nn_fp64").schedules}
    assert "registers" in str(found["tma"].why_not)
    assert found["gemv"].why_not == "gemv would read a matrix 4096 times"
    assert found["tiled"].why_not is None and found["tiled"].seconds
    ieee = {one.schedule: one for one in argued("gemm_nn_fp32").schedules}
    assert "serve every call" in str(ieee["tiled"].why_not)
    assert ieee["simt"].why_not is None and ieee["simt"].seconds
    odd = {
        one.schedule: one
        for one in argued("linear_bias", Shape(333, 4096, 1023)).schedules
    }
    assert "rows of x are 2,046 bytes" in str(odd["tma"].why_not)
    old = {one.schedule: one for one in argued("linear_bias", target="sm_80").schedules}
    assert (
        old["warp_specialized"].why_not == "warp_specialized needs sm_90, this is sm_80"
    )


def test_racing_tiles_have_no_row() -> None:
    one = argued("study_matmul")
    assert one.choice.row is None
    assert len(one.candidates) == one.candidates_in_all == 6
    assert one.candidates[0].chosen
    assert "autotuner times all 6 tiles" in as_text(one)


def test_json_has_the_same(capsys) -> None:
    arguments = ("linear_bf16", "--shape", "16x8192x8192", "--target", "sm_90")
    code, out, _ = told(capsys, SPEC, *arguments, "--format", "json")
    found = json.loads(out)
    assert (code, found["command"], found["ok"]) == (0, "explain", True)
    one = gemmgen.explain(Path(SPEC), "linear_bf16", (16, 8192, 8192), "sm_90")
    assert {key: found[key] for key in one.as_json()} == json.loads(
        json.dumps(one.as_json())
    )
    assert found["shape"] == "16x8192x8192"


def test_defaults(capsys) -> None:
    code, out, err = told(capsys, SPEC, "linear_bf16")
    assert (code, err) == (0, "")
    assert out.startswith("linear_bf16, 4096x4096x4096 (M x N x K), on sm_90 (H200)\n")
    assert out == as_text(argued("linear_bf16")) + "\n"


def test_the_newest_target_without_sm_90(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "gemmgen: 1\ntargets: [sm_80, sm_89]\n"
        "kernels: [{name: one, op: linear, dtype: bf16}]\n"
    )
    assert gemmgen.explain(spec, "one").target == "sm_89"


PICTURED = ("4096x4096x4096", "1x4096x4096", "333x4097x1023")


@pytest.mark.parametrize("shape", all_but({PICTURED[1]}, PICTURED))
def test_a_plot_is_a_picture(capsys, tmp_path: Path, shape: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "new.png"
    code, out, _ = told(
        capsys, SPEC, "linear_bias", "--shape", shape, "--plot", str(path)
    )
    assert code == 0 and "prediction" in out
    data = path.read_bytes()
    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    assert data.startswith(b"\x89PNG") and width > 1000 and height > 400


def test_what_the_plot_shows() -> None:
    pytest.importorskip("matplotlib")
    from gemmgen.explanation.plot import picture

    one = argued("linear_bf16", Shape(4096, 12288, 4096), by_rows=True)
    above, left, right = picture(one, RACED).axes
    labels = {line.get_label(): line for line in above.lines}
    assert list(labels["torch"].get_xdata()) == [16, 4096]
    assert list(labels["torch"].get_ydata()) == pytest.approx([20.0, 300.0])
    assert {"ours, raced", "roofline"} < {*labels}
    assert {"warp_specialized, 8 warps", "tma, 4 warps"} < {*labels}
    ends = above.lines[0].get_xdata()[[0, -1]]
    assert list(ends) == [1, 8192] and above.get_xlim() == (0, 8192)
    without = argued("linear_bf16", Shape(4096, 12288, 4096))
    assert len(picture(without, {}).axes) == 2
    fitting, over, chosen, needed = left.lines
    depths = one.stages.depths
    assert list(fitting.get_xdata()) == [row.stages for row in depths if row.fits]
    assert list(over.get_xdata()) == [row.stages for row in depths if not row.fits]
    assert list(chosen.get_xdata()) == [one.stages.stages]
    assert chosen.get_ydata()[0] == pytest.approx(1e6 * one.prediction.seconds)
    assert set(needed.get_xdata()) == {one.stages.needed_stages}
    points = [line for line in right.lines if line.get_marker() in ("o", "D")]
    assert [line.get_xdata()[0] for line in points] == [one.roofline.intensity] * 2
    measured = one.roofline.flops / one.prediction.measured / 1e12
    assert points[1].get_ydata()[0] == pytest.approx(measured)


RACED = {"ours": [(16, 19e-6)], "torch": [(16, 20e-6), (4096, 3e-4), (9000, 1e-3)]}


def test_what_serves_other_rows() -> None:
    """The shape's own rows as in the argument, times as launchers predict them."""
    shape = Shape(640, 4096, 4096)
    one = argued("linear_bf16", shape, by_rows=True)
    rows = [served.rows for served in one.by_rows]
    assert rows == sorted({*rows}) and rows[0] == 1 and rows[-1] == 1280
    assert {*range(8, 1281, 8)} < {*rows}
    (own,) = (served for served in one.by_rows if served.rows == shape.m)
    assert own.tile == one.choice.tile
    assert own.seconds == one.prediction.by_costs
    assert own.roofline == one.roofline.seconds
    assert len({served.tile for served in one.by_rows}) > 10
    assert argued("linear_bf16", shape).by_rows == ()


def test_times_of_a_report(tmp_path: Path) -> None:
    """Of the kernel, at the shape's N and K; a report without is refused."""
    one = argued("linear_bf16", Shape(64, 14336, 4096))
    found = raced(ROOT / "benchmarks/speed/suite_h200.json", one)
    assert {"ours", "torch", "addmm"} >= {*found} >= {"ours", "torch"}
    assert [rows for rows, _ in found["torch"]] == [4096]
    path = tmp_path / "report.json"
    for text, message in (
        ("{", "is no report of gemmgen bench"),
        ('{"rows": [{"kernel": "linear_bf16"}]}', "is no report of gemmgen bench"),
        ('{"rows": [{"kernel": "other"}]}', "has no times of linear_bf16 at N x K of"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            raced(path, one)
    with pytest.raises(UsageError, match="cannot read"):
        raced(tmp_path, one)


def test_without_matplotlib_a_plot_is_3(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = told(capsys, SPEC, "linear_bias", "--plot", "x.png")
    assert (code, out) == (3, "")
    assert err == "gemmgen: plots needs matplotlib: pip install 'gemmgen[plots]'\n"


BLOCK = re.compile(
    r"<!-- check: explain (?P<words>[^:]+): (?P<sections>[^>]+) -->\n```text\n"
    r"(?P<text>.*?)```",
    re.DOTALL,
)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (Shape(4096, 4104, 4104), "16 (a) and 16 (b)"),
        (Shape(4096, 4104, 4096), "128 (a) and 16 (b)"),
        (Shape(4096, 4096, 4128), "64 (a) and 128 (b)"),
        (Shape(4096, 4096, 4096), None),
    ],
)
def test_rows_that_do_not_fill_lines_are_told(shape: Shape, told: str | None) -> None:
    one = argued("gemm_nn_bf16", shape)
    said = f"rows begin at multiples of {told} bytes: those that do not fill lines of"
    assert ("rows begin" in as_text(one)) is (told is not None)
    assert told is None or said in " ".join(as_text(one).split())


def test_outputs_in_the_docs_are_real(
    capsys, monkeypatch, request: pytest.FixtureRequest
) -> None:
    """The headline and the named sections; `--update-golden` rewrites them."""
    monkeypatch.chdir(ROOT)
    path = ROOT / "docs" / "stages.md"
    text = path.read_text(encoding="utf-8")

    def made(match: re.Match[str]) -> str:
        _, out, _ = told(capsys, *shlex.split(match["words"]))
        head, *sections = out.rstrip("\n").split("\n\n")
        by_title = {one.splitlines()[0]: one for one in sections}
        wanted = [by_title[title] for title in match["sections"].split(", ")]
        shown = f"$ gemmgen explain {match['words']}\n" + "\n\n".join([head, *wanted])
        start = match.start("text") - match.start()
        return match[0][:start] + shown + "\n```"

    assert len(BLOCK.findall(text)) == text.count("<!-- check: explain") >= 5
    if request.config.getoption("--update-golden"):
        path.write_text(BLOCK.sub(made, text), encoding="utf-8")
    else:
        assert BLOCK.sub(made, text) == text


def test_figures_in_the_docs_are_those_of_the_seeds() -> None:
    text = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
    seeds = (ROOT / "benchmarks" / "speed" / "seeds_h200.md").read_text(
        encoding="utf-8"
    )
    for name in ("study_matmul", "gemm_nt_bf16"):
        (row,) = re.findall(rf"^\| {name} \| (.+) \|$", seeds, re.MULTILINE)
        ours, torch_s, ratio = map(float, row.split(" | "))
        for figure in (f"{ours:.4f}", f"{torch_s:.4f}", f"{ratio:.2f}"):
            assert figure in text


def test_links_in_the_docs_lead_somewhere() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", path.read_text("utf-8"))
        assert [one for one in links if not (path.parent / one).exists()] == []
