"""Views, data and drawn cases: what they promise to the checks that use them."""

import itertools

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.cases.cases import (
    Case,
    compiled_cases,
    describe_case,
    input_tensors,
    interpreted_cases,
)
from gemmgen.verification.cases.data import EXACT, KINDS, Source
from gemmgen.verification.cases.views import (
    FOR_OUTPUTS,
    VIEWS,
    framed_input,
    framed_output,
)
from gemmgen.verification.example import large_offsets
from gemmgen.verification.example.edge_cases import (
    describable,
    edge_cases,
    indescribable,
)
from gemmgen.verification.example.large_offsets import far_call, far_places
from gemmgen.verification.example.one_example import (
    framed_inputs,
    framed_outputs,
    input_shapes,
)
from gemmgen.verification.oracle.comparison import Block
from gemmgen.verification.oracle.reference import product
from generated._runtime import table as _table

SPEC = """
gemmgen: 1
kernels:
  - name: layer
    op: linear
    dtype: {dtype}
    epilogue: alpha[] * acc + bias[n] * scale[m]
    tiles: {{m: 16, n: 32, k: 16}}
"""
BLOCK = Block(16, 32, 16)


def layer(dtype: str = "fp16") -> Plan:
    (plan,) = plans(parse(SPEC.format(dtype=dtype).encode(), "spec.yaml"))
    return plan


shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)
@settings(deadline=None)
@given(shape=shapes)
def test_a_view_holds_its_data_and_nan_surrounds_it(view, shape) -> None:
    counted = iter(range(10**6))

    def fill(stored):
        numbers = [next(counted) for _ in range(torch.Size(stored).numel())]
        return torch.tensor(numbers, dtype=torch.float64).reshape(stored)

    framed = framed_input(view, shape, torch.float32, fill)
    assert framed.view.shape == torch.Size(shape)
    assert not framed.view.isnan().any()
    distinct = framed.view.unique().numel()
    assert (~framed.buffer.isnan()).sum() == distinct
    if not (view.shared or view.overlaps):
        assert distinct == framed.view.numel()


@pytest.mark.parametrize("name", FOR_OUTPUTS)
def test_a_frame_shows_what_is_written_outside(name: str) -> None:
    framed = framed_output(VIEWS[name], (3, 4), torch.float16, torch.device("cpu"))
    assert framed.view.isnan().all()
    framed.view.fill_(7)
    assert framed.frame_is_intact()
    before = framed.view.storage_offset() - 1
    framed.buffer[before] = torch.nan
    assert not framed.frame_is_intact()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(k=st.integers(1, 200), seed=st.integers(0, 2**32 - 1))
def test_data_is_what_its_kind_says(dtype: str, kind: str, k: int, seed: int) -> None:
    plan = layer(dtype)
    source = Source(plan, k, True, torch.Generator().manual_seed(seed))
    a, b = KINDS[kind](source, (5, k)), KINDS[kind](source, (k, 4))
    stored = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(dtype, torch.float64)
    assert torch.isfinite(a.to(stored)).all() == (kind != "special")
    if kind in ("narrow", "wide"):
        assert torch.equal(a.to(stored).double(), a)
        assert (product(plan, a, b).error == 0).all()
    if kind in EXACT:
        order = torch.randperm(k, generator=torch.Generator().manual_seed(seed))
        wide = torch.float64 if dtype == "fp64" else torch.float32
        sums = [x.to(wide) @ y.to(wide) for x, y in ((a, b), (a[:, order], b[order]))]
        assert torch.equal(*(torch.nan_to_num(one, nan=0.5) for one in sums))


@settings(max_examples=200, deadline=None)
@given(interpreted_cases(layer(), BLOCK))
def test_interpreted_cases_are_small_and_whole(case: Case) -> None:
    tiles = -(-case.m // BLOCK.m) * -(-case.n // BLOCK.n)
    assert tiles <= 4
    assert tiles * -(-case.k // BLOCK.k) <= 13
    assert len(case.views) == 5
    assert VIEWS[case.views[-1]].shared == ""
    assert len(case.numbers) == 1
    shape = input_shapes(layer(), case)
    assert shape["scale"] == case.rows
    assert shape["x"] == (*case.rows, case.k)


@settings(max_examples=200, deadline=None)
@given(compiled_cases(layer(), BLOCK))
def test_compiled_cases_are_aligned_or_are_not(case: Case) -> None:
    multiples = {size % 16 == 0 for size in (case.n, case.k) if size}
    assert len(multiples) <= 1
    assert len(set(case.views[:4])) == 1


@pytest.mark.parametrize("cases", [interpreted_cases, compiled_cases])
def test_results_by_pointers_are_transposed_at_times(cases) -> None:
    plan = layer()

    def holds(case: Case) -> bool:
        described_inputs = {*case.views[:2]} <= {"contiguous", "padded"}
        sizes = case.n and case.k and case.n % 8 == case.k % 8 == 0
        return bool(described_inputs and sizes and case.views[-1] == "transposed")

    assert find(cases(plan, BLOCK, {"inputs"}), holds)


def test_a_case_makes_the_same_tensors_every_time() -> None:
    case = Case((3,), 4, 5, "normal", ("padded",), (2.0,), seed=9)
    one, two = (framed_inputs(layer(), case, torch.device("cpu")) for _ in range(2))
    assert all(torch.equal(one[name].view, two[name].view) for name in one)
    assert not torch.equal(one["x"].view[0, :4], one["w"].view[0, :4])


def test_a_case_is_described_in_a_line() -> None:
    case = Case((2, 3), 4, 5, "wide", ("padded", "contiguous", "sliced"), (2.0,), 9)
    assert input_tensors(layer()) == ["x", "w", "bias", "scale"]
    assert describe_case(layer(), case) == (
        "M=2x3 N=4 K=5, x padded, bias sliced, alpha=2.0, wide data, seed 9, out given"
    )


def test_fixed_cases_hold_every_known_trap() -> None:
    cases = list(edge_cases(layer(), BLOCK))
    sizes = {(case.m, case.n, case.k) for case in cases}
    assert {(5, 7, 0), (0, 7, 5), (5, 0, 3), (1, 1, 1), (17, 33, 17)} <= sizes
    assert any(case.m > 8 * BLOCK.m for case in cases)
    assert any("rows shared" in case.views for case in cases)
    assert (133 * BLOCK.m, BLOCK.n, BLOCK.k + 1) not in sizes
    fewer = list(edge_cases(layer(), BLOCK, group=2))
    assert max(case.m for case in fewer) == 2 * BLOCK.m + 3
    (wave,) = list(edge_cases(layer(), BLOCK, 132))[len(cases) :]
    assert (wave.m, wave.n, wave.k) == (133 * BLOCK.m, BLOCK.n, BLOCK.k + 1)


def offset(tensor: Tensor) -> int:
    """Of a tensor's last element, in elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return sum((size - 1) * stride for size, stride in pairs)


def test_far_calls_take_each_tensor_alone_beyond_every_axis_and_their_sum() -> None:
    seen = set()
    for far in far_places(layer(), BLOCK):
        seen.add((far.name, far.axes, far.case.k))
        call = far_call(layer(), far, torch.device("cpu"))
        tensors = dict(call.tensors, y=(call.outputs or [])[0])
        assert [name for name in tensors if offset(tensors[name]) >= 2**31] == [
            far.name
        ]
        one = tensors[far.name]
        steps = [(n - 1) * s for n, s in zip(one.shape, one.stride(), strict=True)]
        assert (max(steps) < 2**31) == (len(far.axes) == 2)
    axes = ((0,), (1,), (0, 1))
    matrices = {(name, along, 3) for name in ("x", "w", "y") for along in axes}
    vectors = {("bias", (0,), 3), ("scale", (0,), 3)}
    assert seen == matrices | vectors | {("x", (1,), 17), ("w", (1,), 17)}


def test_far_calls_are_also_of_tensors_that_descriptors_describe() -> None:
    seen = set()
    for far in far_places(layer(), BLOCK, {"inputs"}):
        seen.add((far.name, far.axes))
        call = far_call(layer(), far, torch.device("cpu"))
        assert all(_table.tma_compatible(call.tensors[name]) for name in ("x", "w"))
    results = {("y", (0,)), ("y", (1,)), ("y", (0, 1))}
    assert seen == results | {(name, (0,)) for name in ("x", "w", "bias", "scale")}


def test_far_calls_are_one_kernel_on_a_gpu() -> None:
    """No stride is 1 or a multiple of 16, which kernels are compiled for."""
    for far in far_places(layer(), BLOCK):
        call = far_call(layer(), far, torch.device("cpu"))
        for one in (*call.tensors.values(), *(call.outputs or [])):
            assert all(step > 1 and step % 16 for step in one.stride())


def test_a_process_waits_for_others_memory_with_none_of_calls_that_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else processes that share a GPU may all wait for what the others keep."""
    free = [1]
    monkeypatch.setattr(large_offsets, "_PATIENCE", 0.3)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: free.append(60))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[-1], 80))
    monkeypatch.setattr(torch, "empty", lambda size, **_: size)
    assert large_offsets._storage(40, torch.device("cuda")) == 40


def test_a_far_tensor_has_an_element_for_each_place() -> None:
    for roles in ((), ("inputs",)):
        for far in far_places(layer(), BLOCK, roles):
            call = far_call(layer(), far, torch.device("cpu"))
            for one in (*call.tensors.values(), *(call.outputs or [])):
                places = addresses(one)
                assert len(places) == len(set(places))


def addresses(tensor: Tensor) -> list[int]:
    """Of every byte."""
    indices = itertools.product(*map(range, tensor.shape))
    size, strides = tensor.element_size(), tensor.stride()
    starts = [
        tensor.data_ptr()
        + size * sum(i * s for i, s in zip(index, strides, strict=True))
        for index in indices
    ]
    return [start + byte for start in starts for byte in range(size)]


def test_descriptors_have_fixed_cases_of_their_own() -> None:
    cases = list(edge_cases(layer(), BLOCK))
    fitting = [case for case in cases if describable(layer(), case)]
    assert any(case.m > 8 * BLOCK.m for case in fitting)
    assert any("padded" in case.views for case in fitting)
    assert all(case.n % 16 == case.k % 16 == 0 for case in fitting)


def test_one_condition_fails_of_each_tensor_that_is_described() -> None:
    """Held against the launchers' own words for a matrix that can be described."""

    def failed(tensor: Tensor) -> set[str]:
        rows, columns = tensor.stride()
        size, width = tensor.element_size(), tensor.shape[1]
        conditions = {
            "start": tensor.data_ptr() % 16 == 0,
            "rows": rows * size % 16 == 0,
            "columns": columns == 1,
            "overlap": rows >= width,
            "width": width * size % 16 == 0,
        }
        return {name for name, holds in conditions.items() if not holds}

    seen = set()
    for case in indescribable(layer(), {"inputs", "results"}):
        inputs = framed_inputs(layer(), case, torch.device("cpu"))
        outputs = framed_outputs(layer(), case, torch.device("cpu"))
        tensors = {name: inputs[name].view for name in ("x", "w")}
        tensors["y"] = outputs[0].view
        found = {(name, *failed(one)) for name, one in tensors.items() if failed(one)}
        assert case.k % 16 or case.n % 16 or len(found) == 1
        seen |= found
    conditions = ("start", "rows", "columns", "overlap", "width")
    every = {(name, one) for name in ("x", "w", "y") for one in conditions}
    assert seen == every - {("y", "overlap")}


@settings(max_examples=200, deadline=None)
@given(interpreted_cases(layer(), BLOCK, programs=24))
def test_many_tiles_are_so_many_programs(case: Case) -> None:
    sides = ((case.m, BLOCK.m), (case.n, BLOCK.n), (case.k, BLOCK.k))
    counts = [-(-size // side) for size, side in sides]
    assert counts[0] * counts[1] * counts[2] <= 24


@pytest.mark.parametrize("axis", range(3))
def test_many_tiles_come_along_every_side(axis: int) -> None:
    def long(case: Case) -> bool:
        return (case.m // 16, case.n // 32, case.k // 16)[axis] > 9

    assert find(interpreted_cases(layer(), BLOCK, programs=24), long)


@pytest.mark.parametrize("k", [64, 97])
def test_cancelling_data_leaves_nothing_but_rounding(k: int) -> None:
    case = Case((5,), 4, k, "cancelling")
    framed = framed_inputs(layer("fp32"), case, torch.device("cpu"))
    x, w = (framed[name].view.double() for name in ("x", "w"))
    assert x.abs().max() > 1000
    assert (x @ w.T).abs().max() < 1e-6 * (x.abs() @ w.abs().T).min()
    assert (x[:, : k // 2] @ w[:, : k // 2].T).abs().max() > 1e5
