"""Kernels with a backward under torch.compile and the like, in the interpreter."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen.output import builder
from tests.cases import names_in, said_by
from tests.once import once

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
  - name: both
    op: linear
    outputs: [out, pre]
    epilogue: |
      pre = acc + bias[n]
      out = gelu_tanh(pre)
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
