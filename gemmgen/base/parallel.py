"""Runs a function over many jobs on all cores, in processes that import no __main__.

Not multiprocessing: it would run a user's unguarded script again in each worker.
Must not lose a traceback: a job that fails in a worker is run again here.
"""

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

FEW = 8  # up to this many jobs, starting a worker (1 s) costs more than it saves
_MOST = 16

# -I: neither the working folder nor the environment may add modules.
_START = [
    sys.executable,
    "-I",
    "-c",
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from gemmgen.base.parallel import serve; serve()",
]


def run(
    function: Callable[[Job], Result], jobs: Sequence[Job]
) -> Iterator[tuple[Job, Result]]:
    """Each job with its result, in the order in which they get done.

    `function` must be importable by its name and not return None; jobs and results
    are pickled.
    """
    count = min(_cores(), _MOST, len(jobs) // 4)
    if len(jobs) <= FEW or count < 2:
        yield from ((job, function(job)) for job in jobs)
        return
    done: SimpleQueue[tuple[Job, Result | None]] = SimpleQueue()
    with ExitStack() as workers:
        for first in range(count):
            workers.enter_context(_worker(function, _dealt(jobs, first, count), done))
        for _ in jobs:
            job, result = done.get()
            yield job, function(job) if result is None else result


def _dealt(jobs: Sequence[Job], first: int, count: int) -> list[Job]:
    """One worker's share: pairs of neighbours, which are often alike, in turn.

    To and fro, so that no worker gets all the long ones of a pattern.
    """
    order = [*range(count), *reversed(range(count))]
    return [job for at, job in enumerate(jobs) if order[at // 2 % len(order)] == first]


def serve() -> None:
    """The worker's end: read the function and its jobs, write the results."""
    # Syntax trees are many objects and little garbage: a third of the time, else.
    gc.set_threshold(50_000, 20, 100)
    function, jobs = pickle.load(sys.stdin.buffer)
    for job in jobs:
        pickle.dump(function(job), sys.stdout.buffer)
        sys.stdout.buffer.flush()


@contextmanager
def _worker(
    function: Callable[[Job], Result],
    jobs: Sequence[Job],
    done: SimpleQueue[tuple[Job, Result | None]],
) -> Iterator[None]:
    """A process that works on `jobs` and puts each into `done`; killed at the end."""
    orders = pickle.dumps(sys.path) + pickle.dumps((function, jobs))
    worker = subprocess.Popen(
        _START,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what fails is run again where it can be seen
        start_new_session=True,  # so that Ctrl-C is ours alone to handle
    )
    thread = Thread(target=_listen, args=(worker, orders, jobs, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.kill()
        thread.join()


def _listen(
    worker: subprocess.Popen[bytes],
    orders: bytes,
    jobs: Sequence[Job],
    done: SimpleQueue[tuple[Job, Result | None]],
) -> None:
    assert worker.stdin and worker.stdout
    with suppress(BrokenPipeError), worker:  # its end flushes what it could not read
        with suppress(BrokenPipeError):
            worker.stdin.write(orders)
            worker.stdin.flush()
        for job in jobs:
            result = None
            with suppress(EOFError, pickle.UnpicklingError):
                result = pickle.load(worker.stdout)
            done.put((job, result))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
