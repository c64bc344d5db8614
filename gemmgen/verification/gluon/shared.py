"""Shared memory: blocks, who wrote and reads them, and what orders that.

A block is what an allocation's first index gives; it is watched as a whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmgen.verification.gluon.clocks import Clock, Moment
from gemmgen.verification.gluon.misuse import here, misused

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


@dataclass(eq=False)
class Block:
    """One block of shared memory."""

    label: Callable[[], str]
    data: Any
    written: Access | None = None
    fenced: bool = True
    reads: list[Access] = field(default_factory=list)

    def read(self, access: Access, clock: Clock) -> None:
        """Note a read; raise `Misuse` unless what is read is there for sure."""
        if self.written is None:
            raise misused(
                f"{access.what} reads {self.label()}, which nobody has filled"
            )
        if not clock.knows(self.written.moment):
            raise misused(
                f"{access.what} reads {self.label()} while {self.written} may be "
                "writing it"
            )
        if access.asynchronous and not self.fenced:
            raise misused(
                f"{access.what} reads {self.label()} before a fence has made "
                f"{self.written} visible to it"
            )
        # Reads that are over for whoever writes next need not be told apart.
        self.reads = [one for one in self.reads if not clock.knows(one.moment)]
        self.reads.append(access)

    def write(self, access: Access, clock: Clock) -> None:
        """Note a write; raise `Misuse` unless all before it is over for sure."""
        for one in (self.written, *self.reads):
            if one is not None and not clock.knows(one.moment):
                doing = "writing" if one is self.written else "reading"
                raise misused(
                    f"{access.what} overwrites {self.label()} while {one} may be "
                    f"{doing} it"
                )
        self.written, self.reads = access, []
        self.fenced = access.asynchronous

    def spoil(self) -> None:
        """Hold nothing of use, as while it is being written."""
        self.data.view(np.uint8)[...] = _UNKNOWN


def new_block(label: Callable[[], str], shape: tuple[int, ...], kind: Any) -> Block:
    """A block of which nothing is known."""
    block = Block(label, np.empty(shape, kind))
    block.spoil()
    return block
