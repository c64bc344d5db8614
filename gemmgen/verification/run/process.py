"""One worker process: a kernel handed over, and what becomes of it.

Tells a crash, a hang and an answer apart.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from gemmgen.select.plan import Plan
from gemmgen.verification.basics.outcome import OUT_OF_RESOURCES, TIMED_OUT, Outcome
from gemmgen.verification.basics.part import WHOLE, Part
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.run.worker import NO_DEVICE, STAND_IN, job

_EXAMPLE_SECONDS = 180.0
"""Without a sign of life for so long a process hangs; compiling a kernel is shorter."""
_MOST_BYTES = 8 * 2**30
"""Memory of a process; a healthy one takes a few GB, most of it torch and CUDA."""
_WATCH_SECONDS = 1.0

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""A process takes a core, and there are as many as cores."""

# -I: neither the working folder nor the environment may add modules.
_START = [
    sys.executable,
    "-I",
    "-c",
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gemmgen.verification.run.worker import main; main()",
]


@dataclass(frozen=True)
class Subject:
    """A kernel to verify: its plan, its launcher's file, and the spec it comes from.

    Of its steps a `part` is done; with a `file`, only the tiles of its schedules are
    tried.
    """

    plan: Plan
    path: Path
    spec: str = "SPEC"
    part: Part = WHOLE
    file: str | None = None

    @property
    def folder(self) -> Path:
        """The output folder."""
        return self.path.parents[1 + self.plan.folder.count("/")]


_CHECKS = {NO_DEVICE: "compiled", STAND_IN: "launches"}
"""What is done where kernels do not run."""


@dataclass(frozen=True)
class Run:
    """What is alike for all kernels of a run."""

    device: str
    profile: str
    seed: int

    @property
    def check(self) -> str:
        """What is done on this device."""
        return _CHECKS.get(self.device, "properties")

    def repeat(self, subject: Subject) -> str:
        """The command that does the same again for one kernel."""
        command = f"gemmgen verify {subject.spec} --only {subject.plan.name}"
        if self.profile != "quick":
            command += f" --profile {self.profile}"
        return (
            command
            + f" --seed {self.seed}"
            + " --cpu" * (self.device in ("cpu", STAND_IN))
        )


class Starved(Exception):
    """A process is over its limit: the outcome's status and the story."""


class Process:
    """A worker process and the lines that it writes."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        self.worker = subprocess.Popen(
            [*_START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env={**os.environ, **_ONE_THREAD},
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

    def verified(
        self, subject: Subject, run: Run, environment: Mapping[str, str]
    ) -> Outcome:
        """Hand over one kernel and wait for what becomes of it.

        The first one's `environment` is every later one's: some of it is read but once.
        """
        assert self.worker.stdin is not None
        started, example = time.monotonic(), "start"
        limit = started + PROFILES[run.profile].seconds
        blank = Outcome(subject.plan.name, run.check, run.device, "crashed")
        line = job(
            subject.plan,
            subject.path,
            run.device,
            run.profile,
            run.seed,
            subject.part,
            subject.file,
            environment,
        )
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
                answer = self._next(left)
            except Starved as starved:
                status, story = starved.args
                return replace(blank, status=status, detail=f"{story}\n{example}")
            if answer is None:
                return replace(blank, detail=f"{self._death()}\n{example}")
            if "outcome" in answer:
                return Outcome.read(answer["outcome"])
            example, examples = answer["beat"], examples + 1

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The next line, None at the end; raise `Starved` beyond time or memory."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            with suppress(Empty):
                return self.lines.get(timeout=max(0.0, min(left, _WATCH_SECONDS)))
            if left <= _WATCH_SECONDS:
                raise Starved(TIMED_OUT, f"no answer for {seconds:.0f} s")
            taken = _resident_bytes(self.worker.pid)
            if taken > _MOST_BYTES:
                raise Starved(OUT_OF_RESOURCES, f"takes {taken / 2**30:.0f} GiB")

    def _death(self) -> str:
        """How the process ended, and the last that it said."""
        code = self.worker.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        try:
            self.errors.seek(0, os.SEEK_END)
            self.errors.seek(max(0, self.errors.tell() - 2000))
            said = self.errors.read().decode(errors="replace").strip().splitlines()
        except ValueError:  # closed by `stop`, in another thread, whenever that comes
            return "the process was stopped"
        return "\n".join([f"the process ended: {how}", *said[-3:]])

    def stop(self) -> None:
        """Kill the process and wait for it."""
        self.worker.kill()
        self.worker.wait()
        for stream in (self.worker.stdin, self.worker.stdout, self.errors):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()


def _resident_bytes(process: int) -> int:
    """Memory that a process takes, where the system tells it as Linux does, else 0."""
    with suppress(OSError):
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0
