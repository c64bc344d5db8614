"""Whole backwards: gradcheck, bounds, and faults that these must find."""

import shutil
from pathlib import Path

import pytest

from gemmgen.output import builder
from tests import forked
from tests.slow import all_but

HEAD = "gemmgen: 1\ntargets: [sm_80]\ndefaults: {schedule: tiled, grad: true, "
HEAD += "tiles: {m: 16, n: 16, k: 16}, dtype: %s}\nkernels:\n"
ONE = HEAD % "bf16" + "  - {name: up, op: linear, epilogue: 'gelu(acc + bias[n])'}\n"
EXACT = HEAD % "fp64" + """\
  - {name: plain, op: linear}
  - {name: biased, op: linear, epilogue: "acc + bias[n]"}
  - {name: shifted, op: linear, epilogue: "acc + shift[m]"}
  - {name: up, op: linear, epilogue: "gelu(acc + bias[n])"}
  - {name: rectified, op: linear, epilogue: "relu(acc + bias[n]) + r[m, n]"}
  - {name: scaled, op: linear, epilogue: "r[m, n] + silu(acc * s[m] * t[n])"}
  - name: two
    op: linear
    outputs: [out, pre]
    epilogue: |
      pre = acc + bias[n]
      out = gelu_tanh(pre)
  - name: "mixed_{layout}"
    for_each: {layout: [NN, NT, TN, TT]}
    op: gemm
    epilogue: "-alpha[] * acc + beta[] * c[m, n]"
"""
SCRIPT = Path(__file__).with_name("backward_script.py")


def judged(folder: Path, spec: Path, *kernels: str) -> str:
    """What is wrong with the gradients of the kernels in a folder, or of some."""
    done = forked.python(folder, SCRIPT, folder, spec, *kernels)
    return done.stdout + done.stderr[-2000:]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A kernel with a backward, and its spec."""
    folder = tmp_path_factory.mktemp("backward")
    spec = folder / "spec.yaml"
    spec.write_text(ONE)
    builder.build([spec])
    return folder / "generated", spec


def test_gradients_in_fp64_are_those_of_finite_differences(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(EXACT)
    builder.build([spec])
    assert judged(tmp_path / "generated", spec) == ""


@pytest.mark.slow  # as those that are added to others
def test_gradients_in_bf16_are_within_the_bound(built: tuple[Path, Path]) -> None:
    assert judged(*built) == ""


@pytest.mark.slow
def test_gradients_of_a_product_alone_are_within_the_bound(tmp_path: Path) -> None:
    """Whose factor is a number, where there is no operand."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(HEAD % "bf16" + "  - {name: plain, op: linear}\n")
    builder.build([spec])
    assert judged(tmp_path / "generated", spec) == ""


@pytest.mark.parametrize(
    ("kernel", "wrong"), all_but({("scaled", "b")}, [("up", "w"), ("scaled", "b")])
)
def test_gradients_are_added_to_what_there_is(
    tmp_path: Path, kernel: str, wrong: str
) -> None:
    """A weight's `main_grad`, as other gradients within the bound; a fault is not."""
    spec = tmp_path / "spec.yaml"
    head = HEAD % "bf16"
    spec.write_text(
        head.replace("grad: true", "grad: true, grad_accumulate: true") + """\
  - {name: up, op: linear, epilogue: 'gelu(acc + bias[n])'}
  - {name: scaled, op: gemm, layout: TN, epilogue: 'alpha[] * acc + c[m, n]'}
"""
    )
    builder.build([spec])
    assert judged(tmp_path / "generated", spec, kernel) == ""
    path = tmp_path / "generated" / kernel / "backward.py"
    path.write_text(path.read_text().replace(", out=main_grad)", ")"))
    found = judged(tmp_path / "generated", spec, kernel)
    assert f"{kernel} " in found, found
    assert f"the gradient of {wrong}" in found


FAULTS = [
    ("grad_epilogue", "grad_y * (", "1.03125 * grad_y * ("),
    ("grad_epilogue", "normal_pdf(pre)", "normal_pdf(grad_y)"),
    ("../_runtime/functions", "0.398942", "0.388942"),
    ("grad_epilogue", "grad_bias_sums +=", "grad_bias_sums ="),
    ("backward", "(grad_acc, w)", "(grad_acc * 0, w)"),
    ("backward", "needs_x or needs_w", "needs_x"),
    ("../_runtime/gradients/elementwise", "stored.sum(0)", "stored[0]"),
    ("../_runtime/gradients/function", "ctx.needs_input_grad[2:]", "[False] * 9"),
]
FAST = {FAULTS[0], FAULTS[3]}


@pytest.mark.parametrize(("file", "before", "after"), all_but(FAST, FAULTS))
def test_a_fault_is_found(
    built: tuple[Path, Path], tmp_path: Path, file: str, before: str, after: str
) -> None:
    generated, spec = built
    folder = tmp_path / "generated"
    shutil.copytree(generated, folder, ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "up" / f"{file}.py"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    assert judged(folder, spec) != ""


ALONE = [
    ("grad_epilogue", "if grad_l_ptr is not None:\n            grad_r +=",
     "if True:\n            grad_r +=", "the gradient of r at"),
    ("backward", "if grad_l is None:\n        needs_t = False", "pass",
     "the gradient of t is made up"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "before", "after", "told"), all_but({ALONE[0]}, ALONE)
)
def test_a_result_without_a_gradient_does_not_count_as_zeros(
    tmp_path: Path, file: str, before: str, after: str, told: str
) -> None:
    """Its slope is infinite wherever t is negative; nor has t one of it."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(HEAD % "bf16" + """\
  - name: two
    op: linear
    outputs: [h, l]
    epilogue: |
      h = gelu(acc) + r[m, n]
      l = square(r[m, n]) / relu(t[m, n])
""")
    builder.build([spec])
    assert judged(tmp_path / "generated", spec) == ""
    path = tmp_path / "generated" / "two" / f"{file}.py"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    found = judged(tmp_path / "generated", spec)
    assert told in found, found
