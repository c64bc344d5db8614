"""What is ordered before what: vector clocks of warps, barriers and asynchronous work.

Two accesses of which neither is known to the other's warps are a race, in whatever
order they happened to run.
"""

from dataclasses import dataclass

Source = tuple[str, int]
"""Who does things in order: a partition, its products or stores, or a barrier."""


@dataclass(frozen=True)
class Moment:
    """The end of something that a source does, counted from 0."""

    source: Source
    count: int


class Clock(dict[Source, int]):
    """The last moment of every source that somebody knows to be over."""

    def learn(self, moment: Moment) -> None:
        """Know that a moment, and all before it of its source, are over."""
        if self.get(moment.source, -1) < moment.count:
            self[moment.source] = moment.count

    def join(self, other: "Clock") -> None:
        """Know all that another does."""
        for source, count in other.items():
            if self.get(source, -1) < count:
                self[source] = count

    def knows(self, moment: Moment) -> bool:
        """Whether a moment is over for sure."""
        return self.get(moment.source, -1) >= moment.count
