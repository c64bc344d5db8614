"""What launchers ask of their arguments: memory, tensors, gradients, numbers."""

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from generated._runtime import checks  # noqa: E402
from generated._runtime.support import dry_run  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the CPU will do, bf16 among them."""
    monkeypatch.setattr(checks, "INTERPRETED", True)
    monkeypatch.setattr(checks, "interprets_bf16", lambda: True)


# -- memory --------------------------------------------------------------------------

ROOM = torch.zeros(400)


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A view of at most 40 elements, in fp32 or, of the same bytes, in fp16."""
    room = draw(st.sampled_from([ROOM, ROOM.view(torch.float16)]))
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    strides = [draw(st.integers(0, 24)) for _ in sizes]
    return room.as_strided(sizes, strides, draw(st.integers(0, 60)))


def touched(tensor: torch.Tensor) -> list[int]:
    """The bytes of each element, in any order."""
    width = tensor.element_size()
    starts = torch.zeros(tensor.shape, dtype=torch.int64)
    for axis, stride in enumerate(tensor.stride()):
        shape = [-1 if i == axis else 1 for i in range(tensor.dim())]
        starts += (torch.arange(tensor.shape[axis]) * stride * width).view(shape)
    return [
        tensor.data_ptr() + start + byte
        for start in starts.flatten().tolist()
        for byte in range(width)
    ]


@given(one=views(), other=views())
def test_what_is_said_to_be_apart_shares_no_byte(
    one: torch.Tensor, other: torch.Tensor
) -> None:
    if checks.apart(one, other):
        assert set(touched(one)).isdisjoint(touched(other))
    assert checks.apart(one, other) is checks.apart(other, one)


@given(one=views())
def test_what_is_said_to_be_distinct_writes_each_byte_once(one: torch.Tensor) -> None:
    if checks.distinct(one):
        assert len(set(touched(one))) == len(touched(one))


@given(one=views())
def test_the_extent_ends_with_the_last_byte(one: torch.Tensor) -> None:
    every = touched(one)
    assert checks.extent(one) == (max(every) + 1 - one.data_ptr() if every else 0)


def matrix(rows: int, columns: int, pitch: int, start: int = 0) -> torch.Tensor:
    return ROOM.as_strided((rows, columns), (pitch, 1), start)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (matrix(4, 5, 5), matrix(4, 5, 5, 20), True),
        (matrix(4, 5, 5), matrix(4, 5, 5, 19), False),
        (matrix(4, 5, 5), matrix(4, 5, 5), False),
        (matrix(4, 8, 24), matrix(4, 8, 24, 8), True),  # columns of one buffer
        (matrix(4, 8, 24), matrix(4, 8, 24, 16), True),
        (matrix(4, 8, 24), matrix(4, 8, 24, 7), False),
        (matrix(4, 9, 24), matrix(4, 8, 24, 8), False),
        (matrix(4, 8, 24, 20), matrix(4, 8, 24, 28), True),
        (matrix(4, 8, 24), matrix(2, 8, 48, 8), True),  # every other row of it
        (matrix(4, 8, 24), matrix(4, 8, 25, 8), False),
        (matrix(1, 8, 24), matrix(4, 8, 24, 8), True),
        (matrix(4, 5, 5).T, matrix(5, 4, 4), False),
        (matrix(4, 0, 5), matrix(4, 5, 5), True),
    ],
)
def test_columns_of_one_buffer_are_apart(
    one: torch.Tensor, other: torch.Tensor, apart: bool
) -> None:
    assert checks.apart(one, other) is apart
    assert checks.apart(other, one) is apart


def accepted(out: torch.Tensor, *inputs: torch.Tensor, **more: Any) -> torch.Tensor:
    return checks.Checks("f").output("out", out, out.shape, out.dtype, inputs, **more)


X = matrix(20, 8, 8, 200)


@pytest.mark.parametrize(
    ("out", "operand", "message"),
    [
        (matrix(4, 5, 5), matrix(4, 5, 5), None),
        (matrix(4, 5, 7), matrix(4, 5, 7), None),
        (matrix(4, 5, 5), matrix(4, 5, 5, 30), None),
        (matrix(4, 5, 5), matrix(4, 5, 5, 5), "matrix operand itself"),
        (matrix(4, 5, 5), matrix(4, 5, 5, 1), "matrix operand itself"),
        (matrix(5, 5, 5), matrix(5, 5, 5).T, "matrix operand itself"),
        (matrix(4, 5, 5), matrix(1, 5, 5).expand(4, 5), "matrix operand itself"),
        (matrix(4, 5, 5), matrix(4, 5, 5).view(torch.int32), "matrix operand itself"),
        (matrix(20, 8, 1), matrix(20, 8, 8, 200), "elements that share memory"),
        (matrix(1, 8, 8).expand(4, 8), X, "elements that share memory"),
        (matrix(4, 5, 5, 199), matrix(4, 5, 5), "share memory with an input"),
    ],
)
def test_a_result_may_be_an_operand_itself_and_nothing_else(
    out: torch.Tensor, operand: torch.Tensor, message: str | None
) -> None:
    if message is None:
        assert accepted(out, X, in_place=(operand,)) is out
        return
    with pytest.raises(ValueError, match=f"f: out must .*{message}"):
        accepted(out, X, in_place=(operand,))


def test_writing_counts_as_a_version() -> None:
    out = torch.zeros(2, 3)
    accepted(out, X)
    assert out._version == 1
    with torch.inference_mode():
        accepted(torch.zeros(2, 3), X)


# -- tensors -------------------------------------------------------------------------


def seen(tensor: Any, dtype: torch.dtype = torch.float32) -> None:
    checks.Checks("f").tensor("x", tensor, ("M", "K"), dtype)


class Wrapped(torch.Tensor):
    """A tensor that decides what operations mean."""

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.empty(4, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.imag(torch.zeros(4, 5, dtype=torch.complex64).conj()),
         "hold the values that it shows"),
        (lambda: torch.zeros(4, 5).to_sparse(), "dense and strided, got .*sparse_coo"),
        (lambda: torch.zeros(4, 5).to_sparse_csr(), "dense and strided, got .*csr"),
        (lambda: torch.zeros(4, 5).to_mkldnn(), "dense and strided, got .*mkldnn"),
        (lambda: torch.nested.nested_tensor([torch.zeros(5)] * 4),
         "dense and strided, got .*nested"),
        (lambda: torch.zeros(4, 5, device="meta"), "on a GPU or CPU, got meta"),
        (fake, "a plain tensor, got FakeTensor"),
        (lambda: torch.zeros(4, 5).as_subclass(Wrapped), "a plain tensor, got Wrapped"),
        (lambda: torch.zeros(4, 5, requires_grad=True), "not require a gradient"),
        (lambda: torch.zeros(4, 5).numpy(), "fp32, got ndarray"),
    ],
)  # fmt: skip
def test_what_a_kernel_cannot_read_is_refused_by_name(
    make: Callable[[], Any], message: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of beta features
        tensor = make()
    with pytest.raises(ValueError, match=f"^f: x must .*{message}"):
        seen(tensor)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_transforms_are_refused_by_name(transform: Any) -> None:
    def called(tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            checks.Checks("f").tensor("x", tensor, (...,), torch.float32)
        return tensor.sum()

    with pytest.raises(ValueError, match=r"f: x must .* torch\.func transform"):
        transform(called)(torch.zeros(4, 5))


def test_plain_tensors_are_seen() -> None:
    seen(torch.zeros(4, 5))
    seen(torch.nn.Parameter(torch.zeros(4, 5), requires_grad=False))
    seen(torch.zeros(4, 5).as_subclass(type("Named", (torch.Tensor,), {})))
    with torch.no_grad():
        seen(torch.nn.Parameter(torch.zeros(4, 5)))
    with torch.inference_mode():
        seen(torch.zeros(4, 5))


def test_no_advice_leads_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "INTERPRETED", False)
    with pytest.raises(ValueError, match=r"^f: x must be on a GPU, got cpu$"):
        seen(torch.zeros(4, 5))
    with dry_run():  # nothing runs on it: DTensor asks what a call would return
        seen(torch.zeros(4, 5))


def test_bf16_is_refused_where_the_interpreter_gets_it_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "interprets_bf16", lambda: False)
    seen(torch.zeros(4, 5))
    seen(torch.zeros(4, 5, dtype=torch.float16), torch.float16)
    with pytest.raises(ValueError, match="f: x must not be bf16 in Triton's interpret"):
        seen(torch.zeros(4, 5, dtype=torch.bfloat16), torch.bfloat16)


# -- several results -----------------------------------------------------------------


def pair(*out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    types = (torch.float32, torch.float32)
    return checks.Checks("f").outputs("out", list(out), (4, 5), types, (X,))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (matrix(4, 5, 5, 10), r"f: out\[1\] must not share memory with out\[0\]"),
        (matrix(4, 5, 5, 210), r"f: out\[1\] must not share memory with an input"),
        (matrix(4, 4, 5, 30), r"f: out\[1\] must be \[4, 5\] fp32"),
        (matrix(4, 5, 4, 30), r"f: out\[1\] must not have elements that share"),
    ],
)
def test_no_result_is_written_unless_all_can_be(
    second: torch.Tensor, message: str
) -> None:
    first = torch.zeros(4, 5) if "fp32" in message else matrix(4, 5, 5)
    before = first._version
    with pytest.raises(ValueError, match=message):
        pair(first, second)
    assert first._version == before
    with pytest.raises(ValueError, match="f: out must be a tuple of 2 tensors"):
        pair(first)


def test_results_that_can_be_written_are_marked_so() -> None:
    given = torch.zeros(4, 5), torch.zeros(4, 5)
    returned = pair(*given)
    assert type(returned) is tuple
    for mine, theirs in zip(returned, given, strict=True):
        assert mine is theirs and mine._version == 1
    assert [one.dtype for one in new_pair()] == [torch.float32, torch.float16]


def new_pair() -> tuple[torch.Tensor, ...]:
    types = (torch.float32, torch.float16)
    return checks.Checks("f").outputs("out", None, (4, 5), types, (X,))


# -- numbers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [2, 0.5, -0.0, Fraction(1, 4), np.float16(2), np.float32(0.1), np.float64(0.1),
     np.int8(3), np.uint64(7), np.longdouble(0.5), math.inf, math.nan],
    ids=repr,
)  # fmt: skip
def test_numbers_of_any_kind_are_floats(value: Any) -> None:
    found = checks.Checks("f").number("alpha", value)
    assert type(found) is float
    assert found == float(value) or math.isnan(found)


@pytest.mark.parametrize(
    "value",
    [True, np.bool_(True), "1", None, 1j, np.complex64(1), np.zeros(1), 10**400,
     torch.tensor(1.0)],
    ids=["bool", "numpy bool", "text", "none", "complex", "numpy complex", "array",
         "huge", "tensor"],
)  # fmt: skip
def test_what_is_no_float_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="f: alpha must"):
        checks.Checks("f").number("alpha", value)


@pytest.mark.parametrize("value", [1e39, -1e39, 10**39, np.float64(3.5e38)], ids=repr)
def test_what_becomes_infinite_in_a_kernel_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="f: alpha must fit fp32"):
        checks.Checks("f").number("alpha", value)
    assert checks.Checks("f").number("alpha", value, torch.float64) == float(value)
    assert checks.Checks("f").number("alpha", checks.LARGEST) == checks.LARGEST
