"""Runs the properties of many kernels in child processes, some at a time.

A kernel that crashes or hangs takes its process with it and nothing else.
"""

import os
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Thread

from gemmgen.verification.basics.outcome import STARVED, Outcome
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.run.process import Process, Run, Subject
from gemmgen.verification.run.worker import NO_DEVICE, STAND_IN

_MOST_ON_A_GPU = 8
"""More take longer: quick of spec.yaml 235 s, with 12 over 330 (H200, 16 cores)."""

_MOST_TASKS = 64
"""Of a process: Hypothesis keeps the modules that it has seen, some 10 MB a kernel."""

OnDone = Callable[[Outcome], object]


class Ready:
    """Processes started before it is known what for: torch takes seconds to import.

    As many as can be used, unless a number is given.
    """

    def __init__(self, most: int | None = None) -> None:
        count = min(_MOST_ON_A_GPU, _cores()) if most is None else most
        self.idle = deque(Process() for _ in range(count))

    def take(self) -> Process:
        """One of them, or a new one when none is left."""
        with suppress(IndexError):  # of another thread that was faster
            return self.idle.popleft()
        return Process()

    def __enter__(self) -> "Ready":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.idle:
            process.stop()


@dataclass(frozen=True)
class _Task:
    """A kernel, whole or in part, and what is done with it."""

    run: Run
    subject: Subject


def run_checks(
    subjects: Sequence[Subject],
    device: str,
    profile: str,
    seed: int | None,
    on_done: OnDone | None = None,
    ready: Ready | None = None,
) -> list[Outcome]:
    """Compile every kernel for all its targets, then verify its properties.

    On a GPU both at the same time, in the same processes; `ready` ones come first.
    """
    slots = _slots(STAND_IN if device == "cpu" else device)
    each = len(slots) // max(1, len(subjects))
    if device == "cpu":
        compiled = _shared(subjects, _run_of(NO_DEVICE, profile, seed), each)
        # Launches come last, for the stand-in stays in a process that has it.
        launched = _shared(subjects, _run_of(STAND_IN, profile, seed), 1)
        outcomes = _run_all(slots, compiled + launched, on_done, ready)
        return outcomes + run_properties(subjects, device, profile, seed, on_done)
    run = _run_of(device, profile, seed)
    # First a third of the processes that a kernel has compile it for all its targets;
    # its properties are in small parts, so that no process is left alone for long.
    compiled = _shared(subjects, _run_of(NO_DEVICE, profile, seed), each // 3)
    tried = _shared(subjects, run, 2 * max(1, each))
    outcomes = _run_all(slots, compiled + tried, on_done, ready)
    outcomes = _again_alone(slots[:1], compiled + tried, outcomes)
    return outcomes + run_launches(subjects, profile, seed, on_done)


def run_properties(
    subjects: Sequence[Subject],
    device: str,
    profile: str,
    seed: int | None,
    on_done: OnDone | None = None,
) -> list[Outcome]:
    """Verify every kernel on `device` ("cpu": Triton's interpreter, or "cuda").

    The outcomes are in the order of `subjects`; `on_done` is told each as it comes. A
    seed of None is drawn, but for profiles that fix theirs.
    """
    slots = _slots(device)
    run = _run_of(device, profile, seed)
    parts = 1 if device == "cpu" else len(slots) // max(1, len(subjects))
    return _run_all(slots, _shared(subjects, run, parts), on_done)


def run_launches(
    subjects: Sequence[Subject],
    profile: str,
    seed: int | None,
    on_done: OnDone | None = None,
) -> list[Outcome]:
    """Check what every launcher launches, where no kernel runs."""
    launched = _shared(subjects, _run_of(STAND_IN, profile, seed), 1)
    return _run_all(_slots(STAND_IN), launched, on_done)


def _shared(subjects: Sequence[Subject], run: Run, parts: int) -> list[list[_Task]]:
    """Every kernel's steps, each spread over so many processes."""
    return [_parts(run, subject, parts) for subject in subjects]


def _run_of(device: str, profile: str, seed: int | None) -> Run:
    if seed is None:
        seed = 0 if PROFILES[profile].fixed_seed else secrets.randbits(32)
    return Run(device, profile, seed)


def _parts(run: Run, subject: Subject, parts: int) -> list[_Task]:
    """One kernel's steps, spread over so many processes."""
    count = max(1, parts)
    own = [replace(subject.part, first=i, every=count) for i in range(count)]
    return [_Task(run, replace(subject, part=part)) for part in own]


def _joined(parts: Sequence[Outcome]) -> Outcome:
    """One kernel's outcome from those of its parts: the first that failed, if any."""
    told = next((part for part in parts if not part.ok), parts[0])
    return replace(
        told,
        examples=sum(part.examples for part in parts),
        worst=max(part.worst for part in parts),
        seconds=max(part.seconds for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
        ran=tuple(sorted({name for part in parts for name in part.ran})),
        largest=tuple(map(max, zip(*(part.largest for part in parts), strict=False))),
    )


def _again_alone(
    slots: Sequence[dict[str, str]],
    groups: Sequence[list[_Task]],
    outcomes: list[Outcome],
) -> list[Outcome]:
    """Once more by itself what may have lacked time or memory on a shared GPU."""
    starved = [
        index for index, outcome in enumerate(outcomes) if outcome.status in STARVED
    ]
    for index in starved:
        first = groups[index][0]
        alone = _parts(first.run, first.subject, 1)
        (outcomes[index],) = _run_all(slots, [alone], None)
    return outcomes


def _run_all(
    slots_of: Sequence[dict[str, str]],
    groups: Sequence[list[_Task]],
    on_done: OnDone | None,
    ready: Ready | None = None,
) -> list[Outcome]:
    """Run every task in some slot; an outcome a group, told when all of it is done.

    Of the same run kernels of many tiles come first: what is left last is short.
    """
    new = Process if ready is None else ready.take
    tasks = [(index, task) for index, group in enumerate(groups) for task in group]
    runs = list(dict.fromkeys(task.run for _, task in tasks))
    tasks.sort(
        key=lambda one: (runs.index(one[1].run), -len(one[1].subject.plan.tiles))
    )
    waiting: SimpleQueue[tuple[int, _Task]] = SimpleQueue()
    done: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
    for one in tasks:
        waiting.put(one)
    slots = [_Slot(waiting, done, extra, new) for extra in slots_of[: len(tasks)]]
    parts: list[list[Outcome]] = [[] for _ in groups]
    try:
        for slot in slots:
            slot.start()
        for _ in tasks:
            index, outcome = done.get()
            parts[index].append(outcome)
            if on_done is not None and len(parts[index]) == len(groups[index]):
                on_done(_joined(parts[index]))
    finally:
        for slot in slots:
            slot.stop()
    return [_joined(own) for own in parts]


def _slots(device: str) -> list[dict[str, str]]:
    """The environment of each process that may run at once: one a core, some a GPU."""
    if device == NO_DEVICE:
        return [{"TRITON_INTERPRET": "0"}] * _cores()
    if device == STAND_IN:  # in place of any GPU there may be
        return [{"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}] * _cores()
    if device == "cpu":
        return [{"TRITON_INTERPRET": "1"}] * _cores()
    import torch

    count = max(1, torch.cuda.device_count())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else [str(index) for index in range(count)]
    share = max(1, min(_MOST_ON_A_GPU, _cores() // count))
    return [
        {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": name}
        for name in names[:count] * share
    ]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Slot(Thread):
    """Takes kernels from a queue and hands them to a process, a new one if need be."""

    def __init__(
        self,
        waiting: "SimpleQueue[tuple[int, _Task]]",
        done: "SimpleQueue[tuple[int, Outcome]]",
        environment: dict[str, str],
        new: Callable[[], Process],
    ) -> None:
        super().__init__(daemon=True)
        self.waiting = waiting
        self.done = done
        self.environment = environment
        self.new = new
        self.process: Process | None = None
        self.tasks = 0
        self.stopped = False

    def run(self) -> None:
        """Do what waits until nothing is left."""
        with suppress(Empty):
            while not self.stopped:
                index, task = self.waiting.get_nowait()
                self.done.put((index, self.verified(task)))
        self.stop()

    def verified(self, task: _Task) -> Outcome:
        """One kernel's outcome; a process that may have come to harm is not kept."""
        if self.process is not None and self.tasks >= _MOST_TASKS:
            self.process.stop()
            self.process = None
        if self.process is None:
            self.process, self.tasks = self.new(), 0
        self.tasks += 1
        outcome = self.process.verified(task.subject, task.run, self.environment)
        if not outcome.ok:
            # The interpreter checks every access, so a wrong kernel harms nothing.
            alone = outcome.device in ("cpu", STAND_IN)
            if not alone or outcome.status in ("crashed", *STARVED):
                self.process.stop()
                self.process = None
            repeat = task.run.repeat(task.subject)
            outcome = replace(outcome, detail=f"{outcome.detail}\n{repeat}")
        return outcome

    def stop(self) -> None:
        """End the process, if there is one."""
        self.stopped = True
        if self.process is not None:
            self.process.stop()
