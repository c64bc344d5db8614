"""Every function of the language: its kernel text, its torch function, its error rules.

The kernel text is run in NumPy with the errors that a GPU's instructions may have.
"""

import ast
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.base.version import RUNTIME_SOURCES
from gemmgen.tables.functions import OPS, Op
from gemmgen.verification.oracle.bounded import ARITHMETIC, Bounded, applied, exactly

FP32 = ARITHMETIC["fp32"]
SPECIALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]

# The functions as a user of torch would call them.
MEANING = {
    "relu": torch.relu,
    "leaky_relu": lambda x, slope: torch.where(
        x > 0, x, torch.nn.functional.leaky_relu(x, 1 / 64)
    ),
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "ndtr": torch.special.ndtr,
    "normal_pdf": lambda x: torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi),
    "erf": torch.erf,
    "abs": torch.abs,
    "square": torch.square,
    "softplus": torch.nn.functional.softplus,
    "hardswish": torch.nn.functional.hardswish,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "clamp": torch.clamp,
}


class Single(np.ndarray):
    """fp32 numbers whose quotients are off by up to 2 ulp, as `div.full.f32`'s are."""

    random = np.random.default_rng(0)

    def __truediv__(self, other):
        return nudged(np.true_divide(self, other), 2)

    def __rtruediv__(self, other):
        return nudged(np.true_divide(other, self), 2)


def nudged(values, ulps):
    """Values moved at random by up to `ulps` units in the last place."""
    steps = Single.random.integers(-ulps, ulps + 1, values.shape)
    spacing = np.abs(np.spacing(np.where(np.isfinite(values), values, 0)))
    moved = np.where(
        np.isfinite(values) & (values != 0), values + steps * spacing, values
    )
    return moved.astype(np.float32).view(Single)


class FakeTriton:
    """`triton.language` as far as the table uses it, no better than it must be."""

    class PropagateNan:
        ALL = "all"

    float64 = np.dtype(np.float64)
    abs = staticmethod(np.abs)
    where = staticmethod(lambda c, x, y: single(np.where(c, x, y)))

    @staticmethod
    def maximum(x, y, propagate_nan=None):
        return single((np.maximum if propagate_nan else np.fmax)(x, y))

    @staticmethod
    def minimum(x, y, propagate_nan=None):
        return single((np.minimum if propagate_nan else np.fmin)(x, y))

    @staticmethod
    def exp(x):
        scaled = x * np.float32(1.4426950408889634)
        return nudged(np.exp2(scaled.astype(np.float64)).astype(np.float32), 2)

    @staticmethod
    def log(x):
        return nudged(np.log(x.astype(np.float64)).astype(np.float32), 1)

    @staticmethod
    def sqrt(x):
        return nudged(np.sqrt(x), 1)

    @staticmethod
    def rsqrt(x):
        return nudged((1 / np.sqrt(np.asarray(x, np.float64))).astype(np.float32), 2)

    @staticmethod
    def erf(x):
        exact = torch.erf(torch.tensor(np.asarray(x, np.float64))).numpy()
        # CUDA promises erf(±inf) = ±1.
        return single(np.where(np.isinf(x), exact, nudged(exact.astype("f4"), 2)))


def flushed(values):
    """Without subnormal numbers, as the fast functions of a GPU."""
    return single(np.where(np.abs(values) < 2.0**-126, values * 0, values))


def fast_exp2(x):
    """Two units in the last place (CUDA C++ Programming Guide)."""
    exact = np.exp2(flushed(x).astype(np.float64))
    return flushed(nudged(exact.astype(np.float32), 2))


def fast_divide(x, y):
    """The same; beyond 2^126 a quotient is 0, or NaN of infinities."""
    beyond = (np.abs(y) > 2.0**126) & np.isfinite(x)
    quotient = np.true_divide(np.asarray(x), np.asarray(y))  # one of `Single` is off
    return flushed(nudged(np.where(beyond, 0 * x, quotient).astype(np.float32), 2))


def single(values):
    return np.asarray(values, dtype=np.float32).view(Single)


def of_device(name: str, scope: dict[str, Any]) -> Any:
    """A function of `_runtime/device.py`, of these names, without Triton."""
    module = ast.parse((RUNTIME_SOURCES / "device.py").read_text(encoding="utf-8"))
    (function,) = (one for one in module.body if getattr(one, "name", "") == name)
    function.decorator_list = []
    exec(compile(ast.Module([function], []), name, "exec"), scope)
    return scope[name]


SCOPE = {"tl": FakeTriton, "fast_divide": fast_divide, "fast_exp2": fast_exp2}
for called in ("normal_cdf", "times_ndtr"):
    SCOPE[called] = of_device(called, dict(SCOPE))


def as_kernel(row: Op, *arguments):
    """A row's Triton text, run on fp32 arrays."""
    names = dict(zip(row.parameters, map(single, arguments), strict=True))
    scope = {**SCOPE, **names}
    with np.errstate(all="ignore"):
        for step in row.steps:
            exec(step, scope)
        if row.in_place:
            return eval(row.triton, scope)(*names.values())
        return eval(row.triton, scope)


def doubles(*arrays):
    return [torch.tensor(np.asarray(one, dtype=np.float64)) for one in arrays]


def sample(row: Op, random, count=4000):
    """fp32 arguments of all magnitudes, and many where things happen."""
    spread = random.normal(size=count) * 2.0 ** random.uniform(-20, 12, count)
    near = random.uniform(-105, 105, count)
    x = np.concatenate([spread, near, random.uniform(-4, 4, count)])
    if row.name in ("log", "sqrt", "rsqrt"):
        x = np.abs(x) + 1e-6
    others = [random.normal(size=x.size) for _ in row.parameters[1:]]
    return [one.astype(np.float32) for one in (x, *others)]


def assert_within(row: Op, got, want: Bounded) -> None:
    got = torch.tensor(np.asarray(got, dtype=np.float64))
    fine = (got - want.value).abs() <= want.error
    fine |= (got == want.value) | (got.isnan() & want.value.isnan())
    fine |= want.error.isinf()
    assert fine.all(), (row.name, got[~fine][:3], want.value[~fine][:3])


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_rounding_covers_the_kernel_text(row: Op, seed: int) -> None:
    Single.random = np.random.default_rng(seed)
    arguments = sample(row, Single.random)
    want = applied(row, tuple(map(exactly, doubles(*arguments))), FP32)
    assert want.error.isfinite().float().mean() > 0.8, "the rule says nothing"
    assert_within(row, as_kernel(row, *arguments), want)


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-6, 1e-3, 0.1, 3.0]))
def test_moved_covers_arguments_with_errors(row: Op, seed: int, size: float) -> None:
    Single.random = np.random.default_rng(seed)
    arguments = sample(row, Single.random)
    errors = [size * np.abs(Single.random.normal(size=one.size)) for one in arguments]
    moved = [
        (one + Single.random.uniform(-1, 1, one.size) * error).astype(np.float32)
        for one, error in zip(arguments, errors, strict=True)
    ]
    # What fp32 makes of the moved argument is the argument that it was moved to.
    errors = [
        np.abs(np.float64(there) - np.float64(here))
        for here, there in zip(arguments, moved, strict=True)
    ]
    given_ = map(Bounded, doubles(*arguments), doubles(*errors))
    assert_within(row, as_kernel(row, *moved), applied(row, tuple(given_), FP32))


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
def test_kernel_text_and_row_mean_torchs_function(row: Op) -> None:
    values = np.array([*SPECIALS, 0.3, -7.5, 25.0, -25.0], dtype=np.float32)
    grids = np.meshgrid(*[values] * len(row.parameters))
    arguments = [one.ravel() for one in grids]
    if row.name == "leaky_relu":
        arguments[1] = np.full_like(arguments[0], 1 / 64)
    meant = MEANING[row.name](*doubles(*arguments)).numpy()
    np.testing.assert_array_equal(row.torch(torch, *doubles(*arguments)).numpy(), meant)
    want = applied(row, tuple(map(exactly, doubles(*arguments))), FP32)
    at_zero = np.isinf(meant) & (arguments[0] == 0)
    assert (want.error.isfinite().numpy() | at_zero).all()
    assert_within(row, as_kernel(row, *arguments), want)


def test_every_function_has_a_meaning() -> None:
    assert MEANING.keys() == OPS.keys()


def test_results_that_choose_an_argument_are_exact() -> None:
    x = torch.tensor([-2.0, 0.5, torch.inf, torch.nan], dtype=torch.float64)
    for name in ("relu", "abs", "square"):
        assert (applied(OPS[name], (exactly(x),), FP32).error == 0).all()


def test_an_argument_that_may_be_negative_has_no_square_root() -> None:
    x = Bounded(torch.tensor([1e-9]).double(), torch.tensor([1e-8]).double())
    for name in ("sqrt", "rsqrt", "log"):
        assert applied(OPS[name], (x,), FP32).error.isinf().all()


def test_silu_where_its_exponential_is_too_large_to_divide_by() -> None:
    """exp(89) is beyond 2^126, so the kernel gives 0 where silu is -2e-37."""
    x = np.array([-89.0], dtype=np.float32)
    assert as_kernel(OPS["silu"], x)[0] == 0
    want = applied(OPS["silu"], (exactly(doubles(x)[0]),), FP32)
    assert -2.1e-37 < want.value[0] < -1.9e-37
    assert abs(want.value[0]) <= want.error[0] < 2e-36
