"""tf32 where it differs: what wgmma takes from registers, and who rounds the inputs."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from gemmgen import api  # noqa: E402
from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.schedules import (  # noqa: E402
    SCHEDULES,
    described,
    schedule_of,
    why_not,
)
from gemmgen.schedules.parts.schedule import Kernel  # noqa: E402
from gemmgen.schedules.parts.tile import Product, Tile  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.tables.dtypes import DTYPES  # noqa: E402
from gemmgen.tables.layouts import LAYOUTS  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402
from gemmgen.verification.example.aligned import (  # noqa: E402
    compile_aligned,
    jit_function,
)
from gemmgen.verification.machine.compiled import check_kernel, compilable  # noqa: E402
from generated._runtime import launch  # noqa: E402
from tests.slow import all_but  # noqa: E402

SPECIALIZED = "warp_specialized"

SPEC = """\
gemmgen: 1
targets: [sm_90]
defaults: {{op: gemm, dtype: fp32, precision: tf32, schedule: warp_specialized}}
kernels:
  - name: plain
    layout: {layout}
    tiles: [{{m: {m}, n: {n}, k: 32, stages: 4, warps: 8}}]
  - name: fused
    layout: {layout}
    epilogue: c = silu(acc + bias[n] + row[m]) + residual[m, n]
    tiles:
      - {{m: 128, n: 128, k: 32, stages: 3, warps: 8}}
      - {{m: 64, n: 64, k: 32, stages: 4, warps: 4}}
"""
SIDES = {"NN": (256, 128), "NT": (256, 128), "TT": (128, 256)}


def built(folder: Path, text: str) -> dict[str, Plan]:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    api.build([path])
    return {plan.name: plan for plan in load(path)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_roles_of_a_specialized_product(layout: str) -> None:
    held = layout in ("NN", "TT")
    assert SCHEDULES[SPECIALIZED].from_registers("tf32", layout) == held
    assert SCHEDULES[SPECIALIZED].shared_axis("tf32", layout) == (
        "m" if layout == "TT" else "n"
    )
    assert not SCHEDULES[SPECIALIZED].from_registers("bf16", layout)
    assert SCHEDULES[SPECIALIZED].shared_axis("bf16", layout) == ""
    assert not SCHEDULES["persistent"].from_registers("tf32", layout)
    tile = Tile(64, 64, 64, 8, 2, 4, "tma")
    assert schedule_of(tile).transposes(tile, Product("bf16", 2, 2, layout=layout))


def test_specialized_tf32_describes_no_results() -> None:
    assert described(SPECIALIZED, "bf16") - described(SPECIALIZED, "tf32") == {
        "results"
    }
    assert described("persistent", "tf32") == SCHEDULES["persistent"].described


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_a_layout_without_a_side_along_k_is_refused(layout: str) -> None:
    kernel = Kernel(layout, Product("tf32", 4, 4, layout=layout), TARGETS["sm_90"])
    reason = why_not(SPECIALIZED, kernel)
    assert (reason is None) == (layout != "TN")
    assert reason is None or "layout TN" in reason


@pytest.mark.parametrize("layout", all_but({"NN"}, SIDES))
def test_specialized_tf32_compiles(layout: str, tmp_path: Path) -> None:
    """With what lies across K in registers, no spills, the room that was predicted."""
    m, n = SIDES[layout]
    plans = built(tmp_path, SPEC.format(layout=layout, m=m, n=n))
    for plan in plans.values():
        module = subject.load(tmp_path / "generated" / file_of(plan))
        for one in check_kernel(plan, module, compilable(plan, module)):
            assert not one.problems
            if one.tile.schedule == SPECIALIZED:
                assert one.spilled_bytes == 0
                assert 0 <= one.predicted_bytes - one.shared_bytes <= 128
        kernel = jit_function(module, plan, SPECIALIZED)
        for where, tile in plan.tiles:
            if tile.schedule == SPECIALIZED:
                ptx = compile_aligned(plan, kernel, where, tile).asm["ptx"]
                held = re.findall(r"wgmma\.mma_async\S+ \{[^}]*\}, (\{|%rd)", ptx)
                wanted = (
                    "{"
                    if SCHEDULES[SPECIALIZED].from_registers("tf32", layout)
                    else "%rd"
                )
                assert held and set(held) == {wanted}


@pytest.mark.parametrize(
    "schedule", [name for name, row in SCHEDULES.items() if not row.by_fma]
)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_schedule_alone_can_be_asked_for(
    schedule: str, dtype: str, tmp_path: Path
) -> None:
    """What it cannot serve is left to tiled."""
    assert dtype in DTYPES
    precision = ", precision: tf32" if dtype == "fp32" else ""
    plans = built(
        tmp_path,
        "gemmgen: 1\ntargets: [sm_90]\nkernels:\n"
        f"  - {{name: alone, op: linear, dtype: {dtype}{precision}, "
        f"schedule: {schedule}}}\n",
    )
    used = set(plans["alone"].schedules)
    assert used == {schedule, "tiled"} or used == {schedule, "split_k", "tiled"}


# -- rounding ------------------------------------------------------------------------


class Compiled:
    """A kernel that Triton 3.6 compiled: what it notes of each descriptor."""

    def __init__(self, descriptors: int) -> None:
        notes = [{"elem_type": 7} for _ in range(descriptors)]
        self.metadata = SimpleNamespace(tensordesc_meta=notes)
        self.warmed: list[dict[str, Any]] = []

    def warmup(self, *arguments: Any, **options: Any) -> "Compiled":
        self.warmed.append(options)
        return self


def test_tensor_maps_round_what_is_to_be_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INTERPRETED", False)
    a, b, c = (torch.zeros(4, 4) for _ in range(3))
    blocks = (
        launch.TmaArg(a, ((4, 4),), to_tf32=True),
        launch.TmaArg(b, ((4, 4), (2, 4)), to_tf32=True),
        launch.TmaArg(c, ((4, 4), None)),
    )
    kernel = Compiled(4)
    launch.Launch(kernel, None, torch.device("cpu"), (), (1,), blocks, ()).round(blocks)
    types = [note["elem_type"] for note in kernel.metadata.tensordesc_meta]
    assert types == [launch.TF32, launch.TF32, launch.TF32, 7]
    assert kernel.warmed == [{"grid": (1,), "enable_fp_fusion": True}]


@pytest.mark.skipif(not launch.ROUNDS, reason="this Triton's descriptors do not round")
@pytest.mark.parametrize("in_gluon", [False, True])
def test_descriptors_round_where_they_can(in_gluon: bool) -> None:
    matrix = torch.zeros(64, 64)
    for rounds in (False, True):
        block = launch.TmaArg(matrix, ((32, 32), (8, 32), None), to_tf32=rounds)
        first, last, none = block.descriptors(in_gluon)
        assert first.round_f32_to_tf32 == last.round_f32_to_tf32 == rounds
        assert (first.block_shape, last.block_shape) == ([32, 32], [8, 32])
        assert none is None


def test_only_inputs_of_tf32_are_rounded() -> None:
    folder = Path(launch.__file__).parent
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"Block\((\w+), [^()]*?(, to_tf32=True)?\)", text)
        rounded = {name for name, rounds in blocks if rounds}
        if "#   precision: tf32\n" in text:
            assert rounded in ({"a", "b"}, {"x", "w"})
        else:
            assert not rounded
