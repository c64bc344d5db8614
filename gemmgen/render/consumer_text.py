"""The text of the consumers of a warp-specialised kernel: product, epilogue, stores.

Groups of four warps multiply. Each has its slice of the left side's rows, from shared
memory or from registers; the right side, in shared memory, is one for all of a tile.
"""

from dataclasses import dataclass

from gemmgen.problem.tensors import Operand, buffers
from gemmgen.render.kernel_text import KernelText
from gemmgen.render.names import line
from gemmgen.schedules import from_registers, transposes
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix

_INSTRUCTION_BYTES = 32
"""Bytes of K that one wgmma multiplies (PTX ISA, wgmma shapes)."""


@dataclass(frozen=True)
class ConsumerText(KernelText):
    """The fragments of a consumer, in the order in which it reads."""

    @property
    def swap_ab(self) -> bool:
        """Whether the consumers compute the transpose, B's columns as its rows."""
        plan = self.plan
        return transposes(self.schedule.name, plan.product.kind, plan.layout)

    @property
    def lhs_in_registers(self) -> bool:
        """Whether wgmma takes its left side from registers."""
        plan = self.plan
        return from_registers(self.schedule.name, plan.product.kind, plan.layout)

    @property
    def left(self) -> Matrix:
        """The matrix of which each consumer has its slice, as [slice, k]."""
        both = self.plan.contraction
        return both.first.transpose if self.swap_ab else both.lhs

    @property
    def right(self) -> Matrix:
        """The one that all consumers of a tile share, as [k, other axis]."""
        both = self.plan.contraction
        return both.lhs.transpose if self.swap_ab else both.first

    @property
    def side_word(self) -> str:
        """What of a tile is one consumer's."""
        return "columns" if self.swap_ab else "rows"

    @property
    def side_of_tile(self) -> str:
        """The side of a tile that consumers share."""
        return f"BLOCK_{self.left.axes[0].upper()}"

    @property
    def side_of_wg(self) -> str:
        """How much of it one has."""
        return f"{self.side_of_tile}_PER_WG"

    @property
    def other_side(self) -> str:
        """The side that each has whole."""
        return f"BLOCK_{self.right.axes[1].upper()}"

    @property
    def sides(self) -> dict[str, str]:
        """A consumer's slice of a tile along each axis."""
        mine, whole = self.side_of_wg, self.other_side
        return {"m": whole, "n": mine} if self.swap_ab else {"m": mine, "n": whole}

    @property
    def matrices(self) -> list[Operand]:
        """The operands indexed [m, n], which the producer loads."""
        return [one for one in self.plan.operands if one.is_matrix]

    @property
    def buffers(self) -> dict[str, str | None]:
        """Whose buffer each operand [m, n] and result shares, if not its own."""
        stored = self.plan.results if self.described("results") else ()
        return buffers(self.plan.operands, stored)

    def buffer_of(self, name: str) -> str:
        """The buffer that holds a consumer's slice of an operand or result."""
        return f"{self.buffers[name] or name}_smem.index(CONSUMER)"

    @property
    def shares(self) -> bool:
        """Whether some result lies where an operand was."""
        return any(self.buffers.values())

    def corner_of(self, wg: str) -> dict[str, str]:
        """The first row and column of a consumer's slice of a tile."""
        first = {axis: f"tile_{axis} * BLOCK_{axis.upper()}" for axis in "mn"}
        first[self.left.axes[0]] += f" + {wg} * {self.side_of_wg}"
        return first

    @property
    def corner(self) -> list[str]:
        """The statements that name it, and the layout of what is computed."""
        lines = [
            f"first_{axis} = {first}" for axis, first in self.corner_of("WG").items()
        ]
        if not self.swap_ab:
            return lines
        lines.append("acc = acc.permute((1, 0))")
        if self.matrices or self._pointer_axes:
            lines.append("layout: tl.constexpr = acc.type.layout")
        return lines

    @property
    def acc_layout(self) -> str:
        """The name of the layout in which wgmma leaves its sum."""
        return "acc_layout" if self.swap_ab else "layout"

    @property
    def layouts(self) -> list[str]:
        """The statements that name wgmma's layouts."""
        instruction = _INSTRUCTION_BYTES // DTYPES[self.plan.dtype].bytes
        shape = f"[16, {self.other_side}, {instruction}]"
        lines = [
            f"{self.acc_layout}: tl.constexpr = "
            f"gl.NVMMADistributedLayout([3, 0], [4, 1], {shape})"
        ]
        if not self.lhs_in_registers:
            slices = f"consumers cut {self.left.name} into wgmma's rows"
            return [f"# A and B swapped: {slices}, share {self.right.name}.", *lines]
        return [
            "# wgmma reads tf32 in shared memory along K alone, which is not how",
            f"# {self.left.name} lies: it comes from registers"
            f"{', as the left side' * self.swap_ab}.",
            *lines,
            "lhs_layout: tl.constexpr = "
            f"gl.DotOperandLayout(0, {self.acc_layout}, 1)",
        ]

    @property
    def accumulator_shape(self) -> str:
        """The slice of a consumer as wgmma sums it."""
        return f"({self.side_of_wg}, {self.other_side})"

    @property
    def constants_of_multiply(self) -> str:
        """What it is told beside tensors: how the sides of a product lie, at last."""
        told = [
            *("BLOCK_K", "STAGES", "NUM_WGS", "CONSUMER"),
            f"LEFT_K_MAJOR={along_k(self.left)}",
            f"RIGHT_K_MAJOR={along_k(self.right)}",
        ]
        return line(told + ["LEFT_LAYOUT=lhs_layout"] * self.lhs_in_registers, 12)

    @property
    def loads_of_operands(self) -> list[str]:
        """The statements that bring the epilogue's operands into registers."""
        lines = []
        for axis in self._pointer_axes:
            # A row of the tile lies along axis 1 of the layout, and the other way.
            along = f"gl.SliceLayout({1 - 'mn'.index(axis)}, layout)"
            lines.append(
                f"offs_{axis}, mask_{axis} = span_in(first_{axis}, "
                f"{self.sides[axis]}, {axis.upper()}, {along})"
            )
        vectors = [tensor for tensor in self.plan.tensors if not tensor.is_matrix]
        lines += [line for tensor in vectors for line in tensor.loads]
        if self.matrices:
            lines.append("mbarrier.wait(operand_full.index(CONSUMER), wave & 1)")
            lines += [
                f"{one.name} = {self.buffer_of(one.name)}.load(layout){one.cast}"
                for one in self.matrices
            ]
            if not self.shares:
                lines.append("mbarrier.arrive(operand_empty.index(CONSUMER))")
        return lines

    @property
    def _pointer_axes(self) -> list[str]:
        """The axes that some pointer is indexed by."""
        vectors = [one for one in self.plan.tensors if not one.is_matrix]
        used = {axis for one in vectors for axis in one.axes}
        return sorted(used if self.described("results") else {"m", "n"})

    @property
    def stores(self) -> list[str]:
        """The statements that store the results, and give the buffers back."""
        results = self.plan.results
        if not self.described("results"):
            return self.stores_by_pointers
        tiles = [(one, self.buffer_of(one.name)) for one in results]
        lines = [
            *([] if self.shares else ["tma.store_wait(0)"]),
            *(f"{tile}.store({self.stored(one)})" for one, tile in tiles),
            "hopper.fence_async_shared()",
            *(
                f"tma_store({one.name}_desc, [first_m, first_n], {tile})"
                for one, tile in tiles
            ),
        ]
        if self.shares:
            freed = "mbarrier.arrive(operand_empty.index(CONSUMER))"
            lines += ["tma.store_wait(0)", freed]
        return lines

    @property
    def last_stores(self) -> list[str]:
        """What is waited for at the end."""
        return ["tma.store_wait(0)"] if self.described("results") else []


def along_k(matrix: Matrix) -> bool:
    """Whether a K block of a matrix lies along K."""
    return matrix.contiguous_axis == "k"
