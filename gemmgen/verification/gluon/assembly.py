"""Inline PTX of kernels: products that wgmma adds to a sum, instruction by instruction.

Addresses are numbers, as on the GPU: allocations lie in shared memory as Triton 3.6 to
3.9 place them, the largest first.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gemmgen.verification.gluon.asynchronous import factor_of, held_by, under_way
from gemmgen.verification.gluon.program import Program
from gemmgen.verification.gluon.registers import (
    Accumulator,
    Products,
    summand,
)
from gemmgen.verification.gluon.views import Boxes, View
from gemmgen.verification.memory.clocks import Moment
from gemmgen.verification.memory.misuse import Unsupported, misused

_SMEM = "global_smem"
_THREADS, _ROWS = 128, 64
"""That multiply together, and rows of a sum that they multiply at a time."""
_MOST = 255
"""Registers that a thread has at most."""
_LINE, _ATOM = 128, 8
"""Bytes of a row, and rows that are swizzled alike."""
_DEPTH = 16
"""Elements along K of one instruction, of 16 bits."""
_SWIZZLED, _APART = 1, 1024 // 16
"""What a matrix descriptor says of such rows, and of the distance of atoms."""
_KINDS = {"bf16": "bf16", "f16": "fp16"}
_MULTIPLY = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(\w+)\.(\w+)"
)
_OPERANDS = re.compile(r"\{[^}]*\}|[^\s,]+")


@dataclass
class _Term:
    """Rows of a sum and the columns of it, which get a product or have it added."""

    row: int
    left: View
    right: View
    adds: bool


@dataclass
class Group:
    """The products of one commit, in flight, and what they are added to."""

    before: Any
    terms: list[_Term]
    moment: Moment
    sum: Any = None

    def execute(self) -> None:
        """Read and multiply what lies there now, if that is not done yet."""
        if self.sum is not None:
            return
        self.sum = np.array(held_by(self.before))
        for one in self.terms:
            rows = slice(one.row, one.row + _ROWS)
            place = self.sum[rows, : one.right.shape[1]]
            product = np.matmul(*map(factor_of, (one.left, one.right)))
            place[...] = product + place if one.adds else product


@dataclass
class _Machine:
    """Registers of the PTX, and what its wgmma has been asked for."""

    program: Program
    total: Any
    numbers: Sequence[int]
    held: int
    declared: set[str] = field(default_factory=set)
    values: dict[str, int] = field(default_factory=dict)
    terms: list[_Term] = field(default_factory=list)
    fenced: bool = False
    committed: bool = False

    def value(self, name: str) -> int:
        """Of a register, a number, an operand or the begin of shared memory."""
        if name == _SMEM:
            return 0
        if name.startswith("$"):
            which, at = divmod(int(name[1:]), self.held)
            if which < 2 or at:
                raise misused(f"the operand {name} of PTX is no number")
            return self.numbers[which - 2]
        return self.values[name] if name in self.values else int(name)

    def run(self, statement: str) -> None:
        """Run an instruction."""
        name, *rest = statement.split(maxsplit=1)
        operands = _OPERANDS.findall(rest[0]) if rest else []
        product = _MULTIPLY.fullmatch(name)
        if product:
            self._multiply(int(product[1]), {product[2], product[3]}, operands)
        elif name in _ARITHMETIC:
            target, *given = operands
            if target not in self.declared:
                raise misused(f"PTX does not declare {target}")
            self.values[target] = _ARITHMETIC[name](*map(self.value, given))
        elif name == "wgmma.fence.sync.aligned":
            self.fenced = True
        elif name == "wgmma.commit_group.sync.aligned":
            self.committed = True
        elif name == ".reg":
            self.declared.update(operands[1:])
        else:
            raise Unsupported(f"the interpreter of PTX has no {name}")

    def _multiply(self, columns: int, kinds: set[str], operands: list[str]) -> None:
        total, left, right, adds, *signs, turned, other_turned = operands
        if signs != ["1", "1"] or other_turned != "0" or turned not in ("0", "1"):
            raise misused(
                "wgmma negates a side, or transposes the right one: "
                f"{', '.join(operands[4:])}"
            )
        if not self.fenced or self.committed:
            raise misused("wgmma outside of its fence and its commit")
        (kind,) = kinds
        row = self._row(total, columns)
        lower = self._side(self.value(left), _ROWS, kind, turned == "1")
        upper = self._side(self.value(right), columns, kind, False).permute((1, 0))
        self.terms.append(_Term(row, lower, upper, bool(self.value(adds))))

    def _row(self, registers: str, columns: int) -> int:
        """The first row of the sum whose registers are named."""
        rows, width = map(int, self.total.shape)
        numbers = [int(one[1:]) for one in re.findall(r"\$\d+", registers)]
        step = self.held * _ROWS // rows
        first = numbers[0]
        there = list(range(first, first + columns // 2))
        if numbers != there or first % step or columns > width or first >= self.held:
            raise misused(f"wgmma of {columns} columns has other registers of a sum")
        return first // step * _ROWS

    def _side(self, descriptor: int, rows: int, kind: str, turned: bool) -> View:
        """What a matrix descriptor tells, of 16 elements along K.

        A side that is `turned` lies along its rows: a line has 64 of them.
        """
        swizzle, apart = descriptor >> 62, descriptor >> 32 & 0x3FFF
        if swizzle != _SWIZZLED or apart != _APART:
            raise misused("a matrix descriptor is not of swizzled rows of 128 bytes")
        address = (descriptor & 0x3FFF) * 16
        boxes, offset = _memory_at(self.program, address)
        first, byte = divmod(offset, _LINE)
        if boxes.dtype.name != _KINDS[kind]:
            raise misused(f"wgmma reads {boxes.dtype} as {kind}")
        column = byte * 8 // boxes.dtype.primitive_bitwidth
        if first % _ATOM or column % _DEPTH or (turned and column):
            raise misused(f"wgmma reads from the byte {offset} of {boxes.name}")
        if turned:
            sides = ((first, first + _DEPTH), (0, rows))
            return boxes.view(sides).permute((1, 0))
        return boxes.view(((first, first + rows), (column, column + _DEPTH)))


_ARITHMETIC: dict[str, Callable[..., int]] = {
    "mov.u32": lambda one: one,
    "cvt.u64.u32": lambda one: one,
    "mad.lo.u32": lambda one, other, more: one * other + more & 0xFFFFFFFF,
    "shr.u32": lambda one, by: one >> by,
    "add.u64": lambda one, other: one + other & 0xFFFFFFFFFFFFFFFF,
    "setp.eq.b32": lambda one, other: int(one == other),
}


def run(
    program: Program,
    text: str,
    constraints: str,
    operands: Sequence[Any],
    pack: int,
    is_pure: bool,
) -> Accumulator:
    """Have the products of such PTX under way: a sum, then numbers for all threads."""
    total, *others = operands
    type_ = summand(total)
    held = int(np.prod([int(size) for size in total.shape])) // _THREADS
    _check(type_, program.me.warps, constraints, len(others), held, pack, is_pure)
    machine = _Machine(program, total, list(map(_number, others)), held)
    for statement in text.strip().removeprefix("{").removesuffix("}").split(";"):
        if statement.strip():
            machine.run(statement.strip())
    if not machine.committed:
        raise misused("products are not committed")
    group = Group(total, machine.terms, program.me.moment("products"))
    return under_way(program, type_, group, _read(machine.terms))


def _check(
    type_: Any,
    warps: int,
    constraints: str,
    numbers: int,
    held: int,
    pack: int,
    is_pure: bool,
) -> None:
    """Raise `Misuse` unless PTX gets a sum's registers twice, then numbers."""
    if not isinstance(type_.layout, Products) or type_.layout.warps != warps:
        raise misused(f"a sum in a layout that is not of {warps} warps of wgmma")
    same = [*["=f"] * held, *map(str, range(held)), *["r"] * held * numbers]
    if pack != held or constraints.split(",") != same:
        raise misused("PTX does not have all registers of a sum, once")
    if held > _MOST:
        raise misused(f"a sum takes {held} registers of a thread, which has {_MOST}")
    if is_pure:
        raise misused("PTX that reads memory may be moved or left out")


def _number(block: Any) -> int:
    values = np.unique(block.handle.data)
    if len(values) > 1:
        raise misused("threads give PTX different numbers")
    return int(values[0])


def _memory_at(program: Program, address: int) -> tuple[Boxes, int]:
    """The allocation at an address, and how far behind its begin that is."""
    begin = 0
    for ring in sorted(program.rings, key=lambda one: -one.bytes):
        if address < begin + ring.bytes:
            if ring.boxes is None:
                raise misused(f"PTX reads {ring.name}, which are no rows along K")
            return ring.boxes, address - begin
        begin += ring.bytes
    raise misused(f"PTX reads from the byte {address}, beyond all shared memory")


def _read(terms: Sequence[_Term]) -> Iterator[View]:
    """What products read, each row once with all that is read of it."""
    found: dict[tuple[int, Any], list[View]] = {}
    for one in terms:
        for view in (one.left, one.right):
            found.setdefault((id(view.block), view.sides[0]), []).append(view)
    for views in found.values():
        columns = [one.sides[1] for one in views]
        whole = min(map(min, columns)), max(map(max, columns))
        yield replace(views[0], sides=(views[0].sides[0], whole))
