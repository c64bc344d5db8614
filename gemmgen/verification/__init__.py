"""`gemmgen verify`: drift, compilation for every target, properties against torch.

Decides what is checked and in what order; the checks are the modules beside this one.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen import builder
from gemmgen.errors import Interrupted, UsageError, quoted
from gemmgen.plan import load
from gemmgen.verification import sanitizer
from gemmgen.verification.outcome import Outcome
from gemmgen.verification.pool import run_checks
from gemmgen.verification.process import Subject
from gemmgen.verification.report import Verification, environment
from gemmgen.verification.selftest import Kill
from gemmgen.verification.selftest import self_test as test_itself

OnDone = Callable[[str], object]


def verify(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    profile: str = "quick",
    only: str | None = None,
    seed: int | None = None,
    cpu: bool = False,
    self_test: bool = False,
    sanitize: bool = False,
    on_done: OnDone | None = None,
) -> Verification:
    """Check every kernel of the specs whose name matches the pattern `only`.

    A kernel whose file has drifted is neither compiled nor run. With `self_test` its
    mutants are verified after it; with `sanitize` all but drift is compute-sanitizer's.
    Raises `Interrupted` with the checks that had ended.
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as beside:  # torch takes as long to import as a check
        checked = beside.submit(builder.check, specs, out)
        device = _device(cpu, sanitize)
        report = checked.result()
    subjects = _subjects(specs, report.folder, only)
    ended: list[Outcome] = []
    tell = _teller(ended, on_done)
    drifted = _drift(report, [one.plan.name for one in subjects])
    sound = [one for one in subjects if drifted[one.plan.name].ok]
    order = [one.plan.name for one in subjects]
    facts = environment(device)

    def result(found: Sequence[Outcome], kills: tuple[Kill, ...]) -> Verification:
        every = sorted(
            [*drifted.values(), *found],
            key=lambda outcome: order.index(outcome.kernel),
        )
        return Verification(tuple(every), facts, time.monotonic() - started, kills)

    try:
        if sanitize:
            return result(sanitizer.sanitize(sound, device, tell), ())
        found = run_checks(sound, device, profile, seed, tell)
        if not self_test:
            return result(found, ())
        unkept = _teller([], on_done)  # of mutants, which are no kernels of the report
        judged, kills = test_itself(sound, device, profile, seed, unkept)
        return result([*found, *judged], kills)
    except KeyboardInterrupt as stop:
        facts["interrupted"] = "the checks that had ended"
        raise Interrupted(result(ended, ())) from stop


def _subjects(specs: Sequence[Path], folder: Path, only: str | None) -> list[Subject]:
    subjects = [
        Subject(plan, folder / f"{plan.name}.py", str(spec))
        for spec in specs
        for plan in load(spec)
        if only is None or fnmatchcase(plan.name, only)
    ]
    if not subjects:
        raise UsageError(f"no kernel has a name like {quoted(only or '*')}")
    return subjects


def _drift(report: builder.Report, kernels: Sequence[str]) -> dict[str, Outcome]:
    """An outcome a kernel; what drifted beside the kernels' files is everyone's."""
    changed = {change.name: change for change in report.drift}
    shared = [name for name in changed if name.startswith("_")]
    outcomes = {}
    for kernel in kernels:
        files = [name for name in (f"{kernel}.py", *shared) if name in changed]
        detail = "\n".join(
            f"{report.folder / name}: {changed[name].state.value}" for name in files
        )
        status = "failed" if files else "passed"
        outcomes[kernel] = Outcome(kernel, "drift", "none", status, detail)
    return outcomes


def _device(cpu: bool, sanitize: bool) -> str:
    import torch

    device = "cpu" if cpu or not torch.cuda.is_available() else "cuda"
    if sanitize:
        sanitizer.require(device)
    return device


def _teller(ended: list[Outcome], on_done: OnDone | None) -> Callable[[Outcome], None]:
    """Keeps what is told, and tells a command which check of which kernel is done."""

    def tell(outcome: Outcome) -> None:
        ended.append(outcome)
        if on_done is not None:
            on_done(f"{outcome.kernel} {outcome.check}")

    return tell
