"""`gemmgen explain --error`: the argument in words agrees with what the oracle does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen import plan as planning
from gemmgen.cli import main
from gemmgen.functions import OPS
from gemmgen.verification.explanation import explain

ROOT = Path(__file__).resolve().parent.parent
SPEC = str(ROOT / "spec.yaml")
PLANS = planning.load(ROOT / "spec.yaml")


def told(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(["explain", *arguments])
    caught = capsys.readouterr()
    return code, caught.out, caught.err


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
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
    assert "1.13 e" in text and "8 (|f| + |x|)" in text
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
        ((SPEC, "linear_bias"), "explain without --error is not built yet"),
        ((SPEC, "linear_bia", "--error"), "did you mean 'linear_bias'"),
        ((SPEC, "linear_bias", "--error", "--shape", "1x1x999999"), "K is at most"),
    ],
    ids=["no part", "no kernel", "too large"],
)
def test_what_cannot_be_explained(capsys, arguments, message: str) -> None:
    code, out, err = told(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("shape", ["3", "3x4", "axbxc", "0x1x1", "-1x1x1"])
def test_bad_shapes_are_usage(capsys, shape: str) -> None:
    with pytest.raises(SystemExit) as leaving:
        told(capsys, SPEC, "linear_bias", "--error", f"--shape={shape}")
    assert leaving.value.code == 2


def test_no_torch_is_needed_without_a_shape() -> None:
    """A fresh process, in which torch cannot be imported."""
    code = (
        "import sys; sys.modules.update(torch=None, triton=None, numpy=None); "
        "from gemmgen.cli import main; "
        "sys.exit(main(['explain', 'spec.yaml', 'linear_bias_gelu', '--error']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
