"""What every launcher shares, on the CPU: remembered calls, rows, descriptors, types.

Triton's own launcher needs a GPU; here a launch is played, and all around it is real.
"""

import importlib
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from gemmgen.runtime.gradients import function  # noqa: E402
from gemmgen.schedules import SCHEDULES  # noqa: E402
from generated._runtime import (  # noqa: E402
    checks,
    dispatch,
    families,
    launch,
    launch_cache,
    packed,
    repeats,
    replay,
    support,
)  # fmt: skip
from generated._runtime import table as table_  # noqa: E402
from generated._runtime import tile as tile_  # noqa: E402

CPU = torch.device("cpu")
ANY = tile_.ANY


# -- remembered ----------------------------------------------------------------------

LOG: list[str] = []
BY_ADDRESS: dict[int, torch.Tensor] = {}


def play(a: Any, b: Any, c: Any) -> None:
    """A launch that computes a + b on the CPU; what repeats it does so too."""
    c.copy_(a + b)
    LOG.append("launched")
    if table_.RECORD.launches is not None:
        sizes = *a.shape, 1
        one = launch.Launch(KERNEL, tile(), NUMBERED, sizes, once, (a, b, c), ())
        table_.RECORD.launches.append((one, packed.Compiled(add, (), True, ())))
        table_.RECORD.tiles = lambda: [tile()]


def add(x: int, y: int, z: int, stream: int, passed: tuple[Any, ...]) -> None:
    """What stands for the launcher in C of the compiled kernel."""
    left, right, sum_ = (BY_ADDRESS[address] for address in passed[:3])
    assert passed[3:] == (*left.shape, 1)
    sum_.copy_(left + right)
    LOG.append("repeated")


def once(tile: Any, sizes: Any, device: Any) -> tuple[int, ...]:
    """A grid of one program."""
    return (1,)


def tile(schedule: str = "tiled", sm: int = 80, *limits: float, **more: float) -> Any:
    M, N, K = limits or (ANY, ANY, ANY)
    sizes = {"m": 16, "n": 16, "k": 16, "group_m": 8, "split_k": 1, "stages": 2}
    return tile_.Tile(schedule, sm, M, N, K, **(sizes | {"warps": 4} | more))


SIZE = SimpleNamespace(is_constexpr=False, do_not_specialize=False)
KERNEL = SimpleNamespace(params=[SIZE] * 3)
NUMBERED = torch.device("cpu", 0)
"""A device that is called 0."""


def noted(one: torch.Tensor) -> torch.Tensor:
    BY_ADDRESS[one.data_ptr()] = one
    return one


def ones(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return noted(torch.randn(sizes).to(dtype))


def adding(a: Any, b: Any, *, out: Any = None) -> Any:
    """A launcher: checks, result, one launch."""
    M, N = checks.Checks("adding").tensor("a", a, ("M", "N"), a.dtype)
    checks.Checks("adding").tensor("b", b, (M, N), a.dtype, a.device)
    c = checks.Checks("adding").output("out", out, (M, N), a.dtype, (a,), in_place=(b,))
    if N == 13:
        raise RuntimeError("unlucky")
    for _ in range(2 if N == 2 else 1):
        play(a, b, c)
    return c


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One device, called 0, and tensors of the CPU."""
    monkeypatch.setattr(checks, "INTERPRETED", True)
    monkeypatch.setattr(launch, "INTERPRETED", False)
    monkeypatch.setattr(launch_cache, "INTERPRETED", False)
    monkeypatch.setattr(families, "empty", new_on_cpu)
    stream = SimpleNamespace(get_current_stream=lambda index: 0)
    monkeypatch.setattr(replay, "driver", SimpleNamespace(active=stream))
    monkeypatch.setattr(launch_cache, "current_device", lambda: 0)
    LOG.clear()
    BY_ADDRESS.clear()
    yield
    assert table_.RECORD.launches is None


def new_on_cpu(shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
    return noted(torch.empty_strided(shape, strides, dtype=dtype))


def right(call: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> str:
    """Call, compare, and say what the call did."""
    before = len(LOG)
    assert torch.equal(call(a, b), a + b)
    return " ".join(LOG[before:])


def known(call: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> None:
    """Call until the launcher remembers, at the second call of a signature."""
    assert right(call, a, b) == right(call, a, b) == "launched"
    LOG.clear()


def test_calls_of_a_signature_repeat_the_second() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    assert [right(call, a, b) for _ in range(4)] == ["launched"] * 2 + ["repeated"] * 2
    assert right(call, ones(4, 5), ones(4, 5)) == "repeated"


@pytest.mark.parametrize(
    "other",
    [
        lambda: (ones(5, 4), ones(5, 4)),
        lambda: (ones(4, 5, dtype=torch.float64), ones(4, 5, dtype=torch.float64)),
        lambda: (noted(torch.randn(5, 4).T), ones(4, 5)),
        lambda: (ones(4, 5), noted(torch.randn(5, 4).T)),
        lambda: (noted(torch.randn(4, 9)[:, :5]), ones(4, 5)),
        lambda: (noted(torch.randn(21)[1:].view(4, 5)), ones(4, 5)),
        lambda: (noted(torch.randn(1, 5).expand(4, 5)), ones(4, 5)),
    ],
    ids=["sizes", "dtype", "a transposed", "b transposed", "pitch", "offset", "spread"],
)
def test_another_signature_is_launched_afresh(other: Callable[[], Any]) -> None:
    call = launch_cache.launch_cache()(adding)
    known(call, ones(4, 5), ones(4, 5))
    a, b = other()
    known(call, a, b)
    assert right(call, a, b) == "repeated"
    assert right(call, ones(4, 5), ones(4, 5)) == "repeated"


def test_what_is_given_as_out_is_written_and_returned() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    for did in ("launched", "launched", "repeated", "repeated"):
        out = noted(torch.full((4, 5), torch.nan))
        assert call(a, b, out=out) is out
        assert torch.equal(out, a + b)
        assert LOG[-1] == did
    wide = noted(torch.zeros(4, 8)[:, :5])
    assert call(a, b, out=wide) is wide
    assert torch.equal(wide, a + b)
    assert LOG[-1] == "launched"
    assert right(call, a, b) == "launched"  # with a new result, another signature


def test_results_do_not_share_memory() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    results = [call(a, b) for _ in range(4)]
    assert len({one.data_ptr() for one in results}) == 4


@pytest.mark.parametrize("names", ["b", "a b", "b a"])
def test_named_inputs_are_remembered_like_those_by_position(names: str) -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    known(call, a, b)
    every = {"a": a, "b": b}
    first = [a] if names == "b" else []
    named = {name: every[name] for name in names.split()}
    assert torch.equal(call(*first, **named), a + b)
    assert LOG == ["repeated"]


@pytest.mark.parametrize(
    ("count", "named"), [(2, "a"), (1, "a"), (1, "c"), (1, ""), (0, "a"), (3, "")]
)
def test_wrong_names_are_the_launcher_s_to_refuse(count: int, named: str) -> None:
    call = launch_cache.launch_cache()(adding)
    a = ones(4, 5)
    right(call, a, a)
    with pytest.raises(TypeError, match="adding"):
        call(*(a for _ in range(count)), **({named: a} if named else {}))


def test_a_result_over_an_input_is_refused_every_time() -> None:
    call = launch_cache.launch_cache()(adding)
    room = torch.randn(200)
    a, b = noted(room[:20].view(4, 5)), noted(room[40:60].view(4, 5))

    def out(start: int) -> torch.Tensor:
        return noted(room[start : start + 20].view(4, 5))

    call(a, b, out=out(100))
    call(a, b, out=out(140))
    for start in (0, 1, 19, 21, 39, 41, 59):
        with pytest.raises(ValueError, match="adding: out must"):
            call(a, b, out=out(start))
    assert LOG == ["launched"] * 2
    for start in (20, 60, 100):
        want = a + b
        assert torch.equal(call(a, b, out=out(start)), want)
    assert LOG[2:] == ["repeated"] * 3


def test_an_operand_that_is_the_result_is_repeated_as_such_alone() -> None:
    call = launch_cache.launch_cache()(adding)
    room = torch.randn(100)
    a, b = ones(4, 5), noted(room[8:28].view(4, 5))
    for did in ("launched", "launched", "repeated"):
        want = a + b
        assert torch.equal(call(a, b, out=b), want)
        assert LOG[-1] == did
    for start in (4, 9, 12):
        with pytest.raises(ValueError, match="adding: out must"):
            call(a, b, out=noted(room[start : start + 20].view(4, 5)))


def test_what_is_written_has_another_version() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b, out = ones(4, 5), ones(4, 5), ones(4, 5)
    for _ in range(4):
        before = out._version
        call(a, b, out=out)
        assert out._version > before
    assert LOG == ["launched"] * 2 + ["repeated"] * 2
    with torch.inference_mode():
        call(a, b, out=noted(torch.empty(4, 5)))


def twice(a: Any, b: Any, *, out: Any = None) -> Any:
    """A launcher of two results, by one launch."""
    first, second = checks.Checks("twice").outputs(
        "out", out, tuple(a.shape), (a.dtype, a.dtype), (a, b)
    )
    for one in (first, second):
        noted(one).copy_(a + b)
    LOG.append("launched")
    if table_.RECORD.launches is not None:
        passed = (a, b, first, second)
        sizes = *a.shape, 1
        made = launch.Launch(KERNEL, tile(), NUMBERED, sizes, once, passed, ())
        table_.RECORD.launches.append((made, packed.Compiled(add_twice, (), True, ())))
        table_.RECORD.tiles = lambda: [tile()]
    return first, second


def add_twice(x: int, y: int, z: int, stream: int, passed: tuple[Any, ...]) -> None:
    left, right, *sums = (BY_ADDRESS[address] for address in passed[:4])
    for one in sums:
        one.copy_(left + right)
    LOG.append("repeated")


@pytest.mark.parametrize("given", [tuple, list])
def test_several_results_are_a_tuple_however_they_were_given(
    given: Callable[..., Any],
) -> None:
    call = launch_cache.launch_cache()(twice)
    a, b = ones(4, 5), ones(4, 5)
    for did in ("launched", "launched", "repeated"):
        out = given([ones(4, 5), ones(4, 5)])
        returned = call(a, b, out=out)
        assert type(returned) is tuple
        for mine, theirs in zip(returned, out, strict=True):
            assert mine is theirs and torch.equal(mine, a + b)
        assert LOG[-1] == did


def scaling(a: Any, alpha: float, *, out: Any = None) -> Any:
    """A launcher that takes a number."""
    check = checks.Checks("scaling")
    M, N = check.tensor("a", a, ("M", "N"), a.dtype)
    alpha = check.number("alpha", alpha)
    c = check.output("out", out, (M, N), a.dtype, (a,))
    c.copy_(a * alpha)
    LOG.append("launched")
    if table_.RECORD.launches is not None:
        passed = (a, alpha, c)
        one = launch.Launch(KERNEL, tile(), NUMBERED, (M, N, 1), once, passed, ())
        table_.RECORD.launches.append((one, packed.Compiled(scale, (), True, ())))
        table_.RECORD.tiles = lambda: [tile()]
    return c


def scale(x: int, y: int, z: int, stream: int, passed: tuple[Any, ...]) -> None:
    source, alpha, target = passed[:3]
    BY_ADDRESS[target].copy_(BY_ADDRESS[source] * alpha)
    LOG.append("repeated")


@pytest.mark.parametrize("beyond", [1e39, -1e39, 10**39, 10**400])
def test_a_number_beyond_fp32_is_refused_whatever_is_remembered(beyond: float) -> None:
    call = launch_cache.launch_cache("a")(scaling)
    a = ones(4, 5)
    for alpha in (1.0, 2.0, 3.0):
        assert torch.equal(call(a, alpha), a * alpha)
    assert LOG == ["launched", "repeated", "repeated"]
    with pytest.raises(ValueError, match="scaling: alpha must fit fp32"):
        call(a, beyond)
    for alpha in (math.inf, math.nan):  # of which fp32 has its own
        torch.testing.assert_close(call(a, alpha), a * alpha, equal_nan=True)


@pytest.mark.parametrize("alpha", [2.0, 2, np.float32(2.0), np.int8(2)], ids=repr)
@pytest.mark.parametrize("named", ["", "alpha", "a alpha"])
def test_warming_up_takes_what_calls_take(
    monkeypatch: pytest.MonkeyPatch, alpha: Any, named: str
) -> None:
    warmed: list[Any] = []
    monkeypatch.setattr(
        launch_cache, "warm_up", lambda call, family, inputs: warmed.append(inputs)
    )
    call = launch_cache.launch_cache("a")(scaling)
    every = {"a": ones(4, 5), "alpha": alpha}
    by_name = {name: every.pop(name) for name in named.split()}
    call.warmup(*every.values(), **by_name)
    ((a, number),) = warmed
    assert a.shape == (4, 5) and (type(number), number) == (float, 2.0)


@pytest.mark.parametrize("inputs", [(1,), (1, 2, 3)])
def test_warming_up_refuses_what_calls_refuse(inputs: tuple[Any, ...]) -> None:
    call = launch_cache.launch_cache("a")(scaling)
    with pytest.raises((TypeError, ValueError), match="scaling"):
        call.warmup(*inputs)
    with pytest.raises(ValueError, match="scaling: alpha must be a float"):
        call.warmup(ones(4, 5), True)
    with pytest.raises(ValueError, match="scaling: alpha must fit fp32"):
        call.warmup(ones(4, 5), 10**400)


def test_warming_up_leaves_out_what_is_never_remembered() -> None:
    call = launch_cache.launch_cache("a")(scaling)
    assert call.warmup(ones(4, 5).as_subclass(Plain), 2.0) == []
    assert call.warmup(ones(4, 5), math.inf) == []


class Plain(torch.Tensor):
    """A tensor like any other, of another type."""


def test_a_gradient_is_refused_whatever_is_remembered() -> None:
    call = launch_cache.launch_cache()(adding)
    a = ones(4, 5)
    b = torch.nn.Parameter(noted(torch.randn(4, 5)))
    BY_ADDRESS[b.data_ptr()] = b
    with torch.no_grad():
        known(call, a, b)
        assert right(call, a, b) == "repeated"
    with pytest.raises(ValueError, match="adding: b must not require a gradient"):
        call(a, b)
    assert right(call, a, b.detach()) == "launched"


@pytest.mark.parametrize(
    "arguments",
    [("a", "b"), (None, None), (1, 2), ([], [])],
    ids=["text", "none", "numbers", "lists"],
)
def test_what_is_no_tensor_is_the_launcher_s_to_refuse(arguments: Any) -> None:
    call = launch_cache.launch_cache()(
        lambda a, b, *, out=None: checks.Checks("adding").tensor(
            "a", a, ("M", "N"), None
        )
    )
    with pytest.raises(ValueError, match="adding: a must be"):
        call(*arguments)


def test_an_error_is_not_remembered_and_leaves_nothing_behind() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    known(call, a, b)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="unlucky"):
            call(ones(4, 13), ones(4, 13))
        assert table_.RECORD.launches is None
        with pytest.raises(ValueError, match="adding: b must be"):
            call(a, ones(5, 5))
    assert right(call, a, b) == "repeated"


def test_several_launches_are_not_repeated() -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 2), ones(4, 2)
    assert right(call, a, b) == right(call, a, b) == "launched launched"


def test_a_launch_for_other_tensors_than_those_given_is_not_repeated() -> None:
    def copying(a: Any, b: Any, *, out: Any = None) -> Any:
        return adding(noted(a.clone()), b, out=out)

    call = launch_cache.launch_cache()(copying)
    a, b = ones(4, 5), ones(4, 5)
    assert right(call, a, b) == right(call, a, b) == "launched"


def test_another_current_device_is_not_served_from_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    right(call, a, b)
    monkeypatch.setattr(launch_cache, "current_device", lambda: 1)
    assert right(call, a, b) == "launched"


@pytest.mark.parametrize("hook", ["launch_enter_hook", "launch_exit_hook"])
def test_a_hook_sees_every_launch(monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    call = launch_cache.launch_cache()(adding)
    a, b = ones(4, 5), ones(4, 5)
    right(call, a, b)
    hooks = {"launch_enter_hook": [], "launch_exit_hook": []}
    hooks[hook].append(print)
    runtime = SimpleNamespace(
        **{name: SimpleNamespace(calls=calls) for name, calls in hooks.items()}
    )
    monkeypatch.setattr(replay, "HOOKS", runtime)
    monkeypatch.setattr(launch_cache, "HOOKS", runtime)
    assert right(call, a, b) == "launched"
    hooks[hook].clear()
    assert right(call, a, b) == "repeated"


@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
def test_what_is_remembered_is_bounded(
    given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_cache, "MOST_CALLS", 3)
    monkeypatch.setattr(launch_cache, "MOST_FAMILIES", 3)
    memories: list[Any] = []

    class Watched(launch_cache.LaunchCache):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            memories.append(self)

    monkeypatch.setattr(launch_cache, "LaunchCache", Watched)
    call = launch_cache.launch_cache()(adding)
    for rows in (*range(3, 20), 3):
        a, b = ones(rows, 5), ones(rows, 5)
        LOG.clear()
        for _ in range(3):
            assert torch.equal(call(a, b, out=ones(rows, 5) if given else None), a + b)
        assert LOG == ["launched", "launched", "repeated"]
        (memory,) = memories
        assert 1 <= len(memory.calls if given else memory.families) <= 3
        assert len(memory.once) <= 3


def test_two_launchers_do_not_share_what_they_know() -> None:
    one, other = launch_cache.launch_cache()(adding), launch_cache.launch_cache()(
        adding
    )
    a, b = ones(4, 5), ones(4, 5)
    right(one, a, b)
    assert right(other, a, b) == "launched"


def test_threads_get_their_own_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads call one launcher at sizes of their own, in step and often."""
    monkeypatch.setattr(launch_cache, "MOST_FAMILIES", 5)
    call, start = launch_cache.launch_cache()(adding), threading.Barrier(8)

    def work(number: int) -> int:
        start.wait()
        for turn in range(40):
            rows = 3 + (number + turn // 5) % 8
            a, b = ones(rows, 5), ones(rows, 5)
            got = call(a, b)
            assert got.shape == (rows, 5)
            assert torch.equal(got, a + b)
        return number

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(work, range(8))) == list(range(8))
    assert {"launched", "repeated"} == set(LOG)


def dual() -> Any:
    return torch.autograd.forward_ad.dual_level()


class Mode(TorchDispatchMode):
    """One that does nothing."""

    def __torch_dispatch__(
        self, func: Any, _: Any, args: Any, named: Any = None
    ) -> Any:
        return func(*args, **(named or {}))


class FunctionMode(TorchFunctionMode):
    """One that does nothing."""

    def __torch_function__(
        self, func: Any, _: Any, args: Any, named: Any = None
    ) -> Any:
        return func(*args, **(named or {}))


def profiling() -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


WATCHED = {
    "a mode": Mode,
    "a mode of functions": FunctionMode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast of another device": lambda: torch.autocast("cuda", torch.bfloat16),
    "forward derivatives": dual,
    "a profiler": profiling,
}


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
@pytest.mark.parametrize("watched", WATCHED)
def test_what_torch_has_to_see_is_handed_over(
    watched: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is remembered, and wherever; and after it, calls are repeated."""
    monkeypatch.setattr(launch_cache, "MOST_CALLS", 9)
    call = launch_cache.launch_cache("a", "b")(adding)
    handed: list[Any] = []
    call.cache.as_operator = lambda *inputs, **named: handed.append((inputs, named))
    a, b, out = ones(4, 5), ones(4, 5), ones(4, 5)
    made = {"out": out} if given else {}
    for _ in range(4):
        call(a, b, **made)
    with WATCHED[watched]():
        call(a, b, **made)
        call(a, b=b, **made)
    seen = 0 if given and watched == "a profiler" else 2
    if watched == "autocast of another device" and not torch.cuda.is_available():
        seen = 0  # for torch turns it off
    assert len(handed) == seen
    before = len(LOG)
    call(a, b, **made)
    assert LOG[before:] == ["repeated"]
    assert len(handed) == seen


@pytest.mark.parametrize("transform", [torch.vmap, torch.func.grad])
def test_what_a_transform_has_to_see_is_handed_over(transform: Any) -> None:
    """What it passes, and what a function takes from elsewhere."""
    call = launch_cache.launch_cache("a", "b")(adding)
    handed: list[Any] = []
    call.cache.as_operator = lambda *inputs, **_: handed.append(inputs) or a.sum()
    a, b = ones(4, 5), ones(4, 5)
    for _ in range(4):
        call(a, b)
    transform(lambda one: call(one, b).sum())(a)
    transform(lambda one: one.sum() * call(a, b).sum())(a)
    assert len(handed) == 2
    assert right(call, a, b) == "repeated"


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
@pytest.mark.parametrize("given", [False, True], ids=["made", "given"])
def test_what_is_traced_is_handed_over(given: bool) -> None:
    """Or its results would be constants of the trace."""
    call = launch_cache.launch_cache("a", "b")(adding)
    handed: list[Any] = []
    call.cache.as_operator = lambda *inputs, **_: handed.append(inputs) or sum(inputs)
    a, b = ones(4, 5), ones(4, 5)
    made = {"out": ones(4, 5)} if given else {}
    for _ in range(4):
        call(a, b, **made)
    torch.jit.trace(lambda one: call(one, b, **made), (a,), check_trace=False)
    assert len(handed) == 1
    call(a, b, **made)
    assert LOG[-1] == "repeated" and len(handed) == 1


def test_what_is_asked_for_a_gradient_is_handed_over() -> None:
    call = launch_cache.launch_cache("a", "b")(adding)
    handed: list[Any] = []
    call.cache.as_operator = lambda *inputs, **_: handed.append(inputs)
    a, b = ones(4, 5), torch.nn.Parameter(torch.randn(4, 5))
    BY_ADDRESS[b.data_ptr()] = b
    with torch.no_grad():
        assert {right(call, a, b) for _ in range(4)} == {"launched", "repeated"}
    assert handed == []
    call(a, b)
    call(a, b, out=ones(4, 5))
    assert len(handed) == 2


def graded(forward: Any = None) -> tuple[Any, list[str]]:
    """A launcher whose gradients are those of a + b, and what it hands to whom."""

    def backward(saved: Any, grads: Any, needs: Any) -> list[Any]:
        (a,) = saved
        return [grads[0] * a if need else None for need in needs]

    told: list[str] = []
    gradient = function.Gradient("adding", 1, lambda _, a, *__: (a,), backward, forward)
    call = launch_cache.launch_cache("a", "b", gradient=gradient)(adding)
    general = gradient.call
    gradient.call = lambda *given: told.append("in full") or general(*given)  # type: ignore
    call.cache.as_operator = lambda *inputs, **_: told.append("handed") or inputs[0]
    return call, told


@pytest.mark.parametrize("own", [False, True], ids=["itself", "a forward"])
def test_what_gradients_are_asked_of_is_repeated_too(own: bool) -> None:
    forward = launch_cache.launch_cache("a", "b")(twice) if own else None
    call, told = graded(forward)
    a, b = ones(4, 5), noted(torch.nn.Parameter(torch.randn(4, 5)))
    done = []
    for _ in range(5):
        done.append(right(call, a, b))
        (grad,) = torch.autograd.grad(call(a, b).sum(), b)
        assert torch.equal(grad, a)
    assert (done[0], done[2:]) == ("launched", ["repeated"] * 3)
    assert 0 < len(told) < 5 and set(told) == {"in full"}
    told.clear()
    assert right(call, a, b) == "repeated" and call(a, b).requires_grad
    with torch.no_grad():
        assert not call(a, b).requires_grad
    assert not call(a, b.detach()).requires_grad
    other, learning = ones(4, 5), noted(torch.randn(4, 5, requires_grad=True))
    assert right(call, other, learning) == "repeated" or own
    assert told in ([], ["in full"])


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
@pytest.mark.parametrize(
    "how", ["mode", "autocast", "vmap", "trace", "unaligned", "hook", "device"]
)
def test_what_is_repeated_for_gradients_is_seen_where_it_must_be(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, told = graded()
    a, b = ones(4, 5), noted(torch.nn.Parameter(torch.randn(4, 5)))
    for _ in range(4):
        call(a, b)
    told.clear()
    if how == "mode":
        with Mode():
            call(a, b)
    elif how == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            call(a, b)
    elif how == "vmap":
        torch.vmap(lambda _: call(a, b), out_dims=None)(torch.ones(2))
    elif how == "trace":
        torch.jit.trace(lambda one: call(one, b), (a,), check_trace=False)
    elif how == "unaligned":
        shifted = noted(torch.randn(21)[1:].view(4, 5))
        assert right(call, shifted, b) == "launched"
    elif how == "device":
        monkeypatch.setattr(launch_cache, "current_device", lambda: 1)
        assert right(call, a, b) == "launched"
    else:
        calls = SimpleNamespace(calls=[print])
        monkeypatch.setattr(launch_cache.HOOKS, "launch_enter_hook", calls)
        assert right(call, a, b) == "launched"
    asked_in_full = how in ("unaligned", "hook", "device")
    assert told == ["in full" if asked_in_full else "handed"]


def test_in_the_interpreter_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch_cache, "INTERPRETED", True)
    call = launch_cache.launch_cache()(adding)
    assert call.untracked is adding
    assert {right(call, ones(4, 5), ones(4, 5)) for _ in range(4)} == {"launched"}


def test_a_launcher_keeps_its_name_and_words() -> None:
    call = launch_cache.launch_cache()(adding)
    assert (call.__name__, call.__doc__) == ("adding", adding.__doc__)


# -- tensor maps and workspaces ------------------------------------------------------


@pytest.mark.parametrize("nested", [False, True], ids=["3.6", "newer"])
def test_arguments_are_made_once_an_address_and_bounded(
    nested: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def encode(address: int, fixed: Any, shape: Any, strides: Any) -> list[Any]:
        assert (fixed, shape, strides) == ((2, 1), (64, 64), (64, 1))
        made.append(address)
        return [f"map {address}", 64, 1]

    monkeypatch.setattr(packed, "encode", encode)
    monkeypatch.setattr(replay, "MOST_ARGUMENTS", 3)
    likes = (packed.TmaTemplate((2, 1), (64, 64), (64, 1)), None)
    found = packed.Compiled(print, ("function",), nested, ())
    arguments = replay.PackedArgs(
        launch.Launch(None, None, CPU, (), (2,), (), (5,)), found, likes
    )
    for address in range(1, 10):
        found = arguments[1, address, 7]
        kernel_s = (f"map {address}", 64, 1, 7, 5)
        mine = (kernel_s,) if nested else kernel_s
        assert found == (2, 1, 1, 1, "function", *mine)
        assert arguments[1, address, 7] is found
        assert len(arguments) <= 3
    assert made == list(range(1, 10))
    *_, last = arguments[1, 9, 8]
    assert (last if nested else arguments[1, 9, 8][5:]) == ("map 9", 64, 1, 8, 5)
    assert arguments[2, 9, 7][3] == 2


def test_signatures_tell_zero_from_minus_zero_and_no_other_numbers() -> None:
    """`Arguments` of one signature are a dict, which would find 0.0 for -0.0."""
    signatures = [
        launch_cache.call_key([one])[0] for one in (0.0, 0.5, 2.0, -0.0, -3.0)
    ]
    assert signatures[0] == signatures[1] == signatures[2]
    assert signatures[0] != signatures[3] == signatures[4]


@pytest.mark.parametrize("shape", [(5,), (4, 5), (1, 5), (2, 3, 5), (4, 0), (0, 3, 5)])
def test_new_results_lie_as_torch_s_do(shape: tuple[int, ...]) -> None:
    assert support.contiguous_strides(shape) == torch.empty(shape).stride()


def by_row(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, Any]:
    """What is left of a call without rows, and its leading sizes."""
    return repeats.without_rows(launch_cache.call_key([a, b])[0], [a, b], [0])


def test_calls_that_differ_in_rows_alone_have_the_same_left() -> None:
    weights = torch.zeros(3, 5)
    left, leading = by_row(torch.zeros(4, 5), weights)
    assert leading == 4
    assert by_row(torch.zeros(1, 5), weights) == (left, 1)
    assert by_row(torch.zeros(9, 5), weights) == (left, 9)
    several, leading = by_row(torch.zeros(2, 3, 5), weights)
    assert leading == (2, 3)
    assert by_row(torch.zeros(4, 1, 5), weights) == (several, (4, 1))
    for other in (
        torch.zeros(4, 6)[:, :5],
        torch.zeros(4, 5).half(),
        torch.zeros(4, 1, 5)[:, 0].expand(4, 5).T.contiguous().T,
    ):
        assert by_row(other, weights)[0] != left


@pytest.mark.parametrize(
    "one",
    [
        torch.zeros(0, 5),
        torch.zeros(8, 5)[::8],
        torch.zeros(1, 1, 5),
        torch.zeros(2, 4, 5)[:, :3],
        torch.zeros(5),
    ],
    ids=["no row", "the step of one row", "one row", "a gap", "a vector"],
)
def test_calls_without_others_of_more_rows_have_no_leading_sizes(one: Any) -> None:
    left, leading = by_row(one, torch.zeros(3, 5))
    assert leading is None
    assert left == launch_cache.call_key([one, torch.zeros(3, 5)])[0]


def test_rows_that_come_again_are_repeated_and_others_related() -> None:
    call = launch_cache.launch_cache("a", "b")(adding)
    for rows in (4, 1, 16):  # Triton compiles one for each
        assert right(call, ones(rows, 5), ones(rows, 5)) == "launched"
    for rows in (4, 4, 4, 7, 7, 7, 1, 300, 32, 4):
        assert right(call, ones(rows, 5), ones(rows, 5)) == "repeated"
    assert right(call, ones(4, 6), ones(4, 6)) == "launched"
    with pytest.raises(ValueError, match="adding: b must be"):
        call(ones(4, 5), ones(5, 5))
    assert call(ones(0, 5), ones(0, 5)).shape == (0, 5)


def workspaces(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`workspace` on a played GPU, by stream."""
    now = SimpleNamespace(stream=1, capturing=False)
    monkeypatch.setattr(launch, "WORKSPACES", {})
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: now.capturing
    )
    monkeypatch.setattr(
        torch.cuda,
        "current_stream",
        lambda device: SimpleNamespace(cuda_stream=now.stream),
    )
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda, "memory_snapshot", list)

    def found(tiles: int, parts: int, stream: int = 1, capturing: bool = False) -> Any:
        now.stream, now.capturing = stream, capturing
        return launch.workspace(CPU, tile(m=16, n=32), tiles, parts)

    return found


def test_a_stream_keeps_its_workspace_until_it_needs_a_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = workspaces(monkeypatch)
    parts, counts = workspace(4, 3)
    assert parts.numel() == 4 * 3 * 16 * 32 and parts.dtype == torch.float32
    assert counts.numel() >= 4 and not counts.any()
    assert workspace(2, 3)[0] is parts
    assert workspace(4, 30)[0].numel() == 4 * 30 * 16 * 32  # more of the same tiles
    larger, more = workspace(2000, 3)
    assert larger.numel() == 2000 * 3 * 16 * 32 and more.numel() >= 2000
    assert workspace(4, 3)[0] is larger
    other, own = workspace(4, 3, stream=2)
    assert other is not larger and own is not more
    assert len(launch.WORKSPACES) == 2


def test_a_graph_has_a_workspace_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspaces(monkeypatch)
    one, other = (workspace(4, 3, capturing=True) for _ in range(2))
    assert one[1] is not other[1]
    assert launch.WORKSPACES == {}


def test_one_part_needs_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    assert workspaces(monkeypatch)(100, 1)[0].numel() == 1


# -- select --------------------------------------------------------------------------


ALIGNED = (128, 128)

TABLE = (
    tile("warp_specialized", 90, 64, 512, 1024),
    tile("tma", 90, 64, 512, ANY),
    tile("tma", 90, ANY, 512, ANY, m=32),
    tile("tiled", 90, 128, ANY, ANY, m=64),
    tile("tiled", 80),
)
GOOD = torch.zeros(64, 64)
BAD = torch.zeros(64, 63)


def test_a_table_that_is_gone_lends_another_none_of_its_rows() -> None:
    for m in range(16, 1616, 16):  # each may lie where the one before it did
        assert table_.running([tile(m=m)], 90, 2**18, ALIGNED) == [tile(m=m)]


@pytest.mark.parametrize(
    ("sizes", "sm", "matrix", "row"),
    [
        ((64, 512, 1024), 90, GOOD, 0),
        ((64, 512, 1025), 90, GOOD, 1),
        ((65, 512, 1024), 90, GOOD, 2),
        ((64, 513, 1024), 90, GOOD, 3),
        ((128, 10**9, 10**9), 90, GOOD, 3),
        ((129, 513, 1), 90, GOOD, 4),
        ((64, 512, 1024), 90, BAD, 3),
        ((129, 512, 1024), 90, BAD, 4),
        ((64, 512, 1024), 100, GOOD, 1),
        ((64, 512, 1024), 89, GOOD, 4),
        ((1, 1, 1), 80, GOOD, 4),
        ((0, 0, 0), 90, GOOD, 0),
    ],
)
def test_the_first_row_that_holds_serves(
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, int, int],
    sm: int,
    matrix: torch.Tensor,
    row: int,
) -> None:
    monkeypatch.setattr(table_, "compute_capability", lambda device: sm)
    described = {"tma": (GOOD, matrix), "warp_specialized": (matrix, GOOD)}
    found = table_.select(
        TABLE, CPU, sizes, ALIGNED, lambda name: described.get(name, ())
    )
    assert found == TABLE[row]


def test_a_gpu_below_every_row_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_, "compute_capability", lambda device: 75)
    monkeypatch.setattr(dispatch, "compute_capability", lambda device: 75)
    monkeypatch.setattr(dispatch, "shared_memory", lambda device: 65536)

    def some_kernel(a_ptr, b_ptr, c_ptr, M, N, K):  # type: ignore[no-untyped-def]
        """A kernel that is never launched."""

    assert table_.select(TABLE, CPU, (1, 1, 1), ALIGNED, lambda _: ()) is None
    axes = {"a": "mk", "b": "kn", "c": "mn"}
    launches = dispatch.Launches(axes, TABLE, tiled=some_kernel, tma=some_kernel)
    said = "some: no tile runs on sm_75 with 65536 bytes of shared memory a block"
    with pytest.raises(RuntimeError, match=said):
        launches.launch(GOOD, GOOD, GOOD)


@pytest.mark.parametrize(
    "names",
    ["a_ptr b_ptr c_ptr N M K", "b_ptr a_ptr c_ptr M N K", "a_ptr b_ptr M N K c_ptr",
     "a_ptr b_ptr c_ptr M N K BLOCK_M stride_am", "a_ptr b_ptr c_ptr M N K other",
     "a_ptr b_ptr c_ptr M N K ALIGN INDEX", "a_ptr b_ptr c_ptr SPLIT_K M N K"],
)  # fmt: skip
def test_a_kernel_whose_parameters_are_in_another_order_is_refused(names: str) -> None:
    kernel = eval(f"lambda {', '.join(names.split())}: None")
    axes = {"a": "mk", "b": "kn", "c": "mn"}
    with pytest.raises(AssertionError, match="are passed as"):
        dispatch.Launches(axes, TABLE, tiled=kernel)


def test_a_timed_row_serves_no_more_rows_than_it_says() -> None:
    few = tile("tma", 90, 64, ANY, ANY, rates=RATES, block=1.0)
    rest = tile("tma", 90, rates=RATES, block=2.0)
    assert table_.best((few, rest), (64, 64, 64), 132) is few
    assert table_.best((few, rest), (65, 64, 64), 132) is rest
    assert table_.best((few, tile("tiled")), (65, 64, 64), 132) == tile("tiled")


@pytest.mark.parametrize(
    ("M", "N", "row"),
    [(16 * 132, 16, 0), (16 * 119, 16, 0), (16 * 118, 16, 1), (16, 16 * 133, 1),
     (16, 16 * 251, 0), (0, 16, 0)],
)  # fmt: skip
def test_a_row_for_full_waves_serves_what_keeps_processors_busy(
    monkeypatch: pytest.MonkeyPatch, M: int, N: int, row: int
) -> None:
    monkeypatch.setattr(table_, "compute_capability", lambda device: 90)
    monkeypatch.setattr(table_, "num_sms", lambda device: 132)
    table = (tile("tma", waves=tile_.FULL), tile("tiled"))
    assert table_.select(table, CPU, (M, N, 64), ALIGNED, lambda _: ()) == table[row]


def test_parts_fill_the_processors() -> None:
    fill = tile("split_k", split_k=tile_.FILL, k=64)
    assert fill.splits(1, 10**6, 132) == 132
    assert fill.splits(40, 10**6, 132) == 3
    assert fill.splits(500, 10**6, 132) == 1
    assert fill.splits(1, 1024, 132) == 1024 // (tile_.MIN_K_BLOCKS_PER_SPLIT * 64)
    assert fill.splits(0, 0, 132) == 1
    twice = fill._replace(split_k=2 * tile_.FILL)
    assert twice.splits(1, 10**6, 132) == 264
    assert twice.splits(40, 10**6, 132) == 6
    assert twice.splits(1, 1024, 132) == 2 * fill.splits(1, 1024, 132)
    assert twice.splits(500, 10**6, 132) == twice.splits(0, 0, 132) == 1
    assert tile("split_k", split_k=5).splits(500, 16, 132) == 5


def test_programs_that_walk_have_tiles_of_one_part_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many programs for each part as there are SMs for, in whole turns."""
    walking = {name for name, row in SCHEDULES.items() if row.persistent}
    assert walking == set(tile_.WALKING)
    monkeypatch.setattr(table_, "num_sms", lambda device: 132)
    fill = tile("warp_specialized", split_k=tile_.FILL, m=128, n=128, k=64)
    grid = table_.GRIDS["warp_specialized"]
    assert grid(fill, (256, 16 * 128, 10**6), CPU) == (32, 4)
    assert grid(fill, (256, 50 * 128, 10**6), CPU) == (100, 1)
    twice = fill._replace(split_k=2 * tile_.FILL)
    for columns in range(1, 140):
        tiles, parts = columns, twice.splits(columns, 10**6, 132)
        programs, found = grid(twice, (128, columns * 128, 10**6), CPU)
        assert found == parts and programs * parts <= 132
        turns = -(-tiles // programs)
        assert turns == -(-tiles * parts // 132) <= 2  # as costs have it
        assert (parts + 1) * -(-tiles // 2) > 132  # no more would fit
    many = fill._replace(split_k=64)
    assert grid(many, (128, 8 * 128, 64), CPU) == (2, 64)


def test_parts_meet_in_room_for_every_tile_though_programs_are_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_, "num_sms", lambda device: 4)
    shared = tile("warp_specialized", split_k=2, m=16, n=32, warps=8)
    grid = table_.GRIDS["warp_specialized"]
    made = launch.Launch(None, shared, CPU, (160, 32, 64), grid, (), (), splits=True)
    assert made.programs == (2, 2) and made.tiles_and_splits == (10, 2)
    assert made.scalars == (160, 32, 64, 2)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: True, raising=False
    )
    parts, counts = made.workspace()
    assert parts.numel() == 10 * 2 * 16 * 32
    assert counts.numel() == 10 * 2  # of two groups of warps each


RATES = tile_.Rates(
    *(2, 2, 1.0, 4e6, 2e7, 3e6, 1.8, 4.8),
    *(2.0, 8e4, 0.2, 4e8, 1e8, 150.0),
)
LARGE = tile("tma", m=128, n=128, k=64, block=0.4, once=2.0, launch=3.0, rates=RATES)
SMALL = LARGE._replace(m=16, n=64, block=0.05, once=1.0)


@pytest.mark.parametrize(
    ("sizes", "row"),
    [
        ((8, 4096, 4096), 2),
        ((4096, 4096, 4096), 1),
        ((128 * 11, 128 * 12, 8192), 1),
        ((1, 64, 64), 0),
    ],
)
def test_of_timed_tiles_the_fastest_serves(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int], row: int
) -> None:
    """Rows before them come first, rows behind them are for what they cannot take."""
    monkeypatch.setattr(table_, "compute_capability", lambda device: 90)
    monkeypatch.setattr(table_, "num_sms", lambda device: 132)
    table = (tile("gemv", 80, 1, ANY, ANY), LARGE, SMALL, tile("tiled"))
    assert table_.select(table, CPU, sizes, ALIGNED, lambda _: ()) == table[row]
    others = table_.select(
        table, CPU, sizes, ALIGNED, lambda name: [BAD] * (name == "tma")
    )
    assert others == table[0 if row == 0 else 3]


@pytest.mark.parametrize("columns", [1, 4])
def test_no_tile_serves_that_needs_more_programs_than_a_grid_has(columns: int) -> None:
    """CUDA's limit along the first axis; tiles of more columns serve what is beyond."""
    table = (tile("gemv", 80, 1, ANY, ANY, n=columns), tile("tiled"))
    most = columns * (2**31 - 1)
    for N, row in ((most, 0), (most + 1, 1)):
        found = table_.select(table, CPU, (1, N, 16), ALIGNED, lambda _: ())
        assert found == table[row]
        programs = table_.GRIDS[found.schedule](found, (1, N, 16), CPU)
        assert programs[0] < 2**31


@pytest.mark.parametrize("steps", [(8208, 8208), (8208, 8192), (8192, 8224), (64, 96)])
def test_rows_are_counted_that_do_not_fill_lines(steps: tuple[int, int]) -> None:
    """Of 100 x 200 x 1000 in tiles of 64 x 128, rows of A so many bytes apart, of B."""
    starts = table_.row_starts(*(torch.empty(2, step // 2).half() for step in steps))
    assert starts == tuple(math.gcd(step, 128) for step in steps)
    halved = tile("tma", m=64, n=128, k=64, starts=starts)
    whole = halved._replace(starts=ALIGNED).work(100, 200, 1000, 3, RATES)
    assert (whole.lines, whole.sectors) == (0, 0)
    lines = sectors = 0.0
    for rows, step in zip((2 * 100, 2 * 200), steps, strict=True):
        begins = [row * step % 128 for row in range(64)]
        cut = sum(begin % 32 > 0 for begin in begins) / 64
        sectors += 2 * 1000 * rows * cut
        lines += 2 * 1000 * rows * (sum(begin > 0 for begin in begins) / 64 - cut)
    found = halved.work(100, 200, 1000, 3, RATES)
    assert found == whole._replace(lines=lines, sectors=sectors)


@pytest.mark.parametrize(("starts", "row"), [((16, 16), 1), ((16, 128), 0)])
def test_the_fastest_loads_fewer_rows_that_do_not_fill_lines(
    starts: tuple[int, int], row: int
) -> None:
    """Of B if those of A do, else of both: a tile of more columns, or a larger one."""
    slow = RATES._replace(sectors=20.0)
    wide = LARGE._replace(m=128, n=256, block=0.6, rates=slow)
    square = LARGE._replace(m=192, n=192, block=0.65, rates=slow)
    able = [one._replace(starts=starts) for one in (wide, square)]
    found = table_.best(able, (4608, 4608, 4096), 132)
    assert found == able[row]


def test_work_is_counted() -> None:
    """By hand: 100 x 200 x 1000 in tiles of 64 x 128 x 64, in two parts, on 3 SMs."""
    halved = tile("tma", m=64, n=128, k=64, split_k=2)
    work = halved.work(100, 200, 1000, 3, RATES)
    assert (work.turns, work.rounds) == (3, 3)  # 2 x 2 tiles, 2 parts each
    assert work.blocks == 8  # of 16 K blocks
    assert work.memory == 2 * 1000 * (100 + 200) + 2 * 100 * 200
    assert work.read == 2 * 1000 * (2 * 100 + 2 * 200)
    assert work.filled == 2 * 1000 * (4 * (64 + 128) - 2 * 100 - 2 * 200)
    assert work.sums == 4 * 64 * 128 * 2
    assert work.products == 4 * 64 * 128 * 1000
    assert (work.lines, work.sectors) == (0, 0)
    whole = halved._replace(split_k=1).work(100, 200, 1000, 4, RATES)
    assert (whole.turns, whole.blocks, whole.sums) == (1, 16, 0)
    assert halved._replace(resident=2).work(100, 200, 1000, 3, RATES).rounds == 2


LIGHT = tile_.Work(
    blocks=5, turns=2, rounds=2, memory=12, read=6, lines=0, sectors=0, filled=4,
    sums=9, products=40,
)  # fmt: skip
SLOW = tile_.Rates(
    *(2, 2, 1.0, 4.0, 2.0, 2.0, 2.0, 4.0, 7.0, 3.0),
    beside=0.25, powered=2.0, carried=1.0, cool=26,
)  # fmt: skip


def test_the_slowest_of_loop_memory_and_l2_counts_most() -> None:
    """A launch, then (27 + 64 + 125)^(1/3) = 6 microseconds, then the sums."""
    assert tile_.duration(LIGHT, 0.1, 1.0, 10.0, SLOW) == pytest.approx(10 + 6 + 7 + 3)
    whole = LIGHT._replace(sums=0)
    assert tile_.duration(whole, 0.1, 1.0, 10.0, SLOW) == pytest.approx(16)
    cut = whole._replace(lines=3, sectors=1)  # which take as 3 + 3 bytes more
    more = whole._replace(read=12)
    powered = more._replace(products=40 - 12)  # by what is read, cut or not
    assert tile_.duration(cut, 0.1, 1.0, 10.0, SLOW) == pytest.approx(
        tile_.duration(powered, 0.1, 1.0, 10.0, SLOW)
    )


def test_programs_beside_others_take_part_of_their_time() -> None:
    """Three programs, one and then two at a time: 2 + 0.25 times 2 microseconds."""
    work = LIGHT._replace(turns=3, sums=0, memory=-4, read=0, filled=0)
    assert tile_.duration(work, 0.2, 1.0, 0.0, SLOW) == pytest.approx(2 * 2.25)


def test_power_counts_once_it_has_been_at_its_limit_for_a_while() -> None:
    """Of 40 / 2 + 6 microseconds none is left after 26, of 66 / 2 + 6 are 13."""
    more = LIGHT._replace(sums=0, products=66)
    expected = (3**3 + 4**3 + 5**3 + 13**3) ** (1 / 3)
    assert tile_.duration(more, 0.1, 1.0, 0.0, SLOW) == pytest.approx(expected)


# -- descriptors and index types -----------------------------------------------------


def strided(rows: int, columns: int, pitch: int, offset: int = 0) -> torch.Tensor:
    """A bf16 matrix that starts `offset` elements after a multiple of 16 bytes."""
    room = torch.zeros(rows * pitch + columns + offset + 8, dtype=torch.bfloat16)
    start = -room.data_ptr() // 2 % 8 + offset
    return room[start:].as_strided((rows, columns), (pitch, 1))


@pytest.mark.parametrize(
    ("matrix", "can"),
    [
        (strided(4, 64, 64), True),
        (strided(4, 64, 72), True),
        (strided(4, 64, 68), False),
        (strided(4, 60, 64), False),
        (strided(4, 60, 60), False),
        (strided(4, 64, 64, offset=8), True),
        (strided(4, 64, 64, offset=4), False),
        (strided(4, 64, 64).T, False),
        (strided(64, 4, 4).T, False),
        (strided(4, 64, 8), False),
        (strided(4, 64, 0), False),
        (strided(1, 64, 64), True),
        (strided(1, 64, 8), True),
        (strided(1, 64, 0), True),
        (strided(1, 64, 3), False),
        (strided(0, 64, 64), False),
        (strided(4, 0, 64), False),
        (torch.zeros(4, 2, dtype=torch.float64), True),
        (torch.zeros(4, 4, dtype=torch.float32), True),
        (torch.zeros(4, 6, dtype=torch.float32), False),
        (torch.zeros(4, 8, dtype=torch.float16).expand(4, 8), True),
        (torch.zeros(4, 128, dtype=torch.float16)[:, ::2], False),
    ],
    ids=lambda one: str(one) if isinstance(one, bool) else
    f"{tuple(one.shape)} by {one.stride()}",
)  # fmt: skip
def test_what_a_descriptor_can_describe(matrix: torch.Tensor, can: bool) -> None:
    assert table_.tma_compatible(matrix) is can


@pytest.mark.parametrize(("size", "can"), [(2**31 - 16, True), (2**31, False)])
@pytest.mark.parametrize("axis", [0, 1])
def test_descriptors_say_where_a_block_begins_in_32_bits(
    monkeypatch: pytest.MonkeyPatch, size: int, axis: int, can: bool
) -> None:
    shape = (size, 16) if axis == 0 else (16, size)
    far = torch.empty(shape, dtype=torch.float16, device="meta")
    assert table_.tma_compatible(far) is can


@pytest.mark.parametrize(
    ("matrices", "elements"),
    [
        ([strided(4, 64, 64)], 16),
        ([strided(4, 64, 72)], 8),
        ([strided(4, 20, 64)], 4),
        ([strided(4, 64, 64), strided(8, 62, 64)], 2),
        ([strided(4, 64, 64), strided(8, 64, 65)], 1),
        ([torch.empty(1, 48).expand(5, 48)], 16),
        ([torch.empty(0, 0)], 1),
    ],
)
def test_what_rows_are_multiples_of(
    matrices: list[torch.Tensor], elements: int
) -> None:
    assert support.row_divisibility(*matrices) == elements


def far(last: int) -> torch.Tensor:
    """Two elements of a tensor that takes no memory, so many elements apart."""
    return torch.empty(0, device="meta").as_strided((2,), (last,))


@pytest.mark.parametrize(
    ("tensors", "wide"),
    [
        ([far(2**31 - 1)], False),
        ([far(2**31)], True),
        ([far(1), far(2**31)], True),
        ([far(1), far(2**31 - 1)], False),
        ([torch.empty(2**16, 2**15, device="meta")], False),
        ([torch.empty(2**16 + 1, 2**15, device="meta")], True),
        ([torch.empty(2**16, 2**16, device="meta").T], True),
        ([torch.empty(1, 2**20, device="meta").expand(2**20, 2**20)], False),
        ([torch.empty(2**16, 2**15 + 1, device="meta")[:, :1]], True),
        ([torch.empty(1, 1)], False),
        ([], False),
    ],
)
def test_the_index_type_counts_the_elements(
    tensors: list[torch.Tensor], wide: bool
) -> None:
    assert support.index_dtype(*tensors) is (tl.int64 if wide else tl.int32)


def test_the_last_element_decides_not_the_count() -> None:
    """(2^31 - 1) + 1 elements, the last of which has the number 2^31 - 1."""
    whole = torch.empty(2**31, device="meta")
    assert support.index_dtype(whole) is tl.int32
    assert support.index_dtype(torch.empty(2**31 + 1, device="meta")) is tl.int64
    assert math.prod(whole.shape) == 2**31


def test_the_shared_modules_import_without_a_gpu() -> None:
    for path in Path("generated/_runtime").rglob("*.py"):
        assert importlib.import_module(".".join(path.with_suffix("").parts))
