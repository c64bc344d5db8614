"""Runs the properties of many kernels in child processes, some at a time.

A kernel that crashes or hangs takes its process with it and nothing else.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread

from gemmgen.verification.outcome import Outcome
from gemmgen.verification.process import Process, Run, Subject
from gemmgen.verification.profiles import PROFILES
from gemmgen.verification.worker import NO_DEVICE

_MOST_ON_A_GPU = 6
"""Operands with elements beyond 2^31 take up to 17 GB in each process."""


def run_properties(
    subjects: Sequence[Subject],
    device: str,
    profile: str,
    seed: int | None,
    on_done: Callable[[Outcome], object] | None = None,
) -> list[Outcome]:
    """Verify every kernel on `device` ("cpu": Triton's interpreter, or "cuda").

    The outcomes are in the order of `subjects`; `on_done` is told each as it comes. A
    seed of None is drawn, but for profiles that fix theirs.
    """
    if seed is None:
        seed = 0 if PROFILES[profile].fixed_seed else secrets.randbits(32)
    run = Run(device, profile, seed)
    parts = max(1, len(_slots(device)) // max(1, len(subjects)))
    if device == "cpu" or parts == 1:
        return _run_all(run, subjects, on_done)
    shares = [replace(s, share=(i, parts)) for s in subjects for i in range(parts)]
    outcomes = _run_all(run, shares, None)
    whole = [
        _joined(outcomes[at : at + parts]) for at in range(0, len(outcomes), parts)
    ]
    for outcome in whole:
        if on_done is not None:
            on_done(outcome)
    return whole


def _joined(parts: Sequence[Outcome]) -> Outcome:
    """One kernel's outcome from those of its parts: the first that failed, if any."""
    told = next((part for part in parts if not part.ok), parts[0])
    return replace(
        told,
        examples=sum(part.examples for part in parts),
        worst=max(part.worst for part in parts),
        seconds=max(part.seconds for part in parts),
    )


def run_compiler(
    subjects: Sequence[Subject], on_done: Callable[[Outcome], object] | None = None
) -> list[Outcome]:
    """Compile every kernel for all its targets, with no GPU, and check the result."""
    return _run_all(Run(NO_DEVICE, "quick", 0), subjects, on_done)


def _run_all(
    run: Run,
    subjects: Sequence[Subject],
    on_done: Callable[[Outcome], object] | None,
) -> list[Outcome]:
    slots_of = _slots(run.device)
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()
    for index in range(len(subjects)):
        waiting.put(index)
    slots = [_Slot(run, subjects, waiting, done, extra) for extra in slots_of]
    slots = slots[: len(subjects)]
    outcomes: dict[int, Outcome] = {}
    try:
        for slot in slots:
            slot.start()
        while len(outcomes) < len(subjects):
            index, outcome = done.get()
            outcomes[index] = outcome
            if on_done is not None:
                on_done(outcome)
    finally:
        for slot in slots:
            slot.stop()
    return [outcomes[index] for index in range(len(subjects))]


def _slots(device: str) -> list[dict[str, str]]:
    """The environment of each process that may run at once: one a core, some a GPU.

    A process on a GPU mostly waits for the compiler, so several share it.
    """
    if device == NO_DEVICE:
        return [{"TRITON_INTERPRET": "0"}] * _cores()
    if device == "cpu":
        one_thread = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
        return [{"TRITON_INTERPRET": "1", **one_thread}] * _cores()
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
        run: Run,
        subjects: Sequence[Subject],
        waiting: "SimpleQueue[int]",
        done: "SimpleQueue[tuple[int, Outcome]]",
        environment: dict[str, str],
    ) -> None:
        super().__init__(daemon=True)
        self.run_of_all = run
        self.subjects = subjects
        self.waiting = waiting
        self.done = done
        self.environment = environment
        self.process: Process | None = None
        self.stopped = False

    def run(self) -> None:
        """Verify kernels until none is left."""
        with suppress(Empty):
            while not self.stopped:
                index = self.waiting.get_nowait()
                self.done.put((index, self.verified(self.subjects[index])))
        self.stop()

    def verified(self, subject: Subject) -> Outcome:
        """One kernel's outcome; a process that may have come to harm is not kept."""
        if self.process is None:
            self.process = Process(self.environment)
        outcome = self.process.verified(subject, self.run_of_all)
        if not outcome.ok:
            # The interpreter checks every access, so a wrong kernel harms nothing.
            if outcome.device != "cpu" or outcome.status in ("crashed", "timed out"):
                self.process.stop()
                self.process = None
            repeat = self.run_of_all.repeat(subject)
            outcome = replace(outcome, detail=f"{outcome.detail}\n{repeat}")
        return outcome

    def stop(self) -> None:
        """End the process, if there is one."""
        self.stopped = True
        if self.process is not None:
            self.process.stop()
