"""The workspace in which the parts of K meet, and what orders who uses it.

A part may be read by warps that know it to be there: all threads that kept it have
passed a barrier before one counted it with release, and the reader has counted too,
with acquire, both seen by the whole GPU. In whatever order programs happened to run,
all else is a race.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from gemmgen.verification.interpret import orders
from gemmgen.verification.interpret.memory import Unclean

_UNKEPT, _STORED, _SETTLED, _COUNTED = range(4)
"""What is known of an element: a barrier follows the store, then a count."""
_ORDERED = "ACQUIRE_RELEASE"
"""The order of an atomic that counts what was kept and lets others' be read."""
_SHARED = ("GPU", "SYSTEM")
"""The scopes of an atomic that programs of other SMs see in that order."""


@dataclass
class _Warps:
    """What the warps of a program, or of one of its partitions, have kept."""

    stored: list[Any] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    counted: bool = False


class Workspace:
    """The parts and counts of a launch; `who` names the warps that run."""

    def __init__(self, parts: Tensor, counts: Tensor, who: Callable[[], object]):
        self.who = who
        self.start, self.width = parts.data_ptr(), parts.element_size()
        self.known = np.full(parts.numel(), _UNKEPT, np.int8)
        self.counts = counts
        self.warps: dict[object, _Warps] = {}
        parts.fill_(float("nan"))  # a workspace holds anything

    @property
    def mine(self) -> _Warps:
        """What is known of the warps that run."""
        return self.warps.setdefault(self.who(), _Warps())

    def stores(self, addresses: Any) -> None:
        """Note a store, if it is of a part; nobody may have kept another there."""
        places = self._places(addresses)
        if places is None:
            return
        if (self.known[places] != _UNKEPT).any():
            raise Unclean("a part of K is kept where another was in this launch")
        orders.meet()
        self.known[places] = _STORED
        self.mine.stored.append(places)
        self.mine.counted = False  # of this tile

    def waits(self) -> None:
        """Note a barrier: what its warps stored, all of them have stored now."""
        mine = self.mine
        for places in mine.stored:
            self.known[places] = _SETTLED
        mine.settled += mine.stored
        mine.stored = []

    def counts_with(self, order: str, scope: str) -> None:
        """Note an atomic; released, what has settled may be read by who counts next."""
        orders.meet()
        mine = self.mine
        if order == _ORDERED and scope in _SHARED:
            for places in mine.settled:
                self.known[places] = _COUNTED
            mine.settled = []
            mine.counted = True

    def loads(self, addresses: Any) -> None:
        """Raise `Unclean` for a load of a part that may not be there yet."""
        places = self._places(addresses)
        if places is None:
            return
        if not self.mine.counted or (self.known[places] != _COUNTED).any():
            raise Unclean("a part of K is read that may not be there yet")

    def finish(self) -> None:
        """Raise `Unclean` if the next launch could not use the workspace."""
        if self.counts.any():
            raise Unclean("the counts of the workspace are not zero after the launch")

    def _places(self, addresses: Any) -> Any:
        """Which elements of the parts these are; None if they are of other tensors."""
        offsets = addresses - self.start
        inside = (offsets >= 0) & (offsets < self.known.size * self.width)
        return offsets // self.width if inside.any() and inside.all() else None
