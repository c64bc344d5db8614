"""The calibration's faults are faults: what it plants changes kernels and results."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gemmgen.render import render  # noqa: E402
from gemmgen.render.names.parts import file_of, stems  # noqa: E402
from tests import scripts  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script():
    return scripts.script("calibrate_error")


@pytest.fixture
def bench(script, tmp_path: Path):
    plans = {plan.name: plan for plan in script.load(ROOT / "spec.yaml")}
    return script.Bench(torch.device("cpu"), plans, tmp_path)


@pytest.mark.parametrize(
    ("name", "edit", "text"),
    [
        ("gemm_nn_bf16", "accumulator narrowed", ".to(tl.float16).to(tl.float32)"),
        ("gemm_nn_fp16", "last of K masked", "K - k - 1"),
        ("gemm_nn_fp32", "tf32", "'tf32'"),
    ],
)
def test_kernels_are_edited(script, bench, name: str, edit: str, text: str) -> None:
    plan = script.one_schedule(bench.plans[name])
    assert stems(plan) == ["__init__", "tiles", "tiled"]
    healthy, found = render.files(plan, "spec.yaml"), script.edited(plan, edit)
    assert found.keys() == healthy.keys()
    changed = [file for file in found if found[file] != healthy[file]]
    assert changed == [file_of(plan, "tiled")]
    assert not any(text in one.replace('"', "'") for one in healthy.values())
    assert text in found[changed[0]].replace('"', "'")


def test_one_element_loses_what_it_should(script, bench) -> None:
    name = "gemm_nn_fp16"
    inputs = bench.inputs(name, "narrow", 256, 1)
    got = bench.kernel(name)(inputs.lhs, *inputs.rhs)
    assert not bench.verdict(name, inputs, got).fault
    for columns in (1, 32):
        faulty = script.with_loss(bench.plans[name], inputs, got, columns, 1)
        assert int((faulty != got).sum()) == 1
        assert bench.verdict(name, inputs, faulty).fault
