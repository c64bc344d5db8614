"""cp.async: copies from global to shared memory, which warps wait for in groups.

Each writes at some time between its issue and the wait that ends it. Behind a wait all
threads meet: the compiler sees to it (Triton 3.6 to 3.9), as it does before memory that
plain loads have read is written again.
"""

from dataclasses import dataclass
from typing import Any

import triton.language as tl

from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.views import View
from gemmgen.verification.memory.clocks import Moment
from gemmgen.verification.memory.misuse import misused
from gemmgen.verification.memory.shared import Access


@dataclass
class Copy:
    """What is on its way to a block."""

    values: Any
    view: View
    moment: Moment

    def land(self) -> None:
        """Be there, as often as that is asked for."""
        self.view.data[...] = self.values


def copy(program: Program, view: View, pointers: Any, mask: Any) -> None:
    """Have a copy under way; what is masked is filled with zeros."""
    if tuple(map(int, pointers.shape)) != view.shape:
        raise misused(
            f"pointers {list(map(int, pointers.shape))} are copied to "
            f"{view.block.label()} of {list(view.shape)}"
        )
    me = program.me
    values = tl.load(pointers, mask=mask, other=0.0).handle.data
    one = Copy(values, view, me.moment("copies"))
    access = Access("a copy from global memory", one.moment, False)
    view.block.write(access, me.clock, view.held)
    view.block.spoil(view.held)
    if program.choices.lands_at_once():
        one.land()
    program.copies_in_no_group.append(one)


def commit(program: Program) -> None:
    """Make a group of the copies that are in none."""
    program.copies.append(program.copies_in_no_group)
    program.copies_in_no_group = []


def wait(program: Program, left: int) -> None:
    """Wait until at most so many groups are under way."""
    if left < 0:
        raise misused(f"a wait leaves {left} groups of copies")
    me = program.me
    while len(program.copies) > left:
        for one in program.copies.popleft():
            one.land()
            me.clock.learn(one.moment)
