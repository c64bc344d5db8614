"""`gemmgen verify --sanitize`: kernels on a GPU under sanitizers.

Those are compute-sanitizer's tools, Triton's ConSan for specialized kernels, and its
FPSan where the installed Triton has it.

Several kernels share a process; after one that fails, the rest get a new one.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from gemmgen.render.names.parts import ROLES, file_of
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.run.process import Subject
from gemmgen.verification.sanitize.child import job
from gemmgen.verification.sanitize.consan import ASSERTED
from gemmgen.verification.sanitize.findings import FOUND, Files, Reading, Record, read
from gemmgen.verification.sanitize.instrumented import OWN
from gemmgen.verification.sanitize.tools import TOOLS, command, concerned, environment

_START_SECONDS, _KERNEL_SECONDS = 120.0, 300.0
_OWN_SECONDS = 1800.0
"""Triton takes up to minutes to compile a tile with its checks."""
_MOST_AT_ONCE = 15


def sanitize(
    subjects: Sequence[Subject],
    device: str,
    on_done: Callable[[Outcome], object] | None = None,
) -> list[Outcome]:
    """An outcome a tool and kernel, the tools in their order."""
    running = _Running()
    at_once = max(1, min(_MOST_AT_ONCE, os.cpu_count() or 1))
    shares = list(_shares(subjects, max(1, at_once // len(TOOLS))))
    with ThreadPoolExecutor(at_once) as pool:
        try:
            found = list(
                pool.map(
                    lambda one: _checked(one[0], one[1], device, running, on_done),
                    shares,
                )
            )
        except BaseException:
            running.stop()
            pool.shutdown(cancel_futures=True)
            raise
    order = list(TOOLS)
    return sorted(
        (outcome for share in found for outcome in share),
        key=lambda outcome: order.index(outcome.check),
    )


@dataclass(frozen=True)
class Session:
    """One process that has ended: all it wrote and its exit code, None if killed."""

    text: str
    code: int | None
    seconds: float


class _Running:
    """The processes of all threads, so that an interrupt can end them."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.processes: set[subprocess.Popen[str]] = set()
        self.stopped = False

    def run(
        self, arguments: list[str], variables: Mapping[str, str], limit: float
    ) -> Session:
        """Run one command to its end or its limit of seconds."""
        started = time.monotonic()
        with self.lock:
            if self.stopped:
                return Session("", None, 0.0)
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(variables),
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self.processes.add(process)
        code: int | None = None
        try:
            text, _ = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            _kill(process)
            text, _ = process.communicate()
        with self.lock:
            self.processes.discard(process)
        return Session(text, code, time.monotonic() - started)

    def stop(self) -> None:
        """Kill them all and start no more."""
        with self.lock:
            self.stopped = True
            for process in self.processes:
                _kill(process)


def _kill(process: "subprocess.Popen[str]") -> None:
    """The process with the one that it watches: they share a group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _shares(
    subjects: Sequence[Subject], parts: int
) -> Iterator[tuple[str, Sequence[Subject]]]:
    """What each process is to check; Triton's own compile long, so a kernel each."""
    for tool in sorted(TOOLS, key=lambda tool: tool not in OWN):
        own = concerned(tool, subjects)
        count = len(own) if tool in OWN else parts
        yield from ((tool, own[at::count]) for at in range(min(count, len(own))))


def _checked(
    tool: str,
    subjects: Sequence[Subject],
    device: str,
    running: _Running,
    on_done: Callable[[Outcome], object] | None,
) -> list[Outcome]:
    """All outcomes of one tool for some kernels, in as many processes as it takes."""
    waiting, outcomes = list(subjects), []
    while waiting and not running.stopped:
        with tempfile.TemporaryDirectory() as folder:
            order = Path(folder, "job.json")
            pairs = [(subject.plan, subject.path) for subject in waiting]
            order.write_text(job(tool, device, pairs), encoding="utf-8")
            each = _OWN_SECONDS if tool in OWN else _KERNEL_SECONDS
            limit = _START_SECONDS + each * len(waiting)
            variables = environment(tool, device)
            session = running.run(command(tool, order), variables, limit)
        sources = {subject.plan.name: _specialized(subject) for subject in waiting}
        settled = judged(tool, device, session, sources)
        by_name = {subject.plan.name: subject for subject in waiting}
        for outcome in settled:
            again = f"gemmgen verify {by_name[outcome.kernel].spec} --sanitize"
            if not outcome.ok:
                repeat = f"{again} --only {outcome.kernel}"
                outcome = replace(outcome, detail=f"{outcome.detail}\n{repeat}")
            outcomes.append(outcome)
            if on_done is not None:
                on_done(outcome)
        names = {outcome.kernel for outcome in settled}
        waiting = [subject for subject in waiting if subject.plan.name not in names]
    return outcomes


def _specialized(subject: Subject) -> Files:
    """The files whose warps have different parts; none if there is none."""
    stem = subject.plan.specialized
    if stem is None:
        return {}
    paths = [subject.folder / name for name in (file_of(subject.plan, stem), *ROLES)]
    return {one.name: one.read_text(encoding="utf-8").splitlines() for one in paths}


def judged(
    tool: str, device: str, session: Session, sources: Mapping[str, Files]
) -> list[Outcome]:
    """The outcomes that one process settles: every kernel begun, at least the first.

    `sources` are files with parts for warps, by kernel in the order of their run.
    """
    kernels = list(sources)
    reading = read(session.text, sources)
    begun = [name for name in kernels if name in reading.records] or kernels[:1]
    stray = _stray(reading, session.code, kernels)
    found = []
    for name in begun:
        record = reading.records.get(name, Record(name))
        status, detail = _status(record, reading, session)
        if status == "passed" and stray:
            status, detail = "failed", stray
        seconds = session.seconds / len(begun)
        found.append(
            Outcome(
                name, tool, device, status, detail, record.calls or 0, seconds=seconds
            )
        )
    return found


def _status(record: Record, reading: Reading, session: Session) -> tuple[str, str]:
    if record.findings:
        more = len(record.findings) - 1
        others = f"\nand {more} more findings" if more else ""
        return "failed", record.findings[0] + others
    if record.calls is not None:
        return "passed", f"{record.set_aside} set aside" if record.set_aside else ""
    where = record.case or "before its first call"
    if session.code is None:
        return "timed out", f"killed after {session.seconds:.0f} s\n{where}"
    if record.story:
        asserted = [line for line in reading.said if ASSERTED in line]
        if asserted:
            return "failed", f"{asserted[0].strip()}\n{where}"
        return "error", f"{record.story}\n{where}"
    last = [line for line in reading.said if line.strip()][-3:]
    return "crashed", "\n".join([f"the process ended: {session.code}", *last, where])


def _stray(reading: Reading, code: int | None, kernels: Sequence[str]) -> str:
    """What is wrong with a process of which no kernel shows a finding."""
    if any(
        reading.records[kernel].findings
        for kernel in kernels
        if kernel in reading.records
    ):
        return ""
    loose = [text for record in reading.records.values() for text in record.findings]
    if loose:
        return f"{loose[0]}\nnamed no kernel: one of this process's"
    known = sum(record.set_aside for record in reading.records.values())
    if reading.count > known or (code == FOUND and not known):
        return f"the tool counts {reading.count - known} errors and shows none of them"
    return ""
