"""What goes on while warps do other things: products, and stores to global memory.

Each reads shared memory at some time between its issue and the wait that ends it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.interpreter import TensorHandle

from gemmgen.verification.gluon.descriptors import Descriptor
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.registers import (
    Accumulator,
    Operand,
    Products,
    Registers,
    summand,
)
from gemmgen.verification.gluon.views import View
from gemmgen.verification.interpret.interpreter import factor
from gemmgen.verification.memory.clocks import Moment
from gemmgen.verification.memory.misuse import misused
from gemmgen.verification.memory.shared import Access, Sides

_WARPS, _ROWS = 4, 16
"""Warps that multiply together, and rows of each."""
_INSTRUCTION_BYTES = 32
"""Bytes of K that one instruction multiplies."""
_TF32 = triton_interpreter._ir.INPUT_PRECISION.TF32


@dataclass
class Product:
    """One product in flight, and what it is added to."""

    left: Any
    right: View
    before: Any
    adds: bool
    moment: Moment
    sum: Any = None

    def execute(self) -> None:
        """Read and multiply what lies there now, if that is not done yet."""
        if self.sum is not None:
            return
        left, right = map(factor_of, (self.left, self.right))
        self.sum = np.matmul(left, right)
        if self.adds:
            self.sum = self.sum + held_by(self.before)


def held_by(total: Any) -> Any:
    """What a sum holds once all products before are done."""
    held = isinstance(total, Registers)
    return total.handle.data if held else total.product.sum


def multiply(
    program: Program, left: Any, right: View, total: Any, adds: bool
) -> Accumulator:
    """Have a product under way."""
    me, type_ = program.me, summand(total)
    _fits(left, right, type_, me.warps, program.ctas)
    product = Product(left, right, total, bool(adds), me.moment("products"))
    read = [side for side in (left, right) if isinstance(side, View)]
    return under_way(program, type_, product, read)


def under_way(
    program: Program, type_: Any, product: Any, read: Iterable[View]
) -> Accumulator:
    """A sum of such a type, to which a product that reads so much is adding."""
    me = program.me
    for view in read:
        access = Access("a product", product.moment, True)
        view.block.read(access, me.clock, view.held)
    me.products.append(product)
    if program.choices.reads_at_once():
        for one in me.products:
            one.execute()
    return Accumulator(type_, product)


def wait_for_products(program: Program, left: int, sums: Any) -> Any:
    """Wait until so many are left; the sums, to be read if theirs are done."""
    if not sums:
        raise misused("a wait for products names no sum")
    me = program.me
    while len(me.products) > left:
        product = me.products.popleft()
        product.execute()
        me.clock.learn(product.moment)
    results = tuple(_waited_for(one, me.products) for one in sums)
    return results if len(results) > 1 else results[0]


def _waited_for(total: Any, under_way: Any) -> Any:
    if isinstance(total, Registers) or total.product in under_way:
        return total
    return Registers(total.product.sum, total.dtype, total.type.layout)


@dataclass
class Store:
    """A box on its way to global memory."""

    descriptor: Descriptor
    corner: list[Any]
    view: View
    moment: Moment
    done: bool = False

    def execute(self) -> None:
        """Read and write what lies there now, if that is not done yet."""
        if not self.done:
            held = self.view.held
            corner = corner_of(self.corner, self.view, held)
            self.descriptor.store(corner, self.view.block.part(held))
            self.done = True


def store(
    program: Program, descriptor: Descriptor, corner: list[Any], view: View
) -> None:
    """Have a store under way."""
    me = program.me
    check_box(descriptor, view)
    moment = me.moment("stores")
    access = Access("a store to global memory", moment, True)
    view.block.read(access, me.clock, view.held)
    me.stores.append(Store(descriptor, corner, view, moment))
    if program.choices.reads_at_once():
        me.stores[-1].execute()


def wait_for_stores(program: Program, left: int) -> None:
    """Wait until so many still read."""
    me = program.me
    while len(me.stores) > left:
        one = me.stores.popleft()
        one.execute()
        me.clock.learn(one.moment)


def corner_of(corner: list[Any], view: View, held: Sides) -> list[int]:
    """The coordinates of a CTA's part of a box at a corner."""
    if len(corner) != len(held):
        raise misused(f"{len(corner)} coordinates for {len(held)} axes")
    return [
        int(first) + part[0] - whole[0]
        for first, part, whole in zip(corner, held, view.sides, strict=True)
    ]


def check_box(descriptor: Descriptor, view: View) -> None:
    """Raise `Misuse` unless a descriptor's boxes are like a block of shared memory."""
    if descriptor.block_shape != list(view.shape):
        raise misused(
            f"a descriptor of boxes {descriptor.block_shape} is used with "
            f"{view.block.label()} of {list(view.shape)}"
        )
    if descriptor.dtype != view.dtype:
        raise misused(
            f"a descriptor of {descriptor.dtype} is used with {view.block.label()} of "
            f"{view.dtype}"
        )
    if descriptor.layout != view.ring.layout or view.turned:
        raise misused(f"{view.block.label()} has another layout than its descriptor")


def factor_of(side: Any) -> Any:
    """The values of a side as wgmma multiplies them."""
    handle = (
        TensorHandle(np.ascontiguousarray(side.data), side.dtype)
        if isinstance(side, View)
        else side.handle
    )
    return factor(handle, _TF32).astype(np.float32)


def _fits(left: Any, right: View, total: Any, warps: int, ctas: int) -> None:
    """Raise `Misuse` unless wgmma can multiply these."""
    (rows, depth), (other, columns) = map(tuple, (left.shape, right.shape))
    layout = total.layout
    if depth != other or tuple(total.shape) != (rows, columns):
        raise misused(
            f"[{rows}, {depth}] times [{other}, {columns}] is added to "
            f"{list(map(int, total.shape))}"
        )
    if not isinstance(layout, Products) or layout.warps != warps or warps % _WARPS:
        raise misused(f"a sum in a layout that is not of {warps} warps of wgmma")
    wide, deep = layout.instr_shape[1:]
    bytes_of_k = deep * left.dtype.primitive_bitwidth // 8
    if rows % (_ROWS * warps * ctas) or columns % wide or depth % deep or wide % 8:
        raise misused(f"wgmma of {layout.instr_shape} does not divide the product")
    if left.dtype != right.dtype or bytes_of_k != _INSTRUCTION_BYTES:
        raise misused(
            f"wgmma takes no {deep} columns of {left.dtype} and {right.dtype}"
        )
    if isinstance(left, View):
        _along_k(left, 1)
    elif not isinstance(left.type.layout, Operand):
        raise misused("the left side of a product has no layout of an operand")
    _along_k(right, 0)


def _along_k(side: View, axis: int) -> None:
    short = side.dtype.primitive_bitwidth == 16
    if not short and side.axes[axis] != len(side.axes) - 1:
        name = "tf32" if side.dtype == tl.float32 else side.dtype
        raise misused(f"wgmma reads {name} in shared memory along K alone")
