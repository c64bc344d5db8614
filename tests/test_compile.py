"""Every kernel compiles for its targets, and takes the shared memory predicted."""

import importlib
from pathlib import Path

import pytest

from gemmgen.model import Product, Tile, fits, shared_memory, why_not_compiled
from gemmgen.plan import Plan, load
from gemmgen.targets import TARGETS
from gemmgen.verification.compiled import check_kernel, compile_aligned, jit_function

ROOT = Path(__file__).resolve().parent.parent
PLANS = {plan.name: plan for plan in load(ROOT / "spec.yaml")}

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
    return module, jit_function(module, plan.name)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_kernel_compiles_as_planned(plan: Plan) -> None:
    module, _ = kernel_of(plan)
    made = list(check_kernel(plan, module))
    assert {one.target for one in made} == set(plan.targets)
    assert not [one for one in made if one.problems]
    for one in made:
        # The epilogue's scratch is only bounded; it decides for shallow rings alone.
        scratch = one.tile.m * one.tile.n * plan.product.out_bytes
        assert one.shared_bytes == one.predicted_bytes or (
            one.shared_bytes < one.predicted_bytes == scratch
        )


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", KINDS)
def test_shared_memory_is_never_more_than_predicted(name: str, target: str) -> None:
    plan, row = PLANS[name], TARGETS[target]
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
