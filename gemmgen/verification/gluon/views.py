"""Shared memory as kernels see it: allocations, views of their blocks, barriers."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gemmgen.verification.gluon.descriptors import storage
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.registers import Registers
from gemmgen.verification.memory.barriers import Barrier
from gemmgen.verification.memory.misuse import misused
from gemmgen.verification.memory.shared import Access, Block, Sides, both, new_block

UNNAMED = "shared memory"
"""What an allocation is called until the kernel's own name for it is known."""


class Ring:
    """An allocation: as many blocks, or barriers, as its first index counts.

    Each CTA of a cluster has its own.
    """

    def __init__(
        self, program: Program, dtype: Any, shape: list[Any], layout: Any
    ) -> None:
        self.program = program
        self.name = UNNAMED
        self.dtype = dtype
        self.layout = layout
        self.shape = tuple(map(int, shape))
        self.bytes = dtype.primitive_bitwidth // 8 * int(np.prod(self.shape))
        self.boxes: Boxes | None = None
        program.rings.append(self)

    @cached_property
    def parts(self) -> list[list[Any]]:
        """Its blocks, or barriers, each for every CTA."""
        return [self._parts(number) for number in range(self.shape[0])]

    def _parts(self, number: int) -> list[Any]:
        """A block for each CTA."""
        blocks: list[Block] = []
        for cta in range(self.program.ctas):
            own = _own_part(self.layout, self.shape[1:], cta)
            label = partial(self._label, number, cta)
            block = new_block(label, self.shape[1:], storage(self.dtype), own)
            block.each = blocks
            blocks.append(block)
        self.program.blocks += blocks
        return blocks

    def _label(self, number: int, cta: int) -> str:
        return f"{self.name}[{number}]{self.program.whose(cta)}"

    def _found(self, index: Any) -> Any:
        at = int(index)
        if not 0 <= at < len(self.parts):
            raise misused(f"{self.name}[{at}] is beyond its {len(self.parts)} parts")
        return self.parts[at][self.program.me.cta]

    def index(self, index: Any) -> Any:
        """One of its blocks."""
        sides = tuple((0, size) for size in self.shape[1:])
        return View(self, self._found(index), sides, tuple(range(len(sides))))

    def reinterpret(self, dtype: Any, shape: Sequence[Any], layout: Any) -> "Boxes":
        """The same memory as blocks of another number of rows."""
        sizes = tuple(map(int, shape))
        if int(np.prod(sizes)) != int(np.prod(self.shape)) or dtype != self.dtype:
            raise misused(f"{self.name} of {list(self.shape)} is seen as {list(sizes)}")
        if self.boxes is None:
            self.boxes = Boxes(self, (self.shape[0] * self.shape[1], self.shape[2]))
        return self.boxes.of(sizes, layout)


class Boxes:
    """An allocation of rows as blocks of a shape, which a first index counts.

    A block of longer rows lies in parts as wide as those of the allocation.
    """

    def __init__(self, ring: Ring, rows: tuple[int, ...]) -> None:
        self.program, self.dtype = ring.program, ring.dtype
        self.layout, self.shape = ring.layout, rows
        self.ring = ring
        own = tuple((0, size) for size in rows)
        self.block = new_block(lambda: ring.name, rows, storage(ring.dtype), own)
        self.block.each = [self.block]
        self.program.blocks.append(self.block)

    @property
    def name(self) -> str:
        """What the kernel calls it."""
        return self.ring.name

    def of(self, shape: tuple[int, ...], layout: Any) -> "Boxes":
        """The same rows as such blocks."""
        found = copy(self)
        found.layout, found.shape = layout, shape[1:]
        return found

    def index(self, index: Any) -> "View":
        """One of the blocks."""
        columns = int(self.block.data.shape[1])
        height = int(np.prod(self.shape)) // columns
        first = int(index) * height
        found = self.view(((first, first + height), (0, columns)))
        return replace(found, shape_of_box=self.shape)

    def view(self, sides: Sides) -> "View":
        """Such rows and columns."""
        for (begin, end), size in zip(sides, self.block.data.shape, strict=True):
            if not 0 <= begin < end <= size:
                raise misused(f"{begin} to {end} is beyond the {size} of {self.name}")
        return View(self, self.block, sides, (0, 1))


class BarrierLayout:
    """The layout that tells an allocation of barriers, of each CTA or of all."""

    def __init__(self, cga_layout: Sequence[Any] = ()) -> None:
        self.cga_layout = [list(basis) for basis in cga_layout]


class Barriers(Ring):
    """An allocation of barriers: of each CTA, or one that all have in common."""

    def _parts(self, number: int) -> list[Any]:
        ctas, bases = self.program.ctas, self.layout.cga_layout
        common = bases == [[0]]
        if len(bases) != ctas - 1 or self.shape[1:] != (1 if common else ctas,):
            raise misused(
                f"barriers of {ctas} CTAs have the shape {list(self.shape)} and the "
                f"layout {bases}"
            )
        found: list[Barrier] = []
        for cta in range(1 if common else ctas):
            label = partial(self._label, number, cta)
            barrier = Barrier(len(self.program.barriers), label, ctas if common else 1)
            barrier.each = found
            found.append(barrier)
            self.program.barriers.append(barrier)
        return found * ctas if common else found

    def index(self, index: Any) -> Any:
        """One of them."""
        return self._found(index)


@dataclass(frozen=True)
class View:
    """A block of shared memory or some `sides` of it, with its axes in some order."""

    ring: Ring | Boxes
    block: Block
    sides: Sides
    axes: tuple[int, ...]
    shape_of_box: tuple[int, ...] = ()
    """Of a box that lies otherwise than its rows and columns say: those of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes in this order."""
        if self.shape_of_box:
            return self.shape_of_box
        found = [self.sides[axis] for axis in self.axes]
        return tuple(end - start for start, end in found)

    @property
    def moved(self) -> tuple[int, ...]:
        """The sizes of the box, or of the CTA's part of it."""
        return self.shape_of_box or tuple(end - start for start, end in self.held)

    @property
    def turned(self) -> bool:
        """Whether its axes are in another order than the block's."""
        return self.axes != tuple(sorted(self.axes))

    @property
    def dtype(self) -> Any:
        """The type of its elements."""
        return self.ring.dtype

    @property
    def held(self) -> Sides:
        """What of it the CTA has."""
        return both(self.sides, self.block.own)

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
        self.block.read(Access("a load", me.access(), False), me.clock, self.held)
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
        self.block.write(access, me.clock, self.held)
        self.data[...] = value.handle.data.reshape(self.shape)


def _own_part(layout: Any, shape: tuple[int, ...], cta: int) -> Sides:
    """Of a block the half that a CTA of two has, or all if both have the same."""
    bases = list(getattr(layout, "cga_layout", None) or [])
    halved = [axis for basis in bases for axis, step in enumerate(basis) if step]
    return tuple(
        (cta * size // 2, (cta + 1) * size // 2) if axis in halved else (0, size)
        for axis, size in enumerate(shape)
    )
