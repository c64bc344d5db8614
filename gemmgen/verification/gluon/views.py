"""Shared memory as kernels see it: allocations, views of their blocks, barriers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmgen.verification.gluon.barriers import Barrier
from gemmgen.verification.gluon.descriptors import storage
from gemmgen.verification.gluon.misuse import misused
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.registers import Registers
from gemmgen.verification.gluon.shared import Access, Block, Sides, new_block


class Ring:
    """An allocation: as many blocks, or barriers, as its first index counts."""

    def __init__(
        self, program: Program, dtype: Any, shape: list[Any], layout: Any
    ) -> None:
        count, *sizes = map(int, shape)
        self.program = program
        self.name = "shared memory"
        self.dtype = dtype
        self.layout = layout
        self.shape = (count, *sizes)
        self.parts: list[Any] = []
        for number in range(count):
            self.parts.append(self._part(number))

    def _part(self, number: int) -> Block:
        block = new_block(
            lambda: f"{self.name}[{number}]", self.shape[1:], storage(self.dtype)
        )
        self.program.blocks.append(block)
        return block

    def _found(self, index: Any) -> Any:
        at = int(index)
        if not 0 <= at < len(self.parts):
            raise misused(f"{self.name}[{at}] is beyond its {len(self.parts)} parts")
        return self.parts[at]

    def index(self, index: Any) -> Any:
        """One of its blocks."""
        sides = tuple((0, size) for size in self.shape[1:])
        return View(self, self._found(index), sides, tuple(range(len(sides))))


class Barriers(Ring):
    """An allocation of barriers."""

    def _part(self, number: int) -> Any:
        barrier = Barrier(len(self.program.barriers), lambda: f"{self.name}[{number}]")
        self.program.barriers.append(barrier)
        return barrier

    def index(self, index: Any) -> Any:
        """One of them."""
        return self._found(index)


@dataclass(frozen=True)
class View:
    """A block of shared memory or some `sides` of it, with its axes in some order."""

    ring: Ring
    block: Block
    sides: Sides
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes in this order."""
        found = [self.sides[axis] for axis in self.axes]
        return tuple(end - start for start, end in found)

    @property
    def turned(self) -> bool:
        """Whether its axes are in another order than the block's."""
        return self.axes != tuple(sorted(self.axes))

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        return self.ring.dtype

    @property
    def data(self) -> Any:
        """What it holds now."""
        return self.block.part(self.sides).transpose(self.axes)

    def permute(self, order: Any) -> "View":
        """The same with its axes in another order."""
        axes = tuple(self.axes[axis] for axis in order)
        return View(self.ring, self.block, self.sides, axes)

    def slice(self, start: Any, length: Any, dim: Any = 0) -> "View":
        """A part of it along an axis."""
        first, size, axis = int(start), int(length), self.axes[int(dim)]
        begin, end = self.sides[axis]
        if not 0 <= first <= end - begin - size:
            raise misused(
                f"{first} to {first + size} is beyond {self.block.label()} of "
                f"{list(self.shape)}"
            )
        sides = list(self.sides)
        sides[axis] = (begin + first, begin + first + size)
        return View(self.ring, self.block, tuple(sides), self.axes)

    def load(self, layout: Any) -> Registers:
        """What it holds, in registers."""
        me = self.ring.program.me
        self.block.read(Access("a load", me.access(), False), me.clock, self.sides)
        # A copy: what is in registers stays when the block is written again.
        return Registers(np.array(self.data, order="C"), self.dtype, layout)

    def store(self, value: Any) -> None:
        """Put what is in registers here."""
        found = tuple(map(int, value.shape))
        if found != self.shape:
            raise misused(
                f"{list(found)} is stored in {self.block.label()} of {list(self.shape)}"
            )
        if value.dtype != self.dtype:
            raise misused(
                f"{value.dtype} is stored in {self.block.label()} of {self.dtype}"
            )
        me = self.ring.program.me
        access = Access("a store", me.access(), False)
        self.block.write(access, me.clock, self.sides)
        self.data[...] = value.handle.data.reshape(self.shape)
