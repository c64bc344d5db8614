"""Kernels with a backward under torch.compile and the like, in the interpreter."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen.output import builder
from tests.cases import names_in, said_by, without_interpreter
from tests.once import once

pytestmark = pytest.mark.slow  # test_backward.py is not, nor verify, which compiles too

SPEC = """\
gemmgen: 1
targets: [sm_80]
defaults: {schedule: tiled, grad: true, tiles: {m: 16, n: 16, k: 16}, dtype: fp32}
kernels:
  - {name: up, op: linear, dtype: bf16, epilogue: "gelu(acc + bias[n])"}
  - {name: stream, op: linear, dtype: bf16, epilogue: "acc + bias[n] + x_in[m, n]"}
  - {name: rectified, op: linear, epilogue: "relu(acc + bias[n])"}
  - {name: scaled, op: gemm, layout: NN, epilogue: "alpha[] * acc + beta[] * c[m, n]"}
  - {name: interpolated, op: linear, epilogue: "silu(acc * s[m] * t[n])"}
  - name: added
    op: linear
    epilogue: acc + bias[n]
    grad_accumulate: true
  - name: both
    op: linear
    outputs: [out, pre]
    epilogue: |
      pre = acc + bias[n]
      out = gelu_tanh(pre)
  - name: steep
    op: linear
    outputs: [h, l]
    epilogue: |
      h = gelu(acc) + r[m, n]
      l = square(r[m, n]) / t[m, n]
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each case."""

    def run(folder: Path) -> dict[str, str]:
        spec = folder / "spec.yaml"
        spec.write_text(SPEC)
        builder.build([spec], folder / "made")
        return said_by("training_script", folder)

    return once(tmp_path_factory, "training", run)


@pytest.mark.parametrize("name", names_in("training_script"))
def test_what_torch_does_with_a_backward(said: dict[str, str], name: str) -> None:
    assert said[name] == "", said[name]


def test_launchers_that_remember_calls_are_traced_too(tmp_path: Path) -> None:
    """Those of a GPU, as far as they launch nothing: on a CPU taken for one."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    builder.build([spec], tmp_path / "made")
    code = """
import torch, made
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from made._runtime import checks

checks.check_device = lambda *_: None
assert "repeats" in made.up.__code__.co_names, "this one has no cache"

def inputs():
    sizes = (2, 5, 32), (24, 32), (24,)
    return [torch.zeros(one).bfloat16().requires_grad_() for one in sizes]

with FakeTensorMode():
    fakes = inputs()
    found = torch.autograd.grad(made.up(*fakes).sum(), fakes)
assert [(one.shape, one.dtype) for one in found] == [
    (one.shape, one.dtype) for one in fakes
]

traced = []

def compiler(graph, _):
    traced.extend(str(one.target) for one in graph.graph.nodes if "call" in one.op)
    return never

def never(*_):
    raise RuntimeError("nothing can be launched")

backend = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
try:
    torch.compile(made.up, backend=backend, fullgraph=True, dynamic=True)(*inputs())
except Exception as error:
    assert "nothing can be" in str(error), error
print(*[one for one in traced if one.startswith("made")])
"""
    told = without_interpreter(tmp_path, "-c", code)
    parts = ("forward", "grad_epilogue", "grad_x", "grad_w")
    assert told.split() == [f"made_up.up_{part}.default" for part in parts]
