"""`verify --self-test`: every mutant of every kernel must fail its properties.

What survives without being listed as equivalent is a hole in the verification.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from gemmgen.folder import SHARED
from gemmgen.verification.mutants import Mutant, mutants
from gemmgen.verification.outcome import Outcome
from gemmgen.verification.pool import run_properties
from gemmgen.verification.process import Subject


@dataclass(frozen=True)
class Kill:
    """What became of one mutant: how it was found out, empty if it was not."""

    kernel: str
    mutant: str
    family: str
    found: str
    equivalent: str

    @property
    def survived(self) -> bool:
        """Whether nothing told it from the kernel although something should."""
        return not self.found and not self.equivalent


def self_test(
    subjects: Sequence[Subject],
    device: str,
    profile: str,
    seed: int | None,
    on_done: Callable[[Outcome], object] | None,
) -> tuple[list[Outcome], tuple[Kill, ...]]:
    """Verify the mutants of every kernel; an outcome a kernel and the kill table."""
    with tempfile.TemporaryDirectory(prefix="gemmgen-mutants-") as folder:
        made = [
            (_written(Path(folder) / str(index), subject, mutant), mutant)
            for subject in subjects
            for index, mutant in enumerate(
                mutants(subject.plan, subject.path.read_text(encoding="utf-8"))
            )
        ]
        tried = [one for one in made if not one[1].excuse(device)]
        faulty = [subject for subject, _ in tried]
        outcomes = run_properties(faulty, device, profile, seed, on_done)
    found = {
        subject.path: "" if outcome.ok else outcome.status
        for (subject, _), outcome in zip(tried, outcomes, strict=True)
    }
    kills = tuple(
        Kill(
            subject.plan.name,
            mutant.name,
            mutant.family,
            found.get(subject.path, ""),
            mutant.excuse(device),
        )
        for subject, mutant in made
    )
    times = {subject.plan.name: 0.0 for subject in subjects}
    for outcome in outcomes:
        times[outcome.kernel] += outcome.seconds
    grouped = groupby(kills, key=lambda kill: kill.kernel)
    return [
        _judged(name, list(own), device, times[name]) for name, own in grouped
    ], kills


def _written(folder: Path, subject: Subject, mutant: Mutant) -> Subject:
    """The mutant's module in a folder of its own, beside the support module."""
    own = folder / subject.plan.name
    own.mkdir(parents=True)
    for name in SHARED:
        shutil.copy(subject.path.with_name(name), own)
    path = own / subject.path.name
    path.write_text(mutant.source, encoding="utf-8")
    return Subject(subject.plan, path, subject.spec, schedule=mutant.schedule)


def _judged(kernel: str, kills: list[Kill], device: str, seconds: float) -> Outcome:
    survivors = [kill.mutant for kill in kills if kill.survived]
    detail = "\n".join(f"survived: {name}" for name in survivors)
    status = "failed" if survivors else "passed"
    return Outcome(
        kernel, "self-test", device, status, detail, len(kills), seconds=seconds
    )


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
