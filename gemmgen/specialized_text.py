"""The text of the warp-specialised kernel, whose parts run beside each other.

Adds to `KernelText` what the producer and the consumers each take, what they share,
and how an operand [m, n] passes from one to the other.
"""

from dataclasses import dataclass

from gemmgen.arguments import Operand, buffers
from gemmgen.dtypes import DTYPES
from gemmgen.kernel_text import KernelText
from gemmgen.layouts import Matrix

_BARRIERS = (
    "gl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())"
)
_INSTRUCTION_BYTES = 32
"""Bytes of K that one wgmma multiplies (PTX ISA, wgmma shapes)."""


@dataclass(frozen=True)
class Role:
    """One of the parts: what it is passed, and the names under which it is."""

    values: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def parameters(self) -> list[str]:
        """As its signature has them."""
        return [*self.values, *(f"{one}: tl.constexpr" for one in self.constants)]


@dataclass(frozen=True)
class SpecializedText(KernelText):
    """The fragments of a warp-specialised kernel."""

    @property
    def matrices(self) -> list[Operand]:
        """The operands indexed [m, n], which the producer loads."""
        return [one for one in self.plan.operands if one.is_matrix]

    @property
    def buffers(self) -> dict[str, str | None]:
        """Whose buffer each operand [m, n] and result shares, if not its own."""
        return buffers(self.plan.operands, self.plan.results)

    def tile_of(self, name: str) -> str:
        """The buffer that holds a tile of an operand or result."""
        return f"{self.buffers[name] or name}_tiles.index(SELF)"

    @property
    def shares(self) -> bool:
        """Whether some result lies where an operand was."""
        return any(self.buffers.values())

    @property
    def producer(self) -> Role:
        """What the producer takes."""
        tensors = [self.plan.a.name, self.plan.b.name]
        matrices = [one.name for one in self.matrices]
        return Role(
            (
                *(f"{name}_desc" for name in tensors + matrices),
                *(f"{name}_ring" for name in tensors),
                *(f"{name}_tiles" for name in matrices),
                *("full", "free"),
                *(("there", "taken") if matrices else ()),
                *("M", "N", "K"),
            ),
            self.schedule.constants,
        )

    @property
    def consumer(self) -> Role:
        """What each consumer takes, beside its number."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        results = [one.name for one in self.plan.results]
        return Role(
            (
                *(one.parameter.partition(":")[0] for one in others),
                *(f"{name}_desc" for name in results),
                *(f"{one.name}_ring" for one in (self.plan.a, self.plan.b)),
                *(f"{name}_tiles" for name, other in self.buffers.items() if not other),
                *("full", "free", "mine"),
                *(("there", "taken") if self.matrices else ()),
                *("M", "N", "K"),
                *self.strides,
            ),
            (*self.schedule.constants, "SELF"),
        )

    def consumer_call(self, number: int) -> list[str]:
        """The arguments of one consumer."""
        return [*self.consumer.values, *self.consumer.constants[:-1], str(number)]

    @property
    def producer_call(self) -> list[str]:
        """The arguments of the producer."""
        return [*self.producer.values, *self.producer.constants]

    @property
    def shared(self) -> list[str]:
        """The statements that allocate shared memory."""
        plan = self.plan
        dtypes = {one.name: one.dtype for one in plan.operands}
        dtypes |= {one.name: one.dtype for one in plan.results}
        tiles = [
            (name, dtypes[name]) for name, other in self.buffers.items() if not other
        ]
        lines = [
            self._ring(plan.a, "STAGES * (2 // TEAMS)", "ROWS"),
            self._ring(plan.b, "STAGES", "BLOCK_N"),
            *(
                f"{name}_tiles = gl.allocate_shared_memory("
                f"tl.{DTYPES[dtype].triton}, [2, ROWS, BLOCK_N], {name}_desc.layout)"
                for name, dtype in tiles
            ),
        ]
        lines += [
            f"{one} = " + _BARRIERS.format(count="STAGES") for one in ("full", "free")
        ]
        return lines + [
            f"{one} = " + _BARRIERS.format(count=2) for one in self.pair_barriers
        ]

    def _ring(self, matrix: Matrix, blocks: str, rows: str) -> str:
        sizes = ["BLOCK_K" if axis == "k" else rows for axis in matrix.stored_axes]
        return (
            f"{matrix.name}_ring = gl.allocate_shared_memory("
            f"tl.{DTYPES[self.plan.dtype].triton}, [{blocks}, {', '.join(sizes)}], "
            f"{matrix.name}_desc.layout)"
        )

    @property
    def pair_barriers(self) -> list[str]:
        """The barriers that there are two of, one for each consumer."""
        return ["mine", *(["there", "taken"] if self.matrices else [])]

    @property
    def ring_bytes(self) -> str:
        """Bytes of a stage."""
        return f"(BLOCK_M + BLOCK_N) * BLOCK_K * {DTYPES[self.plan.dtype].bytes}"

    @property
    def operand_bytes(self) -> str:
        """Bytes of a consumer's part of every operand [m, n]."""
        each = sum(DTYPES[one.dtype].bytes for one in self.matrices)
        return f"ROWS * BLOCK_N * {each}"

    @property
    def a_copy(self) -> str:
        """A's descriptor and the corner of the block to copy."""
        corner = self.plan.a.corner(m="tile_m * BLOCK_M + i * ROWS", k="k")
        return f"{self.plan.a.name}_desc, {corner}"

    @property
    def b_copy(self) -> str:
        """B's descriptor and the corner of the block to copy."""
        corner = self.plan.b.corner(n="tile_n * BLOCK_N", k="k")
        return f"{self.plan.b.name}_desc, {corner}"

    @property
    def a_shared(self) -> str:
        """A's block in shared memory as [m, k]."""
        return _rows_first(self.plan.a)

    @property
    def b_shared(self) -> str:
        """B's block in shared memory as [k, n]."""
        return _rows_first(self.plan.b)

    @property
    def instruction_k(self) -> int:
        """Elements of K of one instruction."""
        return _INSTRUCTION_BYTES // DTYPES[self.plan.dtype].bytes

    @property
    def before_stores(self) -> list[str]:
        """What must be over before the tile's results are written to their buffers."""
        return [] if self.shares else ["tma.store_wait(0)"]

    @property
    def after_stores(self) -> list[str]:
        """What gives the buffers back."""
        if not self.shares:
            return []
        return ["tma.store_wait(0)", "mbarrier.arrive(taken.index(SELF))"]

    @property
    def operand_reads(self) -> list[str]:
        """The statements that bring the operands into registers."""
        lines = []
        for position, axis in enumerate("mn"):
            if not any(one.axes == (axis,) for one in self.plan.operands):
                continue
            # A row of the tile lies along axis 1 of the layout, and the other way.
            count = "ROWS" if axis == "m" else "BLOCK_N"
            slices = f"gl.SliceLayout({1 - position}, layout)"
            lines.append(
                f"offs_{axis} = (first_{axis} + gl.arange(0, {count}, layout={slices}))"
                ".to(tl.int64)"
            )
            lines.append(f"mask_{axis} = offs_{axis} < {axis.upper()}")
        lines += [one.load for one in self.plan.tensors if not one.is_matrix]
        if self.matrices:
            lines.append("mbarrier.wait(there.index(SELF), turn & 1)")
            lines += [
                f"{one.name} = {one.name}_tiles.index(SELF).load(layout){one.cast}"
                for one in self.matrices
            ]
            if not self.shares:
                lines.append("mbarrier.arrive(taken.index(SELF))")
        return lines


def _rows_first(matrix: Matrix) -> str:
    return f"{matrix.name}.permute((1, 0))" if matrix.transposed else matrix.name
