"""Values in registers: blocks with a layout, and sums that are still being made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl
from triton.experimental.gluon.language import BlockedLayout
from triton.runtime.interpreter import TensorHandle

from gemmgen.verification.memory.misuse import misused

_REGISTERS = 65536
"""Of an SM; a thread takes 24 to 256 of them, in eights."""
_LANES = 32
_LEAST_DEPTH = 16


@dataclass(frozen=True)
class Products:
    """The layout in which wgmma leaves its sum (NVMMADistributedLayout)."""

    version: Any
    warps_per_cta: Any
    instr_shape: Any
    cga_layout: Any = ()

    @property
    def warps(self) -> int:
        """The warps that share it."""
        return int(np.prod(self.warps_per_cta))

    @property
    def halves(self) -> bool:
        """Whether two CTAs have half of its rows each."""
        return list(self.cga_layout) == [[1, 0]]


@dataclass(frozen=True)
class Operand:
    """The layout of the left side of a product in registers (DotOperandLayout)."""

    operand_index: int
    parent: Any
    k_width: int


@dataclass(frozen=True)
class Slice:
    """The layout of a row or column of another's (SliceLayout)."""

    dim: int
    parent: Any


@dataclass(frozen=True)
class Permuted:
    """A layout with its axes in another order."""

    parent: Any
    order: tuple[int, ...]


@dataclass(frozen=True)
class Reshaped:
    """A layout of the same elements in another shape."""

    parent: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Half:
    """The layout of what a split gives."""

    parent: Any


class _Type(tl.block_type):  # type: ignore[misc]
    """The type of a block that has a layout."""

    def __init__(self, element: Any, shape: list[int], layout: Any) -> None:
        super().__init__(element, shape)
        self.layout = layout


class Registers(tl.tensor):  # type: ignore[misc]
    """A block of values with a layout."""

    def __init__(self, data: Any, element: Any, layout: Any) -> None:
        super().__init__(
            TensorHandle(data, element), _Type(element, list(data.shape), layout)
        )
        self.shape = data.shape  # whole numbers stay Python's

    def to(self, dtype: Any, *options: Any, **named: Any) -> "Registers":
        """The same in another type."""
        handle = super().to(dtype, *options, **named).handle
        return Registers(handle.data, handle.dtype, self.type.layout)

    def reshape(self, *shape: Any) -> "Registers":
        """The same elements in another shape."""
        sizes = tuple(map(int, shape[0] if len(shape) == 1 else shape))
        layout = Reshaped(self.type.layout, sizes)
        return Registers(self.handle.data.reshape(sizes), self.handle.dtype, layout)

    def split(self) -> tuple["Registers", "Registers"]:
        """Its two halves along the last axis."""
        data, layout = self.handle.data, Half(self.type.layout)
        left, right = (np.ascontiguousarray(data[..., at]) for at in (0, 1))
        kind = self.handle.dtype
        return Registers(left, kind, layout), Registers(right, kind, layout)

    def permute(self, *order: Any) -> "Registers":
        """The same with its axes in another order."""
        axes = tuple(order[0]) if len(order) == 1 else order
        layout = Permuted(self.type.layout, axes)
        data = np.ascontiguousarray(self.handle.data.transpose(axes))
        return Registers(data, self.handle.dtype, layout)


class Accumulator(tl.tensor):  # type: ignore[misc]
    """A sum that products in flight are adding to: nobody may read it."""

    def __init__(self, type_: Any, product: Any) -> None:
        self.type = type_
        self.shape = type_.shape
        self.dtype = type_.scalar
        self.product = product

    @property
    def handle(self) -> Any:
        """What every operation on it asks for."""
        raise misused("the accumulator is read before the wait for its products")


def summand(value: Any) -> Any:
    """The type of what a product is added to; raises `Misuse` if it is no sum."""
    if not isinstance(value, (Registers, Accumulator)):
        raise misused("what a product is added to has no layout of wgmma")
    return value.type


def check_shares(warps: Sequence[int], workers: Sequence[int]) -> None:
    """Raise `Misuse` unless the registers that workers ask for can be theirs."""
    if len(workers) != len(warps) - 1:
        raise misused(f"{len(warps) - 1} workers have registers for {len(workers)}")
    if any(each % 8 or not 24 <= each <= 256 for each in workers):
        raise misused("registers of a thread are 24 to 256, in eights")
    taken = sum(
        _LANES * count * each for count, each in zip(warps[1:], workers, strict=True)
    )
    if _REGISTERS - taken < _LANES * warps[0] * 24:
        raise misused("the workers leave no registers to the others")


def check_halves(layout: Any, ctas: int) -> None:
    """Raise `Misuse` unless CTAs of a cluster have their parts of a sum's rows."""
    if isinstance(layout, Products) and layout.halves != (ctas > 1):
        raise misused(f"a sum of {ctas} CTAs has the layout {layout.cga_layout}")


def multiply_add(a: Any, b: Any, total: Any) -> Registers:
    """The sum with a product added by multiply-adds; raise `Misuse` if they cannot.

    A thread needs its rows and columns of the sum; Triton takes steps of 16 along K.
    """
    for number, one in enumerate((a, b)):
        layout = one.type.layout
        mine = isinstance(layout, Operand) and layout.operand_index == number
        if not mine or layout.parent != total.type.layout:
            raise misused("a factor is not in the layout that its sum asks for")
    (rows, depth), (other, columns) = map(tuple, (a.shape, b.shape))
    sizes = tuple(map(int, total.shape))
    if depth != other or sizes != (rows, columns) or depth % _LEAST_DEPTH:
        raise misused(
            f"[{rows}, {depth}] times [{other}, {columns}] is added to {list(sizes)}"
        )
    data = np.matmul(a.handle.data, b.handle.data) + total.handle.data
    return Registers(data, total.dtype, total.type.layout)


def check_threads(layout: Any, warps: int) -> None:
    """Raise `Misuse` unless a layout is one of all threads of so many warps."""
    parent = layout.parent if isinstance(layout, Slice) else layout
    if not isinstance(parent, BlockedLayout):
        return
    lanes, groups = map(math.prod, (parent.threads_per_warp, parent.warps_per_cta))
    if (lanes, groups) != (_LANES, warps):
        raise misused(f"a layout of {groups} warps of {lanes} in a program of {warps}")
