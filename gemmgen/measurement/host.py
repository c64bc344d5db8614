"""What a call costs the CPU: the time until it returns, the GPU working behind it."""

import random
import time
from collections.abc import Callable, Mapping

from gemmgen.measurement.race import Call, Timing, timing


def cpu_time(
    calls: Mapping[str, Call],
    synchronize: Callable[[], object],
    *,
    batch: int = 2000,
    batches: int = 9,
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Seconds of CPU of each call: batches in turn, in shuffled order, medians.

    The GPU is waited for between batches. So that its queue never fills, within a batch
    it must be faster than the CPU: give it products such as 16x16x16.
    """
    for call in calls.values():
        for _ in range(batch):  # compiles, and fills every cache
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffled = list(calls), random.Random(0)
    for _ in range(batches):
        shuffled.shuffle(order)
        for name in order:
            call = calls[name]
            synchronize()
            started = now()
            for _ in range(batch):
                call()
            seconds[name].append((now() - started) / batch)
    synchronize()
    return {name: timing(one) for name, one in seconds.items()}
