"""Times calls against each other: interleaved rounds, shuffled, medians.

Knows a device only by `Device`, so that all of it is tested with a clock of its own.
"""

import random
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Call = Callable[[], object]
Key = TypeVar("Key", bound=Hashable)

MOST_ROUNDS = 2000
"""From here on more rounds narrow a median by less than clocks drift."""
_BATCH = 5
"""Rounds between two looks at the clock: the queue drains there."""
_DISTURBED, _TRIES = 1.0, 2
"""The spread of times that nobody believes, and how often they are taken at most."""


@dataclass(frozen=True)
class Timing:
    """The time of a call: median in seconds, interquartile range / median, rounds."""

    median: float
    spread: float
    rounds: int


class Device(Protocol):
    """What a race needs of the device that calls run on.

    `kind` is torch's word for where its tensors are.
    """

    kind: str

    def cover(self, seconds: float) -> None:
        """Be busy for at least so long before each timed call, from now on."""

    def timed(self, call: Call) -> Callable[[], float]:
        """Enqueue the call behind a flush; its seconds, once synchronized."""

    def synchronize(self) -> None:
        """Wait until everything enqueued is done."""

    def now(self) -> float:
        """The time in seconds."""


def timing(seconds: Sequence[float]) -> Timing:
    """Median and spread of the times of a call."""
    median = statistics.median(seconds)
    if len(seconds) < 2 or median == 0:
        return Timing(median, 0.0, len(seconds))
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, (high - low) / median, len(seconds))


def race(
    calls: Mapping[Key, Call],
    device: Device,
    *,
    budget_s: float = 0.5,
    least_rounds: int = 15,
    warm_up_s: float = 0.1,
    seed: int = 0,
) -> dict[Key, Timing]:
    """Time calls in one process, in rounds that take each once, in shuffled order.

    So whatever drifts, clocks and temperature above all, drifts for all alike. First
    each call is made twice, which compiles what it compiles, and whole rounds run
    untimed for `warm_up_s`, until clocks are steady. Then rounds go on until `budget_s`
    seconds are spent and `least_rounds` are done: the shorter the calls, the more
    rounds, at most `MOST_ROUNDS`.

    Before each call, outside of what is timed, the device flushes its L2 cache. The
    flush also hides the launch: while it runs, the CPU enqueues the start mark, the
    call and the end mark, so the call's kernels follow one another on the GPU as fast
    as they can. For that the flush is made to last twice as long as the slowest call
    takes to enqueue. What is timed is hence the GPU's work, not the CPU's.

    Times of a call that spread over more than their median say that something else had
    the GPU meanwhile: then the timed rounds are made anew, once.
    """
    for call in calls.values():
        call()
        call()
    device.cover(2 * max(_enqueuing(call, device) for call in calls.values()))
    shuffled = random.Random(seed)
    _rounds(calls, device, shuffled, warm_up_s, 1)
    for _ in range(_TRIES):
        found = _rounds(calls, device, shuffled, budget_s, least_rounds)
        timings = {name: timing(seconds) for name, seconds in found.items()}
        if max(one.spread for one in timings.values()) <= _DISTURBED:
            break
    return timings


def _enqueuing(call: Call, device: Device) -> float:
    """Seconds until a call returns to the CPU, the GPU being idle."""
    taken = []
    for _ in range(5):
        device.synchronize()
        started = device.now()
        call()
        taken.append(device.now() - started)
    return statistics.median(taken)


def _rounds(
    calls: Mapping[Key, Call],
    device: Device,
    shuffled: random.Random,
    budget_s: float,
    least: int,
) -> dict[Key, list[float]]:
    """The seconds of each call in every round."""
    seconds: dict[Key, list[float]] = {name: [] for name in calls}
    order, done, started = list(calls), 0, device.now()
    while done < least or (done < MOST_ROUNDS and device.now() - started < budget_s):
        enqueued = []
        for _ in range(_BATCH):
            shuffled.shuffle(order)
            enqueued += [(name, device.timed(calls[name])) for name in order]
        device.synchronize()
        for name, read in enqueued:
            seconds[name].append(read())
        done += _BATCH
    return seconds


def wall_clock() -> float:
    """The clock of a real device."""
    return time.perf_counter()
