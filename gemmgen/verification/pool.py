"""Runs the properties of many kernels in child processes, some at a time.

A kernel that crashes or hangs takes its process with it and nothing else.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from gemmgen.plan import Plan
from gemmgen.verification.outcome import Outcome
from gemmgen.verification.profiles import PROFILES
from gemmgen.verification.worker import NO_DEVICE, job

_EXAMPLE_SECONDS = 180.0
"""Without a sign of life for so long a process hangs; compiling a kernel is shorter."""

_MOST_ON_A_GPU = 6
"""Operands with elements beyond 2^31 take up to 17 GB in each process."""

# -I: neither the working folder nor the environment may add modules.
_START = [
    sys.executable,
    "-I",
    "-c",
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gemmgen.verification.worker import main; main()",
]


@dataclass(frozen=True)
class Subject:
    """A kernel to verify: its plan, its module's file, and the spec it comes from."""

    plan: Plan
    path: Path
    spec: str = "SPEC"


@dataclass(frozen=True)
class Run:
    """What is alike for all kernels of a run."""

    device: str
    profile: str
    seed: int

    @property
    def check(self) -> str:
        """What is done on this device."""
        return "compiled" if self.device == NO_DEVICE else "properties"

    def repeat(self, subject: Subject) -> str:
        """The command that does the same again for one kernel."""
        command = f"gemmgen verify {subject.spec} --only {subject.plan.name}"
        if self.device == NO_DEVICE:
            return command
        if self.profile != "quick":
            command += f" --profile {self.profile}"
        return command + f" --seed {self.seed}" + " --cpu" * (self.device == "cpu")


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
    return _run_all(Run(device, profile, seed), subjects, on_done)


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


class Process:
    """A worker process and the lines that it writes."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        self.worker = subprocess.Popen(
            [*_START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **environment},
            text=True,
            encoding="utf-8",
            start_new_session=True,  # so that Ctrl-C is ours alone to handle
        )
        self.lines: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.worker.stdout is not None
        with suppress(ValueError):
            for line in self.worker.stdout:
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def verified(self, subject: Subject, run: Run) -> Outcome:
        """Hand over one kernel and wait for what becomes of it."""
        assert self.worker.stdin is not None
        started, example = time.monotonic(), "start"
        limit = started + PROFILES[run.profile].seconds
        blank = Outcome(subject.plan.name, run.check, run.device, "crashed")
        line = job(subject.plan, subject.path, run.device, run.profile, run.seed)
        with suppress(BrokenPipeError):
            self.worker.stdin.write(line + "\n")
            self.worker.stdin.flush()
        examples = 0
        while True:
            left = min(_EXAMPLE_SECONDS, limit - time.monotonic())
            blank = replace(
                blank, examples=examples, seconds=time.monotonic() - started
            )
            try:
                answer = self.lines.get(timeout=max(0.0, left))
            except Empty:
                story = f"no answer for {left:.0f} s\n{example}"
                return replace(blank, status="timed out", detail=story)
            if answer is None:
                return replace(blank, detail=f"{self._death()}\n{example}")
            if "outcome" in answer:
                return Outcome(**answer["outcome"])
            example, examples = answer["beat"], examples + 1

    def _death(self) -> str:
        """How the process ended, and the last that it said."""
        code = self.worker.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        return "\n".join([f"the process ended: {how}", *said[-3:]])

    def stop(self) -> None:
        """Kill the process and wait for it."""
        self.worker.kill()
        self.worker.wait()
        for stream in (self.worker.stdin, self.worker.stdout, self.errors):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
