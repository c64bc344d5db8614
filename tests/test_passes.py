"""Passes over gradients: what they launch, and in how many programs."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen.output import builder  # noqa: E402
from gemmgen.runtime.gradients import elementwise  # noqa: E402
from tests import forked  # noqa: E402

SCRIPT = Path(__file__).with_name("passes_script.py")
SPEC = """\
gemmgen: 1
targets: [sm_80]
kernels:
  - name: scaled
    op: linear
    dtype: fp32
    tiles: {m: 16, n: 16, k: 16}
    schedule: tiled
    epilogue: alpha[] * relu(acc * s[m] + bias[n])
    grad: true
  - name: two
    op: linear
    dtype: fp32
    tiles: {m: 16, n: 16, k: 16}
    schedule: tiled
    outputs: [h, l]
    epilogue: |
      h = relu(acc) * s[n]
      l = log(h)
    grad: true
"""


def test_what_comes_again_is_launched_as_by_triton(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    builder.build([spec], tmp_path / "made")
    done = forked.python(
        tmp_path, SCRIPT, tmp_path, modules=forked.TORCH,
        TRITON_INTERPRET="0", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip
    assert done.stdout == "123 launches repeated\n", done.stderr[-3000:]


@pytest.mark.parametrize("sms", [1, 132])
@pytest.mark.parametrize(
    "sizes",
    [(8192, 14336), (4096, 4096), (1, 1), (1, 1 << 20), (1 << 20, 1), (33, 129)],
)
def test_programs_fill_the_gpu_once_where_there_are_tiles(
    sizes: tuple[int, int], sms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elementwise, "num_sms", lambda _: sms)
    tile = elementwise.TILE
    columns, ranges = elementwise.grid(tile, sizes, torch.device("cpu"))
    tiles, room = -(-sizes[0] // tile.m), elementwise.PROGRAMS * sms
    assert columns == -(-sizes[1] // tile.n)
    assert 1 <= ranges <= tiles
    assert ranges == tiles or columns * ranges >= room
    assert columns * (ranges - 1) < room


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_there_are_no_programs_without_elements(sizes: tuple[int, int]) -> None:
    columns, ranges = elementwise.grid(elementwise.TILE, sizes, torch.device("cpu"))
    assert columns * ranges == 0
