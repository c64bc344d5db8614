"""The oracle and its bound: pinned by hand, and held against fp32 done otherwise."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.cases.data import KINDS, Source
from gemmgen.verification.oracle.bounded import (
    ARITHMETIC,
    Bounded,
    binary,
    chosen,
    exactly,
)
from gemmgen.verification.oracle.comparison import Block, accepted, judged
from gemmgen.verification.oracle.reference import Inputs, expected, product

FP32, FP64 = ARITHMETIC["fp32"], ARITHMETIC["fp64"]
ULP = 2.0**-24
BLOCK = Block(16, 16, 16)


def plan(dtype: str = "fp32", epilogue: str = "acc", more: str = "") -> Plan:
    text = f"""
gemmgen: 1
kernels:
  - name: one
    op: gemm
    layout: NN
    dtype: {dtype}
    epilogue: "{epilogue}"
    tiles: {{m: 16, n: 16, k: 16}}
    {more}
"""
    (one,) = plans(parse(text.encode(), "spec.yaml"))
    return one


def value(number: float, error: float = 0.0) -> Bounded:
    return Bounded(torch.tensor([number]).double(), torch.tensor([error]).double())


def apart(op: str, x: Bounded, y: Bounded, arithmetic=FP32) -> tuple[float, float]:
    result = binary(op, x, y, arithmetic)
    return result.value.item(), result.error.item()


def test_whole_numbers_stay_exact() -> None:
    assert apart("+", value(3), value(4)) == (7, 0)
    assert apart("*", value(-0.5), value(9)) == (-4.5, 0)


def test_each_operation_adds_one_rounding() -> None:
    sum_, error = apart("+", value(1), value(2.0**-30))
    assert sum_ == 1 + 2.0**-30
    assert error == pytest.approx(ULP, rel=1e-6)
    assert apart("*", value(1, 0.25), value(4))[1] == pytest.approx(1, rel=1e-6)


def test_fp32_division_is_never_exact() -> None:
    assert apart("/", value(8), value(2))[1] == pytest.approx(16 * ULP, rel=1e-6)
    assert apart("/", value(8), value(2), FP64)[1] < 1e-14


def test_infinities_and_nan_are_certain_or_anything() -> None:
    assert apart("+", value(torch.inf), value(1, 0.5)) == (torch.inf, 0)
    assert apart("*", value(torch.inf), value(1, 0.5)) == (torch.inf, 0)
    assert apart("*", value(torch.inf), value(0.25, 0.5))[1] == torch.inf
    assert apart("*", value(torch.nan), value(1, 0.5))[1] == 0
    assert apart("/", value(1), value(0))[1] == torch.inf
    assert apart("+", value(3e38), value(3e38))[1] == torch.inf


def test_what_may_be_flushed_is_within_the_bound() -> None:
    product_, error = apart("*", value(2.0**-70), value(2.0**-70))
    assert product_ <= error


def test_an_open_comparison_permits_both_branches() -> None:
    either = chosen(">", value(0.1, 0.2), value(0), value(5), value(-1))
    assert (either.value.item(), either.error.item()) == (5, 6)
    sure = chosen(">", value(0.1), value(0), value(5), value(-1))
    assert (sure.value.item(), sure.error.item()) == (5, 0)
    nan = chosen(">", value(torch.nan), value(0), value(5), value(-1))
    assert (nan.value.item(), nan.error.item()) == (-1, 0)


def test_sums_of_small_whole_numbers_are_exact_and_others_bounded() -> None:
    a = torch.tensor([[1.0, 2.0, 0.5]])
    b = torch.tensor([[4.0], [-8.0], [1.0]])
    whole = product(plan(), a[:, :2], b[:2])
    assert (whole.value.item(), whole.error.item()) == (-12, 0)
    part = product(plan(), a, b)
    # One prefix sum of -11.5 and products of 20.5: 40 units of 2^-23.
    assert part.value.item() == -11.5
    assert part.error.item() == pytest.approx(40 * 2.0**-23 * (20.5 + 11.5), rel=1e-6)


def test_whole_numbers_beyond_tf32_are_not_exact_in_it() -> None:
    a, b = torch.tensor([[2049.0]]), torch.tensor([[1.0]])
    assert product(plan(), a, b).error.item() == 0
    tf32 = product(plan(more="precision: tf32"), a, b)
    assert tf32.error.item() > 2049 * 2.0**-10


def test_results_round_to_nearest_even_once() -> None:
    half = plan("fp16")
    want = exactly(torch.tensor([[2049.0]]).double())
    for got, fine in ((2048, True), (2050, False), (2049, False), (torch.nan, False)):
        answer = accepted(half, half.results[0], want, torch.tensor([[got]]).double())
        assert bool(answer) is fine


def test_overflow_of_the_result_is_an_infinity() -> None:
    half = plan("fp16")
    want = exactly(torch.tensor([[70000.0]]).double())
    got = torch.tensor([[torch.inf, 65504.0]]).double()
    assert accepted(half, half.results[0], want, got).tolist() == [[True, False]]


def test_an_infinite_error_accepts_anything() -> None:
    half = plan("fp16")
    want = Bounded(torch.zeros(1, 1).double(), torch.full((1, 1), torch.inf).double())
    for got in (1e4, torch.nan, -torch.inf):
        assert accepted(half, half.results[0], want, torch.tensor([[got]]).double())


def test_alpha_is_the_fp32_nearest_to_the_number_given() -> None:
    for dtype, meant in (("fp32", np.float32(0.1)), ("fp64", 0.1)):
        kernel = plan(dtype, "alpha[] * acc")
        ones = torch.ones(1, 1).to(getattr(torch, "float" + dtype[2:]))
        want = expected(kernel, Inputs(ones, (ones,), {"alpha": 0.1}))["c"]
        assert want.value.item() == meant


def test_where_both_results_of_an_epilogue_are_returned() -> None:
    kernel = plan(
        "fp32", r"pre = acc + bias[n]\nout = relu(pre)", "outputs: [out, pre]"
    )
    a, b = torch.tensor([[1.0], [-5.0]]), torch.tensor([[1.0, 2.0]])
    bias = torch.tensor([[0.5, 1.0]])
    want = expected(kernel, Inputs(a, (b,), {"bias": bias}))
    assert want["pre"].value.tolist() == [[1.5, 3], [-4.5, -9]]
    assert want["out"].value.tolist() == [[1.5, 3], [0, 0]]
    assert want["out"].error.tolist() == [[0, 0], [0, 0]]


def test_a_lost_k_block_is_named() -> None:
    kernel = plan("fp32", "acc + bias[n]")
    a, b = torch.randn(20, 40), torch.randn(40, 20)
    bias = torch.randn(1, 20)
    got = a @ b + bias
    got[17, 3] -= a[17, 16:32] @ b[16:32, 3]
    fault = judged(kernel, Inputs(a, (b,), {"bias": bias}), [got], BLOCK).fault
    assert fault.startswith("c[17, 3] is ")
    assert "1 of 400 elements" in fault
    assert "in tile (1, 0) of 16x16x16, at (1, 3) within it" in fault
    assert "as if K block 1 (k 16 to 31) were left out" in fault


def sums(a: np.ndarray, b: np.ndarray) -> Sequence[np.ndarray]:
    """The product in fp32, in several orders and groupings."""
    terms = (a[:, :, None] * b[None]).astype(np.float32)
    forwards = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
    backwards = np.cumsum(terms[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    halves = [
        part.sum(axis=1, dtype=np.float32) for part in np.array_split(terms, 2, 1)
    ]
    return [forwards, backwards, halves[0] + halves[1], cut_sums(terms)]


def cut_sums(terms: np.ndarray, lanes: int = 4) -> np.ndarray:
    """As the coarsest matrix unit: aligned to the largest of 4 products, bits cut."""
    acc = np.zeros(terms.shape[::2])
    for k in range(0, terms.shape[1], lanes):
        group = np.concatenate([acc[:, None], terms[:, k : k + lanes]], axis=1)
        largest = np.abs(group).max(axis=1, keepdims=True)
        unit = 2.0 ** (np.floor(np.log2(np.maximum(largest, 1e-30))) - 23)
        total = (np.trunc(group / unit) * unit).sum(axis=1)
        top = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(total), 1e-30))) - 23)
        acc = np.trunc(total / top) * top
    return acc


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "special"])
@settings(max_examples=15, deadline=None)
@given(k=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
def test_the_bound_holds_for_any_order(kind: str, k: int, seed: int) -> None:
    kernel = plan("fp16")
    source = Source(kernel, k, True, torch.Generator().manual_seed(seed))
    a = KINDS[kind](source, (6, k)).half()
    b = KINDS[kind](source, (k, 5)).half()
    want = product(kernel, a, b)
    for got in sums(a.float().numpy(), b.float().numpy()):
        miss = (torch.tensor(np.asarray(got, dtype=np.float64)) - want.value).abs()
        assert (miss <= want.error).all()


def test_lost_precision_is_beyond_the_bound() -> None:
    """What must not pass: tf32 or an fp16 accumulator where fp32 was promised."""
    kernel = plan("fp32")
    torch.manual_seed(0)
    a, b = torch.randn(16, 64), torch.randn(64, 16)
    want = product(kernel, a, b)
    cut = [(one.numpy().view("u4") & 0xFFFFE000).view("f4") for one in (a, b)]
    miss = (torch.tensor(cut[0].astype("f8") @ cut[1].astype("f8")) - want.value).abs()
    assert (miss > want.error).float().mean() > 0.9
