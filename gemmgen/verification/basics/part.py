"""Which of its steps a process does of a check."""

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

STEP = "GEMMGEN_STEP"
"""The environment variable that holds the number of the step that is done."""
Step = TypeVar("Step")


@dataclass(frozen=True)
class Part:
    """Every so many steps from the `first` on, or those of them that are in `only`."""

    first: int = 0
    every: int = 1
    only: Collection[int] | None = None

    def of(self, steps: Iterable[Step]) -> Iterator[Step]:
        """These steps, each while `STEP` has its number."""
        for number, step in enumerate(steps):
            mine = number % self.every == self.first
            if mine and (self.only is None or number in self.only):
                os.environ[STEP] = str(number)
                yield step


WHOLE = Part()
"""All steps."""
