"""`verify --self-test`: every mutant of every kernel must fail, and of what they share.

What survives without being listed as equivalent is a hole in the verification.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from gemmgen.output.alone import shared_texts, write
from gemmgen.render.names.parts import RUNTIME, file_of, stems
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.basics.part import WHOLE
from gemmgen.verification.mutate.host_mutants import device_mutants, host_mutants
from gemmgen.verification.mutate.mutants import Mutant, mutants
from gemmgen.verification.mutate.reach import (
    Attempt,
    Reached,
    coming_to,
    lines_reached,
    most_first,
    noted,
)
from gemmgen.verification.mutate.shared_trial import (
    callers_of,
    trial_plans,
    written,
)
from gemmgen.verification.run.pool import run_launches, run_properties
from gemmgen.verification.run.process import Subject

OnDone = Callable[[Outcome], object]
OnJudged = Callable[[Outcome, Sequence["Kill"]], object]
_CHECKS = ("launches", "properties")
_OF_LAUNCHES = "ci"
"""Whatever the profile: in fewer calls some faults are found by some seeds alone."""


@dataclass(frozen=True)
class Kill:
    """What became of one mutant: how it was found out, empty if it was not."""

    kernel: str
    mutant: str
    family: str
    found: str
    equivalent: str
    reached: bool = True
    """Whether any check comes to where it is."""

    @property
    def survived(self) -> bool:
        """Whether nothing told it from the kernel although something should."""
        return not self.found and not self.equivalent


@dataclass(frozen=True)
class _Trial:
    """A mutant of a module, and what may find it out, in order.

    Each is a check and what writes its subject, which few of those that come later do.
    """

    module: str
    mutant: Mutant
    checks: tuple[tuple[str, Callable[[], Subject]], ...]

    def kill(self, found: str) -> Kill:
        """What became of it."""
        mutant = self.mutant
        same, reached = mutant.equivalent or "", bool(self.checks)
        return Kill(self.module, mutant.name, mutant.family, found, same, reached)


def self_test(
    subjects: Sequence[Subject],
    device: str,
    profile: str,
    seed: int | None,
    on_done: OnDone | None,
    shared: Collection[str],
    on_judged: OnJudged = lambda outcome, kills: None,
) -> tuple[list[Outcome], tuple[Kill, ...]]:
    """Verify the mutants of every kernel, and of such modules that launchers share.

    Returns an outcome a module and what became of every mutant; `on_judged` is told
    each module as soon as all of its mutants are.
    """
    verified = {
        "properties": partial(
            run_properties, device=device, profile=profile, seed=seed, on_done=on_done
        ),
        "launches": partial(
            run_launches, profile=_OF_LAUNCHES, seed=seed, on_done=on_done
        ),
    }
    with tempfile.TemporaryDirectory(prefix="gemmgen-mutants-") as name:
        folder, ill = Path(name), list[Outcome]()
        trials = list(_of_kernels(folder / "kernels", subjects))
        if shared:
            ill, reach = _healthy(folder / "healthy", verified)
        if shared and not ill:
            texts = {
                name: text for name, text in shared_texts().items() if name in shared
            }
            trials += _of_shared(folder / "shared", texts, reach)
        outcomes, known = [*ill], list[Kill]()
        for kills, seconds in _found_out(trials, verified):
            outcomes.append(replace(_judged(kills, device), seconds=seconds))
            known += kills
            on_judged(outcomes[-1], kills)
    return outcomes, tuple(known)


def _of_kernels(folder: Path, subjects: Sequence[Subject]) -> Iterator[_Trial]:
    """The mutants of each kernel's module: of the kernel, then of its launcher."""
    for subject in subjects:
        for stem in stems(subject.plan):
            yield from _of_file(folder / stem, subject, stem)


def _of_file(folder: Path, subject: Subject, stem: str) -> Iterator[_Trial]:
    """The mutants of one of a kernel's files."""
    source, seen = _text(subject, file_of(subject.plan, stem)), set()
    for index, mutant in enumerate(mutants(subject.plan, stem, source)):
        seen.add(mutant.source)
        make = partial(_changed, folder / str(index), subject, stem, mutant)
        checks = tuple((check, make) for check in _checks_of(mutant))
        yield _Trial(subject.plan.name, mutant, checks)
    for index, mutant in enumerate(host_mutants(f"{stem}.py", source)):
        if mutant.source not in seen:
            make = partial(_changed, folder / f"host{index}", subject, stem, mutant)
            checks = tuple((check, make) for check in _checks_of(mutant))
            yield _Trial(subject.plan.name, mutant, checks)


def _checks_of(mutant: Mutant) -> Sequence[str]:
    """What may find a mutant of a kernel's file: a kernel's own is launched as ever."""
    return _CHECKS[::-1] if mutant.file is None else ("properties",)


def _text(subject: Subject, name: str) -> str:
    """What a file holds that lies in the subject's output folder."""
    return (subject.folder / name).read_text(encoding="utf-8")


def _changed(folder: Path, subject: Subject, stem: str, mutant: Mutant) -> Subject:
    """The kernel with the mutant's file, in a folder of its own."""
    plan, own = subject.plan, folder / subject.plan.name
    texts = {
        one.relative_to(subject.folder).as_posix(): one.read_text(encoding="utf-8")
        for name in (plan.folder, RUNTIME)
        for one in (subject.folder / name).rglob("*.py")  # its backward's kernels too
    }
    write(own, {**texts, file_of(plan, stem): mutant.source})
    return Subject(plan, own / file_of(plan), subject.spec, file=mutant.file)


def _of_shared(
    folder: Path, texts: Mapping[str, str], reach: Mapping[str, Reached]
) -> Iterator[_Trial]:
    """The mutants of each of these shared modules, tried by kernels of their own."""
    yield from _of_device(folder / "device", texts)
    plans = {plan.name: plan for plan in trial_plans()}
    for name, text in texts.items():
        for index, mutant in enumerate(host_mutants(name, text)):
            own, changed = folder / f"{name}{index}", {name: mutant.source}
            checks = [
                (check, partial(written, own / kernel, plans[kernel], changed, part))
                for (check, kernel), part in coming_to(mutant.place, reach[name])
            ]
            yield _Trial(name, mutant, tuple(checks))


def _of_device(folder: Path, texts: Mapping[str, str]) -> Iterator[_Trial]:
    """Those of functions of the device, tried by kernels that call the function."""
    first = trial_plans()[0]
    for name, text in texts.items():
        for index, (function, mutant) in enumerate(device_mutants(first, name, text)):
            own, changed = folder / f"{name}{index}", {name: mutant.source}
            checks = [
                (
                    "properties",
                    partial(written, own / plan.name, plan, changed, WHOLE, file),
                )
                for plan, file in callers_of(name, function)
            ]
            yield _Trial(name, mutant, tuple(checks))


def _healthy(
    folder: Path, verified: Mapping[str, Callable[..., list[Outcome]]]
) -> tuple[list[Outcome], dict[str, Reached]]:
    """What fails of the kernels by which shared modules are tried, unchanged.

    And to which statements of these modules each check of each kernel comes.
    """
    changed = {name: noted(text) for name, text in shared_texts().items()}
    found: dict[Attempt, Path] = {}
    ill: list[Outcome] = []
    for check in _CHECKS:
        subjects = [
            written(folder / check / plan.name, plan, changed) for plan in trial_plans()
        ]
        found |= {(check, one.plan.name): one.folder for one in subjects}
        ill += [
            replace(one, kernel=RUNTIME, check="self-test")
            for one in verified[check](subjects)
            if not one.ok
        ]
    reach = {
        name: {one: lines_reached(own, name) for one, own in found.items()}
        for name in changed
    }
    return ill, {name: most_first(own) for name, own in reach.items()}


def _found_out(
    trials: Sequence[_Trial],
    verified: Mapping[str, Callable[..., list[Outcome]]],
) -> Iterator[tuple[list[Kill], float]]:
    """What became of each module's mutants, and in how many seconds, as it is known."""
    found = [""] * len(trials)
    seconds = {one.module: 0.0 for one in trials}
    left = list(seconds)
    tried = [at for at, one in enumerate(trials) if not one.mutant.equivalent]
    for turn in count():
        tried = [at for at in tried if not found[at] and turn < len(trials[at].checks)]
        going_on = {trials[at].module for at in tried}
        for module in [one for one in left if one not in going_on]:
            left.remove(module)
            own = [
                one.kill(how)
                for one, how in zip(trials, found, strict=True)
                if one.module == module
            ]
            yield own, seconds[module]
        if not tried:
            return
        for check in _CHECKS:
            now = [at for at in tried if trials[at].checks[turn][0] == check]
            outcomes = verified[check]([trials[at].checks[turn][1]() for at in now])
            for at, outcome in zip(now, outcomes, strict=True):
                seconds[trials[at].module] += outcome.seconds
                found[at] = "" if outcome.ok else outcome.status


def _judged(kills: Sequence[Kill], device: str) -> Outcome:
    """What the mutants of one module say of its verification."""
    survivors = [
        f"survived: {kill.mutant}" + ", where no check comes" * (not kill.reached)
        for kill in kills
        if kill.survived
    ]
    detail = "\n".join(survivors)
    status = "failed" if survivors else "passed"
    return Outcome(kills[0].kernel, "self-test", device, status, detail, len(kills))


def kill_table(kills: Sequence[Kill]) -> list[dict[str, str]]:
    """A row a family of faults: how many were made, killed, equivalent, alive."""
    rows = []
    for family in dict.fromkeys(kill.family for kill in kills):
        own = [kill for kill in kills if kill.family == family]
        reasons = {kill.equivalent for kill in own if kill.equivalent}
        rows.append(
            {
                "fault": family,
                "mutants": str(len(own)),
                "killed": str(sum(bool(kill.found) for kill in own)),
                "survived": str(sum(kill.survived for kill in own)),
                "equivalent because": "; ".join(sorted(reasons)),
            }
        )
    return rows
