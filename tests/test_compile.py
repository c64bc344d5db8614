"""Every kernel compiles for its targets, and takes the shared memory predicted."""

import importlib
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import triton

from gemmgen.cost.resources import fits, shared_memory, why_not_compiled
from gemmgen.hardware.targets import TARGETS
from gemmgen.output import alone
from gemmgen.runtime.tile import FILL
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from gemmgen.verification.machine import compiled
from gemmgen.verification.machine.compiled import (
    check_kernel,
    check_tile,
    compilable,
    expected_loads,
)
from gemmgen.verification.machine.machine_code import copies, loads, usage
from tests.own import OWN
from tests.slow import all_but

# The assemblers of later Tritons spill some words beside the K loop: 3.9's at 64
# registers of 255.
NEWER = not triton.__version__.startswith("3.6.")

# Kernels that stand for each way of multiplying, and tiles around the units' limits.
KINDS = ("gemm_nn_fp16", "gemm_nt_bf16", "gemm_tn_fp32", "gemm_nn_tf32",
         "gemm_nn_tf32x3", "gemm_nt_fp64", "linear_gelu_aux")  # fmt: skip
GRID = [
    Tile(m, n, k, 8, stages, warps)
    for m, n, k, warps in (
        (16, 64, 32, 4),
        (32, 32, 64, 4),
        (64, 32, 32, 2),
        (64, 64, 32, 4),
        (128, 64, 64, 8),
    )
    for stages in (1, 2, 4)
]


def kernel_of(plan: Plan):
    module = importlib.import_module(f"generated.{plan.name}")
    return module, jit_function(module, plan, "tiled")


# `gemmgen verify spec.yaml`, which CI runs too, compiles every kernel; these have each
# kind of product, a measured table and each kind of operand.
ALL_TILES = (*KINDS, "linear_bf16", "linear_bias_silu_residual", "gemm_nt_tf32x3")


@pytest.mark.parametrize("name", all_but({"gemm_nt_fp64"}, ALL_TILES))
def test_kernel_compiles_as_planned(name: str) -> None:
    plan = OWN[name]
    module, _ = kernel_of(plan)
    made = list(check_kernel(plan, module, compilable(plan, module)))
    assert {one.target for one in made} == set(plan.targets)
    assert not [one for one in made if one.problems]
    assert NEWER or not [one for one in made if one.notes]
    for one in made:
        # The epilogue's scratch is only bounded; it decides for shallow rings alone.
        widest = 4 if one.tile.split_k != 1 else plan.product.out_bytes
        scratch = one.tile.m * one.tile.n * widest
        over = one.predicted_bytes - one.shared_bytes
        if one.tile.schedule == "tiled":
            assert over == 0 or one.predicted_bytes == scratch
        elif (
            one.tile.schedule == "gemv"
        ):  # a row is ordered before it is widened, or after
            assert 0 <= over <= max(128, one.predicted_bytes // 2)
        elif one.tile.schedule != "persistent":
            assert 0 <= over <= 128 or one.predicted_bytes == scratch


@pytest.mark.parametrize(
    "target", all_but({"sm_90"}, ["sm_80", "sm_90", "sm_100", "sm_120"])
)
@pytest.mark.parametrize("name", all_but({"gemm_nn_fp16"}, KINDS))
def test_shared_memory_is_never_more_than_predicted(name: str, target: str) -> None:
    plan, row = OWN[name], TARGETS[target]
    _, kernel = kernel_of(plan)
    product: Product = plan.product
    tiles = [
        one
        for one in GRID
        if fits(one, product, row) and not why_not_compiled(one, product, row)
    ]
    exact = 0
    for one in tiles:
        real = compile_aligned(plan, kernel, row, one).metadata.shared
        predicted = shared_memory(one, product, row)
        assert real <= predicted, one
        exact += predicted - real <= 128
    assert exact >= len(tiles) / 2


@pytest.mark.parametrize(
    "tile",
    [
        *(Tile(32, 64, 64, 8, stages, 4, "tma") for stages in (1, 2, 3, 4, 5, 6)),
        *(Tile(64, 64, 64, 8, stages, 4, "persistent") for stages in (1, 2, 3, 4)),
        Tile(64, 128, 64, 8, 3, 4, "persistent"),
        Tile(128, 128, 64, 8, 2, 8, "persistent"),
    ],
    ids=str,
)
def test_blocks_that_descriptors_load_for_mma(tile: Tile, tmp_path: Path) -> None:
    """sm_120 has tensor maps and neither wgmma nor tcgen05."""
    spec = "gemmgen: 1\ntargets: [sm_90]\nkernels:\n" + (
        '  - {name: k, op: linear, dtype: fp16, epilogue: "acc * s[m] * t[n]", '
        "operands: {s: fp32, t: fp32}, "
        f"schedule: {tile.schedule}}}\n"
    )
    (plan,), row = plans(parse(spec.encode(), "spec.yaml")), TARGETS["sm_120"]
    module = subject.load(alone.written(tmp_path, plan, "spec.yaml"))
    made = compile_aligned(plan, jit_function(module, plan, tile.schedule), row, tile)
    over = shared_memory(tile, plan.product, row) - made.metadata.shared
    assert 0 <= over <= 128 or (over > 0 and tile.stages == 1)
    assert "mma.sync.aligned" in made.asm["ptx"]


@pytest.mark.slow
def test_a_kernel_for_gpus_without_asynchronous_units(tmp_path: Path) -> None:
    """All tiles of one for sm_86, sm_89 and sm_120 compile as planned."""
    spec = "gemmgen: 1\ntargets: [sm_86, sm_89, sm_120]\nkernels:\n" + (
        '  - {name: k, op: linear, dtype: bf16, epilogue: "silu(acc + bias[n])"}\n'
    )
    (plan,) = plans(parse(spec.encode(), "spec.yaml"))
    module = subject.load(alone.written(tmp_path, plan, "spec.yaml"))
    made = list(check_kernel(plan, module, compilable(plan, module)))
    assert {one.target for one in made} == set(plan.targets)
    assert "warp_specialized" not in plan.schedules
    assert [one.problems for one in made if one.problems] == []
    # A stack that is only stored to, beside sm_120's barriers, is no spill.
    assert NEWER or [one.notes for one in made if one.notes] == []
    assert all(one.shared_bytes <= 99 * 1024 for one in made)


LAYOUT_SPEC = """\
gemmgen: 1
targets: [sm_80, sm_90, sm_100]
kernels:
  - name: k
    op: gemm
    dtype: fp32
    precision: {precision}
    layout: {layout}
"""
WIDTHS = {
    # layout: bytes of a copy where operands are read from shared memory, (A, B)
    "NN": (16, 4),
    "NT": (16, 16),
    "TN": (4, 4),
    "TT": (4, 16),
}


def made_here(folder: Path, layout: str, precision: str):
    """A plan of a spec made for the test, and its kernel."""
    text = LAYOUT_SPEC.format(layout=layout, precision=precision)
    (plan,) = plans(parse(text.encode(), "spec.yaml"))
    module = subject.load(alone.written(folder, plan, "spec.yaml"))
    return plan, jit_function(module, plan, "tiled")


@pytest.mark.parametrize("layout", all_but({"NN"}, WIDTHS))
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_only_tf32_across_k_is_copied_by_elements(
    tmp_path: Path, layout: str, target: str, precision: str
) -> None:
    plan, kernel = made_here(tmp_path, layout, precision)
    row, tile = TARGETS[target], Tile(64, 64, 32, 8, 3, 4)
    apart = precision == "tf32" and target != "sm_80"
    widths = set(WIDTHS[layout] if apart else (16, 16))
    ptx = compile_aligned(plan, kernel, row, tile).asm["ptx"]
    assert set(copies(ptx)) == set(expected_loads(plan, row, tile)) == widths
    assert not check_tile(plan, kernel, row, tile).problems


@pytest.mark.parametrize("align", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("schedule", ["tiled", "split_k", "gemv"])
def test_loads_are_as_wide_as_rows_are_aligned(schedule: str, align: int) -> None:
    """Of bf16, in bytes; two are too few for a copy past the registers."""
    plan = OWN["linear_bf16"]
    module, _ = kernel_of(plan)
    kernel = jit_function(module, plan, schedule)
    tile = {
        "tiled": Tile(64, 64, 64, 8, 3, 4),
        "split_k": Tile(32, 64, 64, 8, 3, 4, "split_k", 2),
        "gemv": Tile(1, 2, 1024, 8, 1, 4, "gemv"),
    }[schedule]
    ptx = compile_aligned(plan, kernel, TARGETS["sm_90"], tile, align).asm["ptx"]
    width = min(16, 2 * align)
    single = width < 4 or SCHEDULES[tile.schedule].memory_bound
    assert set(copies(ptx)) == (set() if single else {width})
    assert width in loads(ptx) if single else 2 not in loads(ptx)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("name", ["gemm_nt_bf16", "gemm_nn_fp64"])
def test_narrow_loads_are_noticed(
    name: str, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if rows were aligned to nothing."""
    plan, row = OWN[name], TARGETS["sm_80"]
    _, kernel = kernel_of(plan)
    tile = Tile(64, 64, 32, 8, stages, 4)
    assert not check_tile(plan, kernel, row, tile).problems
    monkeypatch.setattr(compiled, "compile_aligned", partial(compile_aligned, align=1))
    found = check_tile(plan, kernel, row, tile).problems
    assert any(
        "were expected" in one or "are 128 bits" in one or "asynchronous" in one
        for one in found
    )


def test_an_operand_of_the_epilogue_is_loaded_wide() -> None:
    plan, row = OWN["linear_residual"], TARGETS["sm_90"]
    _, kernel = kernel_of(plan)
    tile = Tile(64, 64, 64, 8, 3, 4)
    assert loads(compile_aligned(plan, kernel, row, tile).asm["ptx"])[16]


@pytest.mark.parametrize("warps", [1, 4])
def test_small_tiles_load_what_each_thread_has(
    warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 16 x 16 in bf16 a warp's threads have 128 bits each, those of four 32."""
    plan, row = OWN["linear_residual"], TARGETS["sm_80"]
    _, kernel = kernel_of(plan)
    tile = Tile(16, 16, 32, 8, 3, warps)
    assert not check_tile(plan, kernel, row, tile).problems
    monkeypatch.setattr(compiled, "loads", lambda ptx: Counter({4: 1}))
    narrow = "no load of an [m, n] operand is 128 bits wide"
    assert check_tile(plan, kernel, row, tile).problems == (narrow,) * (warps == 1)


def test_words_on_the_stack_beside_the_k_loop_are_a_note() -> None:
    """Triton 3.6 spills 16 bytes of three consumers that meet, others may not."""
    plan, row = OWN["linear_bias_silu_residual"], TARGETS["sm_90"]
    module, _ = kernel_of(plan)
    kernel = jit_function(module, plan, "warp_specialized")
    tile = Tile(128, 192, 64, 8, 3, 12, "warp_specialized", FILL)
    found = check_tile(plan, kernel, row, tile)
    assert not found.problems
    notes = [f"spills {found.spilled_bytes} bytes of registers, not in the K loop"]
    assert [one.split(";")[0] for one in found.notes] == notes * bool(
        found.spilled_bytes
    )
    assert found.spilled_bytes or NEWER


def test_a_spill_is_noticed() -> None:
    """256 registers of accumulator are more than a thread has: the K loop spills."""
    plan, row = OWN["gemm_nn_fp32"], TARGETS["sm_80"]
    _, kernel = kernel_of(plan)
    tile = Tile(128, 256, 16, 8, 2, 4)
    assert usage(compile_aligned(plan, kernel, row, tile).asm["cubin"]).stack
    found = check_tile(plan, kernel, row, tile)
    assert any("spills" in one and "in the K loop by" in one for one in found.problems)
    assert not any("spills" in one for one in found.notes)
