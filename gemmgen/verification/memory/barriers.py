"""Barriers in shared memory: phases, arrivals, bytes that are still to come.

As PTX has them (mbarrier): a wait names the parity of a phase and passes once that
phase, or the one before the current one of this parity, is complete.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from gemmgen.verification.memory.clocks import Clock, Moment
from gemmgen.verification.memory.misuse import misused


@dataclass
class Barrier:
    """One barrier; `phase` counts those that are complete.

    At one that CTAs have in common all `arrive_from` so many, and the first waits.
    `each` has the same barrier of every CTA.
    """

    number: int
    label: Callable[[], str]
    arrive_from: int = 1
    each: list["Barrier"] = field(default_factory=list)
    count: int = 0
    phase: int = 0
    missing: int = 0
    bytes: int = 0
    arriving: Clock = field(default_factory=Clock)
    clock: Clock = field(default_factory=Clock)
    seen: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> Moment:
        """The end of the current phase."""
        return Moment(("barrier", self.number), self.phase)

    def init(self, count: int) -> None:
        """Expect so many arrivals a phase."""
        if self.count:
            raise misused(f"{self.label()} is initialized twice")
        if count < 1:
            raise misused(f"{self.label()} is initialized for {count} arrivals")
        self.count = self.missing = count * self.arrive_from

    def required(self) -> None:
        """Raise `Misuse` if nobody initialized it."""
        if not self.count:
            raise misused(f"{self.label()} is used before it is initialized")

    def arrive(self, clock: Clock, count: int = 1) -> None:
        """Count arrivals of somebody who knows that much."""
        self.required()
        if count > self.missing:
            raise misused(
                f"{self.label()} gets more than its {self.count} arrivals in phase "
                f"{self.phase}"
            )
        self.arriving.join(clock)
        self.missing -= count
        self._complete()

    def expect(self, clock: Clock, size: int) -> None:
        """Count one arrival, and wait for so many bytes more."""
        self.required()
        self.bytes += size
        self.arrive(clock)

    def land(self, size: int, phase: int) -> None:
        """Count bytes that were asked for in a phase."""
        if phase != self.phase:
            raise misused(
                f"bytes arrive at {self.label()} in phase {self.phase} that were asked "
                f"for in phase {phase}: it expects fewer than are loaded"
            )
        self.bytes -= size
        self._complete()

    def passes(self, parity: int) -> bool:
        """Whether a wait for this parity goes on now."""
        return self.phase & 1 != parity

    def passed(self, partition: int, clock: Clock, since: int) -> None:
        """A partition goes on that waited since a phase; it knows what is complete."""
        last = self.phase - 1
        if last > since:
            raise misused(
                f"a wait for {self.label()} since phase {since} goes on after phase "
                f"{last}: it has missed what it waited for"
            )
        if self.seen.get(partition) == last:
            raise misused(
                f"a wait for {self.label()} passes on phase {last}, which it has "
                "waited for before: the wrong phase"
            )
        self.seen[partition] = last
        clock.join(self.clock)

    def _complete(self) -> None:
        if self.missing:
            return
        if self.bytes < 0:
            raise misused(
                f"{self.label()} gets {-self.bytes} bytes more than it expects in "
                f"phase {self.phase}"
            )
        if self.bytes:
            return
        self.arriving.learn(self.end)
        self.clock.join(self.arriving)
        self.phase += 1
        self.missing = self.count

    @property
    def state(self) -> str:
        """What is missing for the current phase."""
        arrived = f"{self.count - self.missing} of {self.count} arrivals"
        told = f"phase {self.phase} has {arrived}"
        return f"{told}, {self.bytes} bytes to come" if self.bytes else told

    def finish(self) -> None:
        """Raise `Misuse` if a phase was begun that nobody can end any more."""
        if self.count and (self.missing != self.count or self.bytes):
            raise misused(
                f"the kernel ends, and {self.label()} is left over: {self.state}"
            )
