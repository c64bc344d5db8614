"""In which order partitions run, and when asynchronous work is done.

All is drawn from a seed, so that a run repeats. A policy is a corner of what hardware
may do, or at random between the corners.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class When(Enum):
    """When asynchronous work is done: at once, as late as can be, or whenever."""

    EARLY = "early"
    LATE = "late"
    ANY = "any"


class First(Enum):
    """Which partition goes on, of those that can."""

    ANY = "any"
    WORKERS = "the last, which loads"
    DEFAULT = "the first, which multiplies"
    SHUFFLED = "by an order that is drawn, so that one starves"


@dataclass(frozen=True)
class Policy:
    """Who goes first, when loads land, and when products and stores read."""

    first: First
    loads: When
    reads: When


POLICIES = (
    Policy(First.ANY, When.ANY, When.LATE),
    Policy(First.WORKERS, When.LATE, When.LATE),
    Policy(First.DEFAULT, When.EARLY, When.LATE),
    Policy(First.SHUFFLED, When.ANY, When.LATE),
    Policy(First.WORKERS, When.EARLY, When.EARLY),
    Policy(First.DEFAULT, When.LATE, When.ANY),
    Policy(First.SHUFFLED, When.LATE, When.EARLY),
)


class Choices:
    """The choices of one run of a program, by a policy."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.policy = policy
        self.random = random.Random(seed)
        self._ranks: dict[int, float] = {}

    def next(self, able: Sequence[int], last: int) -> int:
        """One of the partitions that can go on; the one that ran last may go on."""
        if len(able) == 1:
            return able[0]
        if self.policy.first is First.ANY:
            stays = last in able and self.random.random() < 0.6
            return last if stays else self.random.choice(able)
        return min(able, key=self._rank)

    def _rank(self, partition: int) -> float:
        if self.policy.first is First.SHUFFLED:
            return self._ranks.setdefault(partition, self.random.random())
        return -partition if self.policy.first is First.WORKERS else partition

    def lands_at_once(self) -> bool:
        """Whether a load lands before whoever issued it goes on."""
        return self._now(self.policy.loads)

    def reads_at_once(self) -> bool:
        """Whether a product or a store reads before whoever issued it goes on."""
        return self._now(self.policy.reads)

    def _now(self, when: When) -> bool:
        if when is When.ANY:
            return self.random.random() < 0.3
        return when is When.EARLY

    def landing(self, under_way: int) -> int | None:
        """Which of the loads under way lands now, at a switch; None if none does."""
        if not under_way or self.policy.loads is When.LATE:
            return None
        return (
            self.random.randrange(under_way) if self._now(self.policy.loads) else None
        )
