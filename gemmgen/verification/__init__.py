"""`gemmgen verify`: drift, compilation for every target, properties against torch.

Decides what is checked and in what order; the checks are the modules beside this one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen.base.errors import Interrupted, UsageError, quoted
from gemmgen.output import builder
from gemmgen.output.folder import PACKAGE, SHARED
from gemmgen.output.job import output_folder
from gemmgen.render.names.parts import file_of
from gemmgen.select.plan import load
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.mutate.selftest import Kill
from gemmgen.verification.mutate.selftest import self_test as own_test
from gemmgen.verification.report import Verification, environment
from gemmgen.verification.run.pool import Ready, run_checks
from gemmgen.verification.run.process import Subject
from gemmgen.verification.sanitize import sanitizer, tools

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

    What has drifted is not run. With `self_test` mutants follow, also of the modules of
    such names that launchers share; with `sanitize` all but drift is compute-sanitizer.
    Raises `Interrupted` with the checks that had ended, `UsageError` if none is built.
    """
    _require_built(specs, out)
    started = time.monotonic()
    with Ready(0 if sanitize else None) as ready, ThreadPoolExecutor(1) as beside:
        checked = beside.submit(builder.check, specs, out, only=only)
        device = _device(cpu, sanitize)  # takes as long as a check where torch is asked
        report = checked.result()
        shared = [name for name in SHARED if self_test and _is_named(name, only)]
        subjects = _subjects(specs, report.folder, only, bool(shared))
        drifted = _drift(report, {one.plan.name: one.plan.folder for one in subjects})
        facts = beside.submit(_facts, device, sanitize)
        run = _Run(drifted, facts, started, on_done)
        run.more = _more(specs, device, profile, self_test)
        sound = [subject for subject in subjects if drifted[subject.plan.name].ok]
        try:
            if sanitize:
                return run.result(sanitizer.sanitize(sound, device, run.tell))
            found = run_checks(sound, device, profile, seed, run.tell, ready)
            given = (sound if self_test else [], device, profile, seed, run.pass_on)
            own, kills = own_test(*given, shared, run.judged)
            return run.result([*found, *own], kills)
        except KeyboardInterrupt as stop:
            raise Interrupted(run.so_far()) from stop


@dataclass
class _Run:
    """What is known of a run from its start, and the checks that have ended."""

    drifted: Mapping[str, Outcome]
    facts: Future[dict[str, str]]
    started: float
    on_done: OnDone | None
    more: str = ""
    ended: list[Outcome] = field(default_factory=list)
    kills: tuple[Kill, ...] = ()

    def tell(self, outcome: Outcome) -> None:
        """Keep what has ended, and pass it on."""
        self.ended.append(outcome)
        self.pass_on(outcome)

    def judged(self, outcome: Outcome, kills: Sequence[Kill]) -> None:
        """Keep what became of a module's mutants."""
        self.ended.append(outcome)
        self.kills += tuple(kills)

    def pass_on(self, outcome: Outcome) -> None:
        """Tell a command which check of which kernel is done."""
        if self.on_done is not None:
            self.on_done(f"{outcome.kernel} {outcome.check}")

    def result(
        self, found: Sequence[Outcome], kills: tuple[Kill, ...] = ()
    ) -> Verification:
        """All outcomes in the order of the kernels, then those of shared modules."""
        order = {name: place for place, name in enumerate(self.drifted)}
        every = [*self.drifted.values(), *found]
        every.sort(key=lambda outcome: order.get(outcome.kernel, len(order)))
        seconds = time.monotonic() - self.started
        facts = self.facts.result()
        return Verification(tuple(every), facts, seconds, kills, self.more)

    def so_far(self) -> Verification:
        """The same of a run that was interrupted."""
        self.facts.result()["interrupted"] = "the checks that had ended"
        return self.result(self.ended, self.kills)


def _require_built(specs: Sequence[Path], out: Path | None) -> None:
    """Say at once, and once, that there is nothing to verify yet."""
    folder = output_folder(specs, out) if specs else None
    if folder is not None and not (folder / PACKAGE).exists():
        command = " ".join(["gemmgen build", *map(str, specs)])
        command += f" -o {out}" if out is not None else ""
        raise UsageError(f"{folder} has no kernels yet: run `{command}` first")


def _more(specs: Sequence[Path], device: str, profile: str, self_test: bool) -> str:
    """The command with what this run has left out."""
    further = [] if self_test else ["--self-test (faults are planted and found)"]
    if profile != "deep":
        further.append("--profile deep (more examples)")
    further.append("on a GPU " + "without --cpu, " * (device == "cpu") + "--sanitize")
    command = " ".join(["gemmgen verify", *map(str, specs)])
    return f"to see more: {command} with {', or '.join(further)}"


def _subjects(
    specs: Sequence[Path], folder: Path, only: str | None, none: bool
) -> list[Subject]:
    """The kernels that are asked for; `none` may be."""
    subjects = [
        Subject(plan, folder / file_of(plan), str(spec))
        for spec in specs
        for plan in load(spec)
        if _is_named(plan.name, only)
    ]
    if not subjects and not none:
        raise UsageError(f"no kernel has a name like {quoted(only or '*')}")
    return subjects


def _is_named(name: str, only: str | None) -> bool:
    """Whether a kernel or a module is among those that are asked for."""
    return only is None or fnmatchcase(name, only)


def _drift(report: builder.Report, kernels: Mapping[str, str]) -> dict[str, Outcome]:
    """An outcome a kernel, by its folder; what is nobody's own is everyone's."""
    outcomes = {}
    for kernel, folder in kernels.items():
        own = [
            place
            for place in report.places
            if f"{folder}/".startswith(f"{place.name}/")
            or place.name.rpartition("/")[0] == folder
        ]
        shared = [place for place in report.places if place.name.startswith("_")]
        lines = [
            f"{report.folder / one.name}: {one.state.value}" for one in (*own, *shared)
        ]
        detail = "\n".join(lines)
        status = "failed" if lines else "passed"
        outcomes[kernel] = Outcome(kernel, "drift", "none", status, detail)
    return outcomes


def _device(cpu: bool, sanitize: bool) -> str:
    device = "cpu" if cpu or not _has_gpu() else "cuda"
    if sanitize:
        tools.require(device)
    return device


def _has_gpu() -> bool:
    import torch  # takes seconds, and `--cpu` needs it in other processes alone

    return bool(torch.cuda.is_available())


def _facts(device: str, sanitize: bool) -> dict[str, str]:
    """What runs, and of the sanitizers which do not since Triton lacks them."""
    lacking = tools.lacking() if sanitize else {}
    why = "; ".join(f"{tool}: {reason}" for tool, reason in lacking.items())
    return environment(device) | ({"not run": why} if why else {})
