"""Shared memory: blocks, who wrote and reads them, and what orders that.

A block is what an allocation's first index gives; parts of it are watched.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmgen.verification.memory.clocks import Clock, Moment
from gemmgen.verification.memory.misuse import here, misused

_UNKNOWN = 0xFF
"""What bytes hold that nobody wrote, or that are being written: NaN in every type."""


@dataclass(frozen=True)
class Access:
    """A read or write: what does it, from where, and the moment that ends it.

    The asynchronous ones go through a proxy of their own, for which what warps wrote
    must be fenced.
    """

    what: str
    moment: Moment
    asynchronous: bool
    place: str = field(default_factory=here)

    def __str__(self) -> str:
        return f"{self.what} of {self.place}"


Sides = tuple[tuple[int, int], ...]
"""A part of a block: where it begins and ends along each axis."""


@dataclass(eq=False)
class Use:
    """An access to a part of a block; a write may have been fenced."""

    access: Access
    sides: Sides
    fenced: bool = True

    def touches(self, sides: Sides) -> bool:
        """Whether another part has elements of this one."""
        pairs = zip(self.sides, sides, strict=True)
        return all(one[0] < other[1] and other[0] < one[1] for one, other in pairs)

    def lies_in(self, sides: Sides) -> bool:
        """Whether another part has all elements of this one."""
        pairs = zip(self.sides, sides, strict=True)
        return all(other[0] <= one[0] and one[1] <= other[1] for one, other in pairs)


@dataclass(eq=False)
class Block:
    """One block of shared memory, of which parts may be written one by one.

    In a cluster a block is as large as for all CTAs, each of which has `own` of it.
    `each` has the same block of every CTA.
    """

    label: Callable[[], str]
    data: Any
    filled: Any
    own: Sides
    each: list["Block"] = field(default_factory=list)
    writes: list[Use] = field(default_factory=list)
    reads: list[Use] = field(default_factory=list)

    def part(self, sides: Sides) -> Any:
        """What a part holds now."""
        return self.data[_slices(sides)]

    def read(self, access: Access, clock: Clock, sides: Sides) -> None:
        """Note a read; raise `Misuse` unless what is read is there for sure."""
        if not self.filled[_slices(sides)].all():
            raise misused(
                f"{access.what} reads {self.label()}, which nobody has filled"
            )
        for one in self.writes:
            if not one.touches(sides):
                continue
            if not clock.knows(one.access.moment):
                raise misused(
                    f"{access.what} reads {self.label()} while {one.access} may be "
                    "writing it"
                )
            if access.asynchronous and not one.fenced:
                raise misused(
                    f"{access.what} reads {self.label()} before a fence has made "
                    f"{one.access} visible to it"
                )
        # Reads that are over for whoever writes next need not be told apart.
        self.reads = [one for one in self.reads if not clock.knows(one.access.moment)]
        self.reads.append(Use(access, sides))

    def write(self, access: Access, clock: Clock, sides: Sides) -> None:
        """Note a write; raise `Misuse` unless all before it is over for sure."""
        for uses, doing in ((self.writes, "writing"), (self.reads, "reading")):
            for one in uses:
                if one.touches(sides) and not clock.knows(one.access.moment):
                    raise misused(
                        f"{access.what} overwrites {self.label()} while {one.access} "
                        f"may be {doing} it"
                    )
        self.writes = [one for one in self.writes if not one.lies_in(sides)]
        self.writes.append(Use(access, sides, fenced=access.asynchronous))
        self.reads = [one for one in self.reads if not one.touches(sides)]
        self.filled[_slices(sides)] = True

    def fence(self, clock: Clock) -> None:
        """Make what is known to be written visible to asynchronous reads."""
        for one in self.writes:
            one.fenced |= clock.knows(one.access.moment)

    def spoil(self, sides: Sides) -> None:
        """Hold nothing of use in a part, as while it is being written."""
        # NaN in every type; a part need not lie in one piece, so not by its bytes.
        part = self.part(sides)
        part[...] = np.full(part.dtype.itemsize, _UNKNOWN, np.uint8).view(part.dtype)[0]


def _slices(sides: Sides) -> tuple[slice, ...]:
    return tuple(slice(start, end) for start, end in sides)


def lines(box: Any, shape: tuple[int, ...]) -> Any:
    """A box as it lies in memory of shorter rows: a part as wide, then the next."""
    if box.shape == shape:
        return box
    return np.concatenate(np.split(box, box.shape[1] // shape[1], axis=1))


def both(one: Sides, other: Sides) -> Sides:
    """What lies in two parts."""
    return tuple(
        (max(first), max(*first, min(last)))
        for first, last in (
            tuple(zip(*pair, strict=True)) for pair in zip(one, other, strict=True)
        )
    )


def new_block(
    label: Callable[[], str], shape: tuple[int, ...], kind: Any, own: Sides
) -> Block:
    """A block of which nothing is known."""
    block = Block(label, np.empty(shape, kind), np.zeros(shape, bool), own)
    block.spoil(tuple((0, size) for size in shape))
    return block
