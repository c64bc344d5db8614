"""What Hypothesis draws for one kernel, and how it looks for the smallest failure."""

import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings, target
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

from gemmgen.verification.basics.failure import Fault
from gemmgen.verification.basics.profiles import Profile
from gemmgen.verification.cases.cases import Case

_SHRINK_SECONDS = 20.0


def try_drawn(
    cases: SearchStrategy[Case],
    action: Callable[[Case], float],
    profile: Profile,
    examples: int,
    number: int,
    folder: str,
) -> None:
    """Try so many cases of a seed; `folder` holds those that failed before.

    `action` returns how large an error was; some profiles look for larger ones.
    """
    phases = [Phase.generate, Phase.shrink]
    phases += [Phase.target] if profile.climbs else []
    phases += [Phase.reuse] if profile.remembers else []
    shrinking = _Shrinking()

    @settings(
        max_examples=examples,
        deadline=None,
        database=_remembered(folder) if profile.remembers else None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @seed(number)
    @given(cases)
    def holds(case: Case) -> None:
        size = shrinking.run(case, action)
        if profile.climbs:
            target(min(size, 2.0))

    holds()


def _remembered(folder: str) -> DirectoryBasedExampleDatabase:
    """The examples that failed before, where Hypothesis keeps them by default."""
    return DirectoryBasedExampleDatabase(Path(".hypothesis", "gemmgen", folder))


class _Shrinking:
    """Ends the search for a smaller example after a while.

    Hypothesis has no such limit: from then on only known failures fail.
    """

    def __init__(self) -> None:
        self.known: dict[Case, Fault] = {}
        self.until = 0.0

    def run(self, case: Case, action: Callable[[Case], float]) -> float:
        if case in self.known:
            raise self.known[case]
        if self.known and time.monotonic() > self.until:
            return 0.0
        try:
            return action(case)
        except Fault as fault:
            if not self.known:
                self.until = time.monotonic() + _SHRINK_SECONDS
            self.known[case] = fault
            raise
