"""What a verification came to: outcomes with the environment, as text or JSON."""

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gemmgen.base.text_table import table
from gemmgen.render.names.parts import RUNTIME, home
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.mutate.selftest import Kill, kill_table
from gemmgen.verification.sanitize.tools import TOOLS

_MOST_NOTES = 3
"""Of a check, in text."""


@dataclass(frozen=True)
class Verification:
    """Every outcome of a run, in the order of the specs' kernels and of the checks.

    `more` says what to run to see more.
    """

    outcomes: tuple[Outcome, ...]
    environment: dict[str, str]
    seconds: float
    kills: tuple[Kill, ...] = ()
    more: str = ""

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The outcomes that are not `passed`."""
        return tuple(outcome for outcome in self.outcomes if not outcome.ok)

    @property
    def ok(self) -> bool:
        """Whether every check of every kernel passed."""
        return not self.failures

    def as_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "environment": self.environment,
            "seconds": round(self.seconds, 1),
            "outcomes": [
                {**asdict(outcome), "compiled_only": outcome.compiled_only}
                for outcome in self.outcomes
            ],
            "mutants": [asdict(kill) for kill in self.kills],
        }

    def as_text(self) -> str:
        """A row a kernel, failures, notes, the sum, what did not run, and what next."""
        names = list(dict.fromkeys(outcome.kernel for outcome in self.outcomes))
        rows = [
            _row(name, [outcome for outcome in self.outcomes if outcome.kernel == name])
            for name in names
        ]
        failures = [
            f"{outcome.kernel}: {outcome.check} on {outcome.device} "
            f"{outcome.status}\n{outcome.detail}"
            for outcome in self.failures
        ]
        kills = [table(kill_table(self.kills))] if self.kills else []
        parts = [table(rows), *kills, *failures, *self._notes()]
        kernels = [name for name in names if home(name) != RUNTIME]
        last = "\n".join([self._sum(len(kernels)), *self._limits()])
        return "\n\n".join([*parts, last])

    def _notes(self) -> list[str]:
        """What is no fault, some lines a check; the same of several kernels once."""
        told: dict[tuple[str, str], list[str]] = {}
        for outcome in self.outcomes:
            own = outcome.kernel
            for note in outcome.notes[:_MOST_NOTES]:
                told.setdefault((note, ""), []).append(own)
            if (more := len(outcome.notes) - _MOST_NOTES) > 0:
                said = f"and {more} more such tiles, with --format json"
                told[said, own] = [own]
        lines = [f"{_named(kernels)}: {note}" for (note, _), kernels in told.items()]
        return ["\n".join(["no faults, but worth a note:", *lines])] if lines else []

    def _limits(self) -> Iterator[str]:
        """What no kernel's row tells: how far the run went, and how to go on."""
        if any(outcome.device == "cpu" for outcome in self.outcomes):
            yield (
                "no GPU: kernels were interpreted, their machine code did not run; "
                "races and the limits of hardware show there alone"
            )
        if self.more and self.ok:
            yield self.more

    def _sum(self, kernels: int) -> str:
        failed = {outcome.kernel for outcome in self.failures}
        facts = ", ".join(f"{key} {value}" for key, value in self.environment.items())
        shared = {name for name in failed if home(name) == RUNTIME}
        verdict = f"{len(failed - shared)} of {kernels} kernels failed"
        if shared:
            verdict += f", and {', '.join(sorted(shared))}"
        verdict = verdict if failed else "all passed"
        counted = f"{kernels} kernel{'s' * (kernels != 1)}"
        return f"{counted}, {verdict}, {self.seconds:.0f} s ({facts})"

    def as_junit(self) -> str:
        """The run as JUnit XML, a test case a check."""
        suite = Element("testsuite", name="gemmgen verify")
        suite.set("tests", str(len(self.outcomes)))
        suite.set("time", f"{self.seconds:.3f}")
        suite.extend(_junit_case(outcome) for outcome in self.outcomes)
        indent(suite)
        return tostring(suite, encoding="unicode", xml_declaration=True) + "\n"

    def as_markdown(self) -> str:
        """The table for a report that is kept."""
        facts = ", ".join(f"{key} {value}" for key, value in self.environment.items())
        examples = sum(
            outcome.examples
            for outcome in self.outcomes
            if outcome.check == "properties"
        )
        lines = [
            f"{facts}; {examples} examples, {len(self.failures)} failures",
            "",
            "| kernel | check | device | status | examples | worst error / bound | s "
            "| sizes up to | only compiled |",
            f"|{' --- |' * 9}",
        ]
        lines += map(_outcome_row, self.outcomes)
        rows = kill_table(self.kills)
        if rows:
            lines += ["", _markdown_row(rows[0]), _markdown_row(["---"] * len(rows[0]))]
            lines += [_markdown_row(row.values()) for row in rows]
        return "\n".join(lines) + "\n"


def _outcome_row(outcome: Outcome) -> str:
    """A row of the table of a report."""
    cells = (
        outcome.kernel,
        outcome.check,
        outcome.device,
        _told(outcome),
        _count(outcome) if outcome.examples else "",
        f"{outcome.worst:.3f}" if outcome.worst else "",
        f"{outcome.seconds:.1f}",
        "x".join(map(str, outcome.largest)),
        ", ".join(outcome.compiled_only),
    )
    return f"| {' | '.join(cells)} |"


def _told(outcome: Outcome) -> str:
    """The status, and what was set aside of a check that passed."""
    aside = f", {outcome.detail}" if outcome.ok and outcome.detail else ""
    return outcome.status + aside


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _junit_case(outcome: Outcome) -> Element:
    """One check as a test case; what crashed or hung is an error, no failure."""
    case = Element("testcase", name=outcome.check, classname=outcome.kernel)
    case.set("time", f"{outcome.seconds:.3f}")
    if not outcome.ok:
        kind = "failure" if outcome.status == "failed" else "error"
        SubElement(case, kind, message=outcome.status).text = outcome.detail
    return case


def _named(kernels: Sequence[str]) -> str:
    """Some kernels, by the name of the first."""
    others = len(kernels) - 1
    return f"{kernels[0]} and {others} more" if others else kernels[0]


def _row(kernel: str, outcomes: Sequence[Outcome]) -> dict[str, str]:
    """One kernel: a column a check."""
    row = {"kernel": kernel}
    for outcome in outcomes:
        label = (
            outcome.check
            if outcome.device == "none"
            else f"{outcome.check} ({outcome.device})"
        )
        row[label] = _cell(outcome) if outcome.ok else outcome.status
        if outcome.schedules:
            row["sizes up to"] = "x".join(map(str, outcome.largest))
            row["only compiled"] = ", ".join(outcome.compiled_only) or "none"
    return row


def _count(outcome: Outcome) -> str:
    """How many examples, and of how many if they are not all."""
    some = outcome.examples < outcome.out_of
    return f"{outcome.examples}{f' of {outcome.out_of}' if some else ''}"


def _cell(outcome: Outcome) -> str:
    """What a check that passed has looked at."""
    if outcome.check == "compiled":
        return f"{_count(outcome)} tiles"
    if outcome.check == "launches":
        return f"{outcome.examples} launches"
    if outcome.check == "self-test":
        return f"{outcome.examples} mutants"
    if outcome.check in TOOLS:
        return f"{outcome.examples} calls, {outcome.detail or 'no finding'}"
    if outcome.check == "properties":
        return f"{outcome.examples} examples, worst {outcome.worst:.2f} of the bound"
    return outcome.status


def environment(device: str) -> dict[str, str]:
    """What the outcomes hold for; asks torch only for the name of a GPU."""
    facts = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": device,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "triton", "numpy", "hypothesis")},
    }
    if device == "cuda":
        import torch

        facts["device"] = torch.cuda.get_device_name()
    return facts
