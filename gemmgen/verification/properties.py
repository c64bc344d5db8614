"""Runs all examples of one kernel: fixed ones, refusals, and those Hypothesis draws.

Stops at the first fault, with the smallest example that shows it.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings, target

from gemmgen.plan import Plan
from gemmgen.verification import subject
from gemmgen.verification.cases import (
    Case,
    compiled_cases,
    described,
    interpreted_cases,
)
from gemmgen.verification.examples import Call, Wrong, check_results
from gemmgen.verification.examples import run as run_example
from gemmgen.verification.far import far_calls
from gemmgen.verification.fixed import fixed_cases
from gemmgen.verification.memory import OutOfBounds, Unclean
from gemmgen.verification.profiles import Profile
from gemmgen.verification.refusals import check_refusals
from gemmgen.verification.subject import Variant

_SHRINK_SECONDS = 20.0


class Fault(Exception):
    """Something is wrong: the outcome's status and the whole story."""

    def __init__(self, status: str, story: str) -> None:
        super().__init__(status, story)
        self.status = status
        self.story = story


@dataclass
class Trial:
    """One kernel on one device, and what was found so far.

    `beat` is told every example before it runs, so that a crash has a name. Of so many
    processes that share a kernel's steps, `share` says which this one is.
    """

    plan: Plan
    path: Path
    device: torch.device
    beat: Callable[[str], object]
    share: tuple[int, int] = (0, 1)
    examples: int = 0
    worst: float = 0.0
    module: ModuleType = field(init=False)

    @property
    def launcher(self) -> Callable[..., Any]:
        """The function under test."""
        return subject.launcher(self.plan, self.module)

    def run(self, profile: Profile, number: int) -> None:
        """Try everything; raise `Fault` at the first thing that is wrong."""
        self.module = self.attempt("import", lambda: subject.load(self.path))
        found = self.attempt(
            "tiles", lambda: subject.variants(self.plan, self.module, self.device)
        )
        first, count = self.share
        for step in list(self.steps(found, profile, number))[first::count]:
            step()

    def steps(
        self, found: list[Variant], profile: Profile, number: int
    ) -> Iterator[Callable[[], None]]:
        """What is done for a kernel of these tiles, in independent parts."""
        yield self.refuse
        examples = profile.examples_of(len(found))
        seen = set()
        for position, variant in enumerate(found):
            # In the interpreter tiles of a schedule differ by their sizes alone.
            if variant.schedule not in seen or self.device.type == "cuda":
                seen.add(variant.schedule)
                yield partial(self.forced, variant, self.fixed)
                yield partial(self.forced, variant, self.far_away)
            drawn = partial(
                self.drawn, profile=profile, examples=examples, number=number + position
            )
            yield partial(self.forced, variant, drawn)
        yield partial(self.unforced, found[0])

    def forced(self, variant: Variant, step: Callable[[Variant], None]) -> None:
        """One step with every launch on one tile."""
        with variant.forced(self.module):
            step(variant)

    def attempt(self, name: str, action: Callable[[], Any]) -> Any:
        """Do something; any exception becomes a `Fault` that tells what was tried."""
        self.beat(name)
        try:
            return action()
        except (Wrong, OutOfBounds, Unclean) as wrong:
            raise Fault("failed", f"{wrong}\n{name}") from wrong
        except torch.AcceleratorError as broken:
            raise Fault("crashed", f"{_first_line(broken)}\n{name}") from broken
        except Exception as error:
            story = f"{type(error).__name__}: {_first_line(error)}\n{name}"
            raise Fault("error", story) from error

    def case(self, case: Case, variant: Variant) -> float:
        """Run one example."""
        name = f"{described(self.plan, case)}, {variant.name}"
        size = self.attempt(
            name,
            lambda: run_example(
                self.plan,
                self.launcher,
                case,
                variant.block,
                self.device,
                variant.splits,
            ),
        )
        self.examples += 1
        self.worst = max(self.worst, float(size))
        return float(size)

    def refuse(self) -> None:
        """Calls that must raise ValueError."""
        self.examples += self.attempt(
            "refusals", lambda: check_refusals(self.plan, self.launcher, self.device)
        )

    def fixed(self, variant: Variant) -> None:
        """The examples that are always tried."""
        for case in fixed_cases(self.plan, variant.block):
            self.case(case, variant)

    def far_away(self, variant: Variant) -> None:
        """Offsets beyond 2^31, along every axis of every tensor."""
        try:
            for far in far_calls(self.plan, variant.block, self.device):
                self.attempt(str(far), lambda far=far: self.far(far.call, variant))  # type: ignore[misc]
                self.examples += 1
        except (torch.OutOfMemoryError, OSError):
            return  # a small GPU, or a process so limited, cannot hold such tensors

    def far(self, call: Call, variant: Variant) -> None:
        """One call with large offsets."""
        results = call.of(self.plan, self.launcher)
        check_results(self.plan, call, results, variant.block)

    def unforced(self, variant: Variant) -> None:
        """The module as it is: its own table, or its autotuner's race; bits repeat."""
        block = variant.block
        case = Case((block.m + 1,), block.n + 1, block.k + 1)
        case = next(
            fixed for fixed in fixed_cases(self.plan, block)
            if (fixed.rows, fixed.n, fixed.k) == (case.rows, case.n, case.k)
        )  # fmt: skip
        self.case(case, variant)

    def drawn(
        self, variant: Variant, profile: Profile, examples: int, number: int
    ) -> None:
        """The examples that Hypothesis draws for one tile."""
        phases = [Phase.generate, Phase.shrink]
        phases += [Phase.target] if profile.climbs else []
        cases = interpreted_cases if self.device.type == "cpu" else compiled_cases
        shrinking = _Shrinking()

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @seed(number)
        @given(cases(self.plan, variant.block, variant.described))
        def holds(case: Case) -> None:
            size = shrinking.run(case, lambda: self.case(case, variant))
            if profile.climbs:
                target(min(size, 2.0))

        holds()


class _Shrinking:
    """Ends the search for a smaller example after a while.

    Hypothesis has no such limit: from then on only known failures fail.
    """

    def __init__(self) -> None:
        self.known: dict[Case, Fault] = {}
        self.until = 0.0

    def run(self, case: Case, action: Callable[[], float]) -> float:
        if case in self.known:
            raise self.known[case]
        if self.known and time.monotonic() > self.until:
            return 0.0
        try:
            return action()
        except Fault as fault:
            if not self.known:
                self.until = time.monotonic() + _SHRINK_SECONDS
            self.known[case] = fault
            raise


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0][:300]
