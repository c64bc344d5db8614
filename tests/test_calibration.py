"""Calibration: the model's constants, fitted to times in a tuning file."""

import os
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.cli.main import main
from gemmgen.cost.time import predicted_time
from gemmgen.hardware.targets import TARGETS, Rates
from gemmgen.select.plan import load
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.calibration import fit

ROOT = Path(__file__).resolve().parent.parent
SPEC = "gemmgen: 1\ntargets: [sm_90]\nkernels: [{name: one, op: linear, dtype: bf16}]\n"
SHAPES = [
    Shape(m, n, k)
    for m in (16, 256, 4096)
    for n, k in ((4096, 4096), (1024, 8192), (8192, 1024))
]
HERE = TARGETS["sm_90"]
OTHER = replace(HERE.rates, clock=1.1e9, memory_bandwidth=2.0e12, launch=6e-6)
"""A GPU that is slower than the one of the table."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec beside a tuning file whose times are the model's for `OTHER`."""
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    Path("tuning").mkdir()
    (plan,) = load(Path("spec.yaml"))
    there = replace(HERE, rates=OTHER)
    times = {
        shape: {
            tile: predicted_time(shape.sizes, tile, plan.product, there)
            for tile in plan.tables[0].tiles
        }
        for shape in SHAPES
    }
    tuning = Tuning("GPU", "sm_90", {}, {"one": Measured((), (), times)})
    Path("tuning/gpu.yaml").write_text(tuning.as_text())
    return tmp_path


def test_constants_are_found_again(home: Path) -> None:
    tuning = tuning_file.read(Path("tuning/gpu.yaml"))
    plans = {plan.name: plan for plan in load(Path("spec.yaml"))}
    said: list[str] = []
    found = fit(tuning, plans, HERE, said.append)
    assert found.before > 0.3 and found.after < 0.05
    assert found.count == sum(map(len, tuning.kernels["one"].times.values()))
    for name in ("clock", "memory_bandwidth", "launch"):
        assert getattr(found.rates, name) == pytest.approx(
            getattr(OTHER, name), rel=0.2
        )
    assert said and said[-1].endswith("% off")


def test_what_the_times_say_nothing_of_stays(home: Path) -> None:
    """No tile of the file is handed over between consumers."""
    tuning = tuning_file.read(Path("tuning/gpu.yaml"))
    plans = {plan.name: plan for plan in load(Path("spec.yaml"))}
    times = {
        shape: {tile: time for tile, time in each.items() if tile.schedule == "tma"}
        for shape, each in tuning.kernels["one"].times.items()
    }
    tuning = replace(tuning, kernels={"one": Measured((), (), times)})
    assert fit(tuning, plans, HERE).rates.handover == HERE.rates.handover


@pytest.mark.slow
def test_the_command_writes_constants_and_rules(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "spec.yaml", "--calibrate"]) == 0
    assert "% off before" in capsys.readouterr().out
    tuning = tuning_file.read(Path("tuning/gpu.yaml"))
    assert tuning.rates and tuning.kernels["one"].rules
    (plan,) = load(Path("spec.yaml"))
    assert plan.target("sm_90").rates == tuning.rates
    text = Path("tuning/gpu.yaml").read_text()
    assert main(["tune", "spec.yaml", "--calibrate"]) == 0
    assert Path("tuning/gpu.yaml").read_text() == text


def test_the_command_is_arithmetic_alone(home: Path) -> None:
    """Poisoned modules end any process that imports them."""
    poison = home / "poison"
    poison.mkdir()
    for name in ("torch", "triton", "numpy", "hypothesis"):
        (poison / f"{name}.py").write_text("raise SystemExit(9)")
    done = subprocess.run(
        [sys.executable, "-m", "gemmgen.cli.main", "tune", "spec.yaml", "--calibrate"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(poison), str(ROOT)])},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr


def test_without_a_file_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    assert main(["tune", str(spec), "--calibrate"]) == 2
    assert "no tuning file beside it" in capsys.readouterr().err


RATES = "\n".join(f"  {key}: {value}" for key, value in asdict(HERE.rates).items())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  clock: ", "  clok: ", "unknown key 'clok'"),
        (f"  launch: {HERE.rates.launch}", "", "launch must be a number above zero"),
        (f"  launch: {HERE.rates.launch}", "  launch: -1", "launch must be a number"),
        (f"  launch: {HERE.rates.launch}", "  launch: fast", "launch must be a number"),
        (RATES, "  - 1", "expected a map"),
    ],
)
def test_bad_constants_are_located(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    head = "gemmgen-tuning: 1\ngpu: G\ntarget: sm_90\nrates:\n"
    path = tmp_path / "gpu.yaml"
    path.write_text(head + RATES.replace(old, new) + "\n")
    with pytest.raises(SpecErrors, match=says) as found:
        tuning_file.read(path)
    assert f"{path}:" in str(found.value)


def test_constants_are_read_as_written(tmp_path: Path) -> None:
    rates = Rates(**{field.name: 1.5 + at for at, field in enumerate(fields(Rates))})
    tuning = Tuning("G", "sm_90", {}, {}, rates)
    path = tmp_path / "gpu.yaml"
    path.write_text(tuning.as_text())
    assert tuning_file.read(path).rates == rates
