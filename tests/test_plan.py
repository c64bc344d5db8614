"""The rules between fields, each with the place and the words of its error."""

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.epilogue.checked import AXES, Axes
from gemmgen.problem.tensors import rows_first
from gemmgen.select.plan import plans
from gemmgen.spec.parse import parse


def planned(kernel: str, head: str = ""):
    body = "".join(f"    {line}\n" for line in kernel.strip().split("\n"))
    text = f"gemmgen: 1\n{head}kernels:\n  -\n{body}"
    return plans(parse(text.encode(), "spec.yaml"))


def errors(kernel: str, head: str = "") -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        planned(kernel, head)
    return str(caught.value).split("\n")


GEMM = "name: k\nop: gemm\nlayout: NN\ndtype: fp16\n"


def test_defaults_of_a_plain_kernel() -> None:
    (plan,) = planned(GEMM)
    assert (plan.out, plan.accumulator, plan.precision) == ("fp16", "fp32", None)
    assert [result.name for result in plan.results] == ["c"]
    assert [result.value for result in plan.results] == ["acc"]
    assert {row.architecture for row in plan.rows} == {80, 90, 100}


def test_fp32_is_ieee_unless_the_spec_says_so() -> None:
    (plan,) = planned(GEMM.replace("fp16", "fp32"))
    assert plan.precision == "ieee"


def test_operand_dtypes() -> None:
    (plan,) = planned(
        GEMM + "epilogue: acc * s[m] + r[m, n] + alpha[]\noperands: {s: fp32}"
    )
    assert [(one.name, one.dtype) for one in plan.operands] == [
        ("s", "fp32"),
        ("r", "fp16"),
        ("alpha", "fp32"),
    ]


def test_an_operand_s_shape_is_a_row_of_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one is loaded as its row says, and is no matrix like the results."""
    offsets = "offs_m[:, None] * {m} + offs_n[None, :] * {n}"
    mask = "mask_m[:, None] & mask_n[None, :]"
    monkeypatch.setitem(AXES, ("n", "m"), Axes(("n", "m"), offsets, mask))
    (plan,) = planned(GEMM + "epilogue: acc + s[m] + r[n, m]")
    row, turned = plan.tensors
    (loads,) = row.loads
    assert loads.startswith("s = tl.load(s_ptr + offs_m * stride_sm, mask=mask_m)")
    where, loads = turned.loads
    assert where == "r_offs = " + offsets.format(m="stride_rm", n="stride_rn")
    assert loads.startswith(f"r = tl.load(r_ptr + r_offs, mask={mask})")
    assert (turned.shape, turned.strides) == ("[N, M]", ("stride_rn", "stride_rm"))
    assert row.by_rows and not (turned.by_rows or turned.is_matrix)
    assert rows_first(plan.contraction.lhs, [row]) and not rows_first(
        plan.contraction.lhs, [row, turned]
    )


def test_tiles_of_three_consumers_can_be_listed() -> None:
    tiles = "schedule: warp_specialized\ntiles: {m: 128, n: 192, k: 64, warps: 12}"
    (plan,) = planned(GEMM + tiles, "targets: [sm_90]\n")
    assert 12 in {row.tile.warps for row in plan.rows}


def test_a_mistake_is_at_its_own_tile_alone() -> None:
    tiles = "\n".join(f"  - {{m: {m}, n: 512, k: 64}}" for m in (32, 512, 64))
    found = errors(GEMM + "schedule: [tiled, tma, split_k]\ntiles:\n" + tiles)
    assert found and all(line.startswith("spec.yaml:11:9: ") for line in found), found


def test_stages_left_out_fit_every_target() -> None:
    (plan,) = planned(GEMM + "tiles: {m: 128, n: 256, k: 64}")
    assert {row.architecture: row.tile.stages for row in plan.rows} == {
        100: 4,
        90: 3,
        80: 3,
    }


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            GEMM + "tiles: {m: 256, n: 256, k: 128, stages: 4}",
            "spec.yaml:8:12: tile 256x256x128 with 4 stages needs 524304 bytes of "
            "shared memory; sm_100 has 232448 for a block; nearest that fits: "
            "{m: 256, n: 256, k: 64, stages: 3}",
        ),
        (
            GEMM.replace("fp16", "{a: fp16, b: bf16}"),
            "spec.yaml:7:25: a is fp16 and b is bf16: both must be the same",
        ),
        (
            GEMM.replace("fp16", "{a: fp16, acc: fp64}"),
            "spec.yaml:7:27: fp16 accumulates in fp32, not fp64",
        ),
        (
            GEMM.replace("fp16", "{a: fp16, out: fp64}"),
            "spec.yaml:7:27: out 'fp64' is not possible for fp16 inputs (one of: fp16, "
            "bf16, fp32)",
        ),
        (
            GEMM + "precision: tf32",
            "spec.yaml:8:16: precision chooses how fp32 is multiplied; dtype is fp16",
        ),
        (
            GEMM + "epilogue: acc + bias[n]\noperands: {bais: fp32}",
            "spec.yaml:9:22: unknown operand 'bais'; did you mean 'bias'? (one of: "
            "bias)",
        ),
        (
            GEMM + "epilogue: acc * alpha[]\noperands: {alpha: fp32}",
            "spec.yaml:9:23: alpha[] is a Python float and has no dtype",
        ),
        (
            GEMM + "epilogue: |\n  pre = acc + 1\n  out = acc * 2",
            "spec.yaml:8:15: 'pre' is neither used nor returned",
        ),
        (
            GEMM
            + "epilogue: |\n  row = bias[n] * 2\n  out = acc + row\noutputs: [row]",
            "spec.yaml:8:15: output 'row' does not vary along both m and n, so it is "
            "no matrix [M, N]",
        ),
        (
            GEMM + "outputs: [d]",
            "spec.yaml:8:15: unknown output 'd' (one of: c)",
        ),
        (
            GEMM + "autotune: runtime",
            "spec.yaml:8:15: autotune: runtime needs a list of tiles",
        ),
        (
            GEMM + "autotune: runtime\nschedule: [tiled, tma]\n"
            "tiles: {m: 64, n: 64, k: 64}",
            "spec.yaml:9:23: autotune: runtime times tiles of schedule tiled, not of "
            "tma",
        ),
        (
            GEMM + "autotune: runtime\ntiles: {m: 64, n: 64, k: 64, split_k: 4}",
            "spec.yaml:9:43: autotune: runtime times tiles of a whole K, not split_k=4",
        ),
        (
            GEMM + "schedule: [tiled, tma]\ntiles:\n  - {m: 64, n: 64, k: 64}\n"
            "  - {m: 512, n: 512, k: 64}\n  - {m: 32, n: 64, k: 64}",
            "spec.yaml:11:9: tile 512x512x64 with 2 stages needs 524288 bytes",
        ),
        (
            GEMM + "schedule: [tiled, warp_specialized]\n"
            "tiles: {m: 64, n: 64, k: 64, warps: 12}",
            "spec.yaml:9:12: tile warps=12 is not a power of two, which Triton needs "
            "but in schedule warp_specialized; nearest: 8, 16",
        ),
        (
            GEMM.replace("fp16", "fp64") + "schedule: warp_specialized",
            "spec.yaml:8:15: schedule warp_specialized cannot serve this kernel: fp64 "
            "is multiplied from registers",
        ),
        (
            GEMM.replace("fp16", "fp64") + "tiles: {m: 64, n: 64, k: 16}",
            "spec.yaml:8:12: Triton compiles fp64 for sm_100 only with m up to 32 or "
            "fewer than 4 warps",
        ),
        (
            GEMM + "epilogue: acc + gelo(acc)",
            "spec.yaml:8:21: epilogue calls unknown function 'gelo'; did you mean "
            "'gelu'?",
        ),
    ],
)
def test_mistake_between_fields(kernel: str, message: str) -> None:
    assert any(line.startswith(message) for line in errors(kernel)), errors(kernel)
