"""`gemmgen verify`: drift, compilation for every target, properties against torch.

Decides what is checked and in what order; the checks are the modules beside this one.
"""

import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen import builder
from gemmgen.errors import UsageError, quoted
from gemmgen.plan import load
from gemmgen.verification.outcome import Outcome
from gemmgen.verification.pool import Subject, run_compiler, run_properties
from gemmgen.verification.report import Verification, environment

OnDone = Callable[[str], object]


def verify(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    profile: str = "quick",
    only: str | None = None,
    seed: int | None = None,
    cpu: bool = False,
    on_done: OnDone | None = None,
) -> Verification:
    """Check every kernel of the specs whose name matches the pattern `only`.

    A kernel whose file has drifted is neither compiled nor run: what is there is not
    what the spec asks for.
    """
    started = time.monotonic()
    report = builder.check(specs, out)
    subjects = _subjects(specs, report.folder, only)
    tell = _teller(on_done)
    drifted = _drift(report, [one.plan.name for one in subjects])
    sound = [one for one in subjects if drifted[one.plan.name].ok]
    device = "cpu" if cpu or not _has_gpu() else "cuda"
    found = [*drifted.values(), *run_compiler(sound, tell)]
    found += run_properties(sound, device, profile, seed, tell)
    order = {one.plan.name: place for place, one in enumerate(subjects)}
    found.sort(key=lambda outcome: order[outcome.kernel])
    seconds = time.monotonic() - started
    return Verification(tuple(found), environment(device), seconds)


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


def _has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _teller(on_done: OnDone | None) -> Callable[[Outcome], object] | None:
    """The callback of a command, told which check of which kernel is done."""
    if on_done is None:
        return None
    return lambda outcome: on_done(f"{outcome.kernel} {outcome.check}")
