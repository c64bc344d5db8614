"""`gemmgen verify`: drift, compilation for every target, properties against torch.

Decides what is checked and in what order; the checks are the modules beside this one.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen import builder
from gemmgen.errors import UsageError, quoted
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
    """
    started = time.monotonic()
    with ThreadPoolExecutor(1) as beside:  # torch takes as long to import as a check
        checked = beside.submit(builder.check, specs, out)
        device = _device(cpu, sanitize)
        report = checked.result()
    subjects = _subjects(specs, report.folder, only)
    tell = _teller(on_done)
    drifted = _drift(report, [one.plan.name for one in subjects])
    sound = [one for one in subjects if drifted[one.plan.name].ok]
    found = [*drifted.values()]
    if sanitize:
        found += sanitizer.sanitize(sound, device, tell)
    else:
        found += run_checks(sound, device, profile, seed, tell)
    kills: tuple[Kill, ...] = ()
    if self_test:
        judged, kills = test_itself(sound, device, profile, seed, tell)
        found += judged
    order = [one.plan.name for one in subjects]
    found.sort(key=lambda outcome: order.index(outcome.kernel))
    seconds = time.monotonic() - started
    return Verification(tuple(found), environment(device), seconds, kills)


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


def _teller(on_done: OnDone | None) -> Callable[[Outcome], object] | None:
    """The callback of a command, told which check of which kernel is done."""
    if on_done is None:
        return None
    return lambda outcome: on_done(f"{outcome.kernel} {outcome.check}")
