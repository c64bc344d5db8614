"""Consumers that share a tile: how it is cut, what compiles, what is refused."""

from pathlib import Path

import pytest

from gemmgen import api
from gemmgen.base.errors import SpecErrors
from gemmgen.cost.resources import fits, threads, why_not_compiled
from gemmgen.hardware.targets import TARGETS
from gemmgen.render.parts import file_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.schedules.warp_specialized import consumers, takes_turns
from gemmgen.select.plan import load
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import jit_function
from gemmgen.verification.machine.compiled import check_tile

TARGET = TARGETS["sm_90"]
SPEC = """\
gemmgen: 1
targets: [sm_90]
defaults: {{op: gemm, dtype: bf16, layout: {layout}, schedule: warp_specialized}}
kernels:
  - {{name: plain}}
  - name: fused
    epilogue: c = silu(acc + bias[n] + row[m]) + residual[m, n]
"""
TILES = [
    Tile(m, n, 64, 8, stages, warps, "warp_specialized")
    for m, n, stages, warps in (
        (128, 128, 5, 4),
        (256, 128, 3, 8),
        (128, 192, 4, 12),
        (64, 192, 6, 12),
        (128, 192, 2, 12),
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_of_every_number_of_consumers_compile(
    layout: str, tmp_path: Path
) -> None:
    """With the room that was predicted and wgmma, hardly a spill, in every layout."""
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.format(layout=layout), encoding="utf-8")
    api.build([path])
    for plan in load(path):
        module = subject.load(tmp_path / "generated" / file_of(plan))
        kernel = jit_function(module, plan, "warp_specialized")
        for tile in TILES:
            assert fits(tile, plan.product, TARGET)
            assert why_not_compiled(tile, plan.product, TARGET) is None
            made = check_tile(plan, kernel, TARGET, tile)
            assert not made.problems
            assert 0 <= made.predicted_bytes - made.shared_bytes <= 128


def test_consumers_are_two_at_least_and_one_warpgroup_loads() -> None:
    found = [(one.warpgroups, consumers(one), takes_turns(one)) for one in TILES[:3]]
    assert found == [(1, 2, True), (2, 2, False), (3, 3, False)]
    assert [threads(one) for one in TILES[:3]] == [384, 384, 512]


@pytest.mark.parametrize(
    "tile",
    [
        "{m: 128, n: 64, k: 64, warps: 8}",
        "{m: 64, n: 32, k: 64, warps: 4}",
        "{m: 64, n: 64, k: 64, warps: 2}",
        "{m: 64, n: 256, k: 64, warps: 16}",
    ],
)
def test_tiles_that_cannot_be_shared_are_refused_with_what_can(
    tile: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    text = SPEC.format(layout="NT").replace("plain}", f"plain, tiles: [{tile}]}}")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecErrors, match="n into a part of 64, 128 or 256 for every 4"):
        api.build([path])
    assert not (tmp_path / "generated").exists()
