"""Shared memory as kernels see it: allocations, views of their blocks, barriers."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmgen.verification.gluon.barriers import Barrier
from gemmgen.verification.gluon.descriptors import storage
from gemmgen.verification.gluon.misuse import misused
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.registers import Registers
from gemmgen.verification.gluon.shared import Access, Block, new_block


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
        self.shape = tuple(sizes)
        self.parts: list[Any] = []
        for number in range(count):
            self.parts.append(self._part(number))

    def _part(self, number: int) -> Block:
        block = new_block(
            lambda: f"{self.name}[{number}]", self.shape, storage(self.dtype)
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
        return View(self, self._found(index), tuple(range(len(self.shape))))


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
    """A block of shared memory, with its axes in some order."""

    ring: Ring
    block: Block
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes in this order."""
        return tuple(self.ring.shape[axis] for axis in self.axes)

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        return self.ring.dtype

    @property
    def data(self) -> Any:
        """What it holds now."""
        return self.block.data.transpose(self.axes)

    def permute(self, order: Any) -> "View":
        """The same with its axes in another order."""
        return View(self.ring, self.block, tuple(self.axes[axis] for axis in order))

    def load(self, layout: Any) -> Registers:
        """What it holds, in registers."""
        me = self.ring.program.me
        self.block.read(Access("a load", me.access(), False), me.clock)
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
        self.block.write(Access("a store", me.access(), False), me.clock)
        self.data[...] = value.handle.data.reshape(self.shape)
