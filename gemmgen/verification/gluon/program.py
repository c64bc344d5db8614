"""One program of a grid: its shared memory, its barriers, and the loads under way.

A program may be a cluster of CTAs: partitions of each run side by side, with shared
memory and barriers of their own.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmgen.verification.gluon.descriptors import Descriptor
from gemmgen.verification.gluon.partitions import Partition, Turns
from gemmgen.verification.gluon.policies import Choices
from gemmgen.verification.memory.barriers import Barrier
from gemmgen.verification.memory.clocks import Clock
from gemmgen.verification.memory.misuse import misused
from gemmgen.verification.memory.shared import Block, Sides, lines


@dataclass(frozen=True)
class Load:
    """A box on its way to shared memory, and the phase in which it was asked for."""

    descriptor: Descriptor
    corner: list[int]
    shape: tuple[int, ...]
    block: Block
    sides: Sides
    barrier: Barrier
    phase: int

    def land(self) -> None:
        """Arrive, and tell the barrier."""
        place = self.block.part(self.sides)
        box = self.descriptor.load(self.corner, self.shape)
        place[...] = lines(box, place.shape)
        self.barrier.land(place.nbytes, self.phase)


class Program:
    """What the language's functions need to know of the program that runs."""

    def __init__(self, choices: Choices, warps: int, ctas: int = 1) -> None:
        self.choices = choices
        self.ctas = ctas
        self.kernel = Partition(0, "the kernel", warps, Clock())
        self.blocks: list[Block] = []
        self.rings: list[Any] = []
        self.barriers: list[Barrier] = []
        self.loads: list[Load] = []
        self.steps: list[str] = []
        self.copies: deque[list[Any]] = deque()
        self.copies_in_no_group: list[Any] = []
        self.turns: Turns | None = None
        self.names: Callable[[Any], str] = lambda _: "shared memory"

    @property
    def me(self) -> Partition:
        """The partition that runs now."""
        return self.turns.running if self.turns else self.kernel

    def pause(self) -> None:
        """Let other partitions run, if there are any."""
        if self.turns:
            self.turns.pause()

    def fork(
        self,
        names: Sequence[str],
        warps: Sequence[int],
        bodies: Sequence[Callable[[], Any]],
    ) -> None:
        """Run partitions of every CTA to their ends; what they do is known then."""
        if self.turns:
            raise misused("warp_specialize within warp_specialize")
        parts = [
            Partition(
                cta * len(names) + number,
                name + self.whose(cta),
                each,
                self.kernel.clock,
                cta,
            )
            for cta in range(self.ctas)
            for number, (name, each) in enumerate(zip(names, warps, strict=True))
        ]
        self.turns = Turns(parts, self.choices, partial(self._land, None), self._idle)
        self.turns.run([partial(self._to_its_end, body) for body in bodies] * self.ctas)
        self.turns = None
        for one in parts:
            self.kernel.clock.join(one.clock)

    def whose(self, cta: int) -> str:
        """Of which CTA something is, in a cluster."""
        return f" of CTA {cta}" if self.ctas > 1 else ""

    def _to_its_end(self, body: Callable[[], Any]) -> None:
        body()
        if self.me.products:
            raise misused(f"{self.me.name} ends before its products are waited for")
        if self.me.stores:
            raise misused(f"{self.me.name} ends while its stores read shared memory")

    def load(self, load: Load) -> None:
        """Have a load under way, or done at once."""
        load.block.spoil(load.sides)
        self.loads.append(load)
        if self.choices.lands_at_once():
            self._land(len(self.loads) - 1)

    def _land(self, which: int | None) -> bool:
        """Let a load land, the first unless said which; False if there is none."""
        if not self.loads:
            return False
        self.loads.pop(which or 0).land()
        return True

    def _idle(self) -> None:
        which = self.choices.landing(len(self.loads))
        if which is not None:
            self._land(which)

    def finish(self) -> None:
        """Raise `Misuse` if something is left under way."""
        if self.loads:
            block = self.loads[0].block.label()
            raise misused(f"the kernel ends while a load into {block} is under way")
        if any(self.copies) or self.copies_in_no_group:
            raise misused("the kernel ends before its copies are waited for")
        for barrier in self.barriers:
            barrier.finish()
