"""The race: interleaved, shuffled, warm, as many rounds as there is time for."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from gemmgen.base.errors import EnvironmentMissing  # noqa: E402
from gemmgen.measurement import Gpu, Timing, cpu_time, problem, race  # noqa: E402
from gemmgen.measurement.race import MOST_ROUNDS, timing  # noqa: E402
from gemmgen.select.plan import plans  # noqa: E402
from gemmgen.spec.parse import parse  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from tests.fake_device import FakeDevice  # noqa: E402


def timed_rounds(device: FakeDevice, names: str) -> list[str]:
    """What was called behind a flush, a round a string."""
    calls = [
        name
        for before, name in zip(device.log, device.log[1:], strict=False)
        if before == "flush"
    ]
    text = "".join(calls)
    return [text[i : i + len(names)] for i in range(0, len(text), len(names))]


def test_median_and_interquartile_range() -> None:
    found = timing([1.0, 2.0, 3.0, 4.0, 100.0])
    assert found == Timing(3.0, 2.0 / 3.0, 5)
    assert timing([2.0]) == Timing(2.0, 0.0, 1)
    assert timing([0.0, 0.0]).spread == 0.0


class Disturbed(FakeDevice):
    """Another program has the GPU before every other of its first timed calls."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def timed(self, call: Callable[[], object]) -> Callable[[], float]:
        self.calls -= 1
        self.slowness = 10.0 if self.calls > 0 and self.calls % 2 else 1.0
        return super().timed(call)


@pytest.mark.parametrize(("calls", "races"), [(0, 1), (12, 2)])
def test_a_race_that_was_disturbed_is_run_again(calls: int, races: int) -> None:
    device = Disturbed(calls)
    found = race(
        {"a": device.call("a", 1e-3)}, device, budget_s=0, least_rounds=10, warm_up_s=0
    )
    assert found["a"] == Timing(1e-3, 0.0, 10)
    assert len(timed_rounds(device, "a")) == 10 * races + 5


def test_a_race_that_is_always_disturbed_ends() -> None:
    """And its spread says so."""
    device = Disturbed(10**6)
    found = race({"a": device.call("a", 1e-3)}, device, budget_s=0, least_rounds=10)
    assert found["a"].spread > 1


def test_each_round_takes_every_call_once_in_an_order_of_its_own() -> None:
    device = FakeDevice()
    calls = {name: device.call(name, 1e-3) for name in "abc"}
    race(calls, device, budget_s=0.2)
    rounds = timed_rounds(device, "abc")
    assert {"".join(sorted(one)) for one in rounds} == {"abc"}
    assert len(set(rounds)) == 6
    firsts = [one[0] for one in rounds]
    assert all(firsts.count(name) > len(rounds) / 5 for name in "abc")


def test_a_drift_is_the_same_for_all() -> None:
    """Half as fast at the end, and two equal calls are still equal."""
    device = FakeDevice(drift=1.001)
    calls = {name: device.call(name, 1e-3) for name in ("one", "two")}
    found = race(calls, device, budget_s=0.5, warm_up_s=0.0)
    assert found["one"].spread > 0.2
    assert found["two"].median == pytest.approx(found["one"].median, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "least", "most"), [(1.0, 15, 15), (1e-3, 200, 260), (1e-9, 2000, 2000)]
)
def test_short_calls_get_more_rounds(gpu: float, least: int, most: int) -> None:
    device = FakeDevice()
    calls = {name: device.call(name, gpu, cpu=1e-9) for name in ("one", "two")}
    found = race(calls, device, budget_s=0.5)
    assert least <= found["one"].rounds == found["two"].rounds <= most
    assert found["one"].median == pytest.approx(gpu)
    assert most <= MOST_ROUNDS


def test_the_flush_outlasts_the_slowest_launch() -> None:
    device = FakeDevice()
    calls = {"quick": device.call("q", 1e-5), "slow": device.call("s", 1e-5, cpu=8e-5)}
    race(calls, device)
    assert device.covered == pytest.approx(2 * 8e-5)


def test_calls_are_compiled_and_warm_before_they_are_timed() -> None:
    """The first two calls and the warm-up count for nothing."""
    device = FakeDevice()
    cold = {"left": 2}

    def first_calls_compile() -> None:
        device.lasted = 9.0 if cold["left"] > 0 else 1e-3
        cold["left"] -= 1

    found = race({"one": first_calls_compile}, device, budget_s=0.1, warm_up_s=0.1)
    assert found["one"].median == 1e-3
    assert found["one"].spread == 0.0
    rounds = device.log.count("flush")
    assert rounds >= found["one"].rounds + 100


def test_what_is_read_is_synchronized() -> None:
    device = FakeDevice()
    race({"one": device.call("a", 1e-3)}, device, budget_s=0.01)
    assert device.log[-1] == "synchronize"


def test_cpu_time_is_taken_in_batches_in_turn() -> None:
    device = FakeDevice()
    calls = {
        "one": device.call("a", 0.0, cpu=2e-6),
        "two": device.call("b", 0.0, cpu=6e-6),
    }
    found = cpu_time(calls, device.synchronize, batch=10, batches=8, now=device.now)
    assert found["one"].median == pytest.approx(2e-6)
    assert found["two"].median == pytest.approx(6e-6)
    assert found["one"].rounds == 8
    batches = "".join(name[0] for name in device.log).split("s")
    assert set(batches[1:-1]) == {"a" * 10, "b" * 10}
    turns = [one[0] for one in batches[1:-1]]
    assert all(sorted(turns[i : i + 2]) == ["a", "b"] for i in range(0, 16, 2))


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentMissing, match="needs an NVIDIA GPU"):
        Gpu()


SPEC = """\
gemmgen: 1
kernels:
  - name: one
    op: linear
    dtype: bf16
    epilogue: alpha[] * acc * scale[m] + bias[n] + residual[m, n]
    operands: {bias: fp32}
  - {name: two, op: gemm, layout: TT, dtype: fp64}
"""


def test_problems_are_random_seeded_and_as_the_launcher_takes_them() -> None:
    one, two = plans(parse(SPEC, "spec.yaml"))
    made = problem(one, Shape(5, 6, 7), "cpu", seed=3)
    x, w, alpha, scale, bias, residual = made.arguments
    assert (x.shape, w.shape, scale.shape) == ((5, 7), (6, 7), (5,))
    assert (bias.shape, bias.dtype) == ((6,), torch.float32)
    assert residual.dtype == torch.bfloat16
    assert alpha == 0.5
    again = problem(one, Shape(5, 6, 7), "cpu", seed=3)
    other = problem(one, Shape(5, 6, 7), "cpu", seed=4)
    assert torch.equal(x, again.arguments[0])
    assert not torch.equal(x, other.arguments[0])
    # x, w, scale, residual and the result in 2 bytes, bias in 4.
    assert made.traffic == 2 * (35 + 42 + 5 + 30 + 30) + 4 * 6
    a, b = problem(two, Shape(5, 6, 7), "cpu").arguments
    assert (a.shape, b.shape) == ((7, 5), (6, 7))
