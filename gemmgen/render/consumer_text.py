"""The text of the consumers of a warp-specialised kernel: product, epilogue, stores.

Groups of four warps multiply. Each has its slice of the left side's rows, from shared
memory or from registers; the right side, in shared memory, is one for all of a tile.
"""

from dataclasses import dataclass

from gemmgen.base.names import line
from gemmgen.problem.tensors import Operand, buffers
from gemmgen.render.kernel_text import KernelText
from gemmgen.schedules import composes, from_registers, transposes
from gemmgen.tables.layouts import Matrix


@dataclass(frozen=True)
class ConsumerText(KernelText):
    """The fragments of a consumer, in the order in which it reads."""

    @property
    def swap_ab(self) -> bool:
        """Whether the consumers compute the transpose, B's columns as its rows."""
        plan = self.plan
        return transposes(self.schedule.name, plan.product.kind, plan.layout)

    @property
    def composes(self) -> bool:
        """Whether the right side may be the sum of several powers of two."""
        plan = self.plan
        return composes(self.schedule.name, plan.product.kind, plan.layout)

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
    def matrices(self) -> list[Operand]:
        """The operands indexed [m, n], which the producer loads."""
        return [one for one in self.plan.operands if one.is_matrix]

    @property
    def buffers(self) -> dict[str, str | None]:
        """Whose buffer each operand [m, n] and result shares, if not its own."""
        stored = self.plan.results if self.described("results") else ()
        return buffers(self.plan.operands, stored)

    def buffer_of(self, name: str) -> str:
        """The buffer of its own of a part of a consumer's operand or result."""
        if any(one.name == name for one in self.matrices):
            return f"{name}_smem[part].index(CONSUMER)"
        return f"cut({name}_smem.index(CONSUMER), 0, acc.shape[0])"

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
        """The statements that name it."""
        return [
            f"first_{axis} = {first}" for axis, first in self.corner_of("WG").items()
        ]

    @property
    def parts(self) -> str:
        """A tile's sums as results are stored: of so many rows at a time."""
        return "parts_of(sums)" if self.swap_ab else "sums"

    @property
    def sides_of_multiply(self) -> list[str]:
        """What of wgmma's sides is whose."""
        if not self.lhs_in_registers:
            slices = f"consumers cut {self.left.name} into wgmma's rows"
            return [f"# A and B swapped: {slices}, share {self.right.name}."]
        return [
            "# wgmma reads tf32 in shared memory along K alone, which is not how",
            f"# {self.left.name} lies: it comes from registers"
            f"{', as the left side' * self.swap_ab}.",
        ]

    @property
    def arguments_of_multiply(self) -> str:
        """What it takes: blocks, counts, constants, how the sides of a product lie."""
        sides = [self.side_of_wg, self.other_side, "BLOCK_K"]
        how = [
            f"LEFT_K_MAJOR={along_k(self.left)}",
            f"RIGHT_K_MAJOR={along_k(self.right)}",
            *["LEFT_IN_REGISTERS=True"] * self.lhs_in_registers,
        ]
        what = ["loads", "K", "k_iter", "wave", *sides]
        how = ["STAGES", "NUM_WGS", "CONSUMER", *how]
        return "\n".join(line(group, 12) for group in (what, how))

    @property
    def loads_of_operands(self) -> list[str]:
        """The statements that bring the epilogue's operands into registers."""
        lines = []
        for number, axis in enumerate("mn"):
            if axis in self._pointer_axes:
                # A row of the part lies along axis 1 of the layout, and the other way.
                along = f"gl.SliceLayout({1 - number}, acc.type.layout)"
                lines.append(
                    f"offs_{axis}, mask_{axis} = span_in(first_{axis}, "
                    f"acc.shape[{number}], {axis.upper()}, {along})"
                )
        vectors = [tensor for tensor in self.plan.tensors if not tensor.is_matrix]
        lines += [line for tensor in vectors for line in tensor.loads]
        if self.matrices:  # all parts of them come together
            lines.append("if part == 0:")
            lines.append("    mbarrier.wait(operand_full.index(CONSUMER), wave & 1)")
        for one in self.matrices:
            part = f"{one.name}_part"
            lines.append(f"{part} = {self.buffer_of(one.name)}")
            lines.append(f"{one.name} = {part}.load(acc.type.layout){one.cast}")
        return lines

    @property
    def decorator(self) -> str:
        """`@gluon.jit`, told that M needs no kernel of its own where no pointer runs.

        Of an M that is a multiple of 16 masks of pointers along it are wider.
        """
        told = "" if "m" in self._pointer_axes else '(do_not_specialize=["M"])'
        return f"@gluon.jit{told}"

    @property
    def _pointer_axes(self) -> list[str]:
        """The axes that some pointer is indexed by."""
        vectors = [one for one in self.plan.tensors if not one.is_matrix]
        used = {axis for one in vectors for axis in one.axes}
        return sorted(used if self.described("results") else {"m", "n"})

    @property
    def stores(self) -> list[str]:
        """The statements that store a part of the results."""
        results = self.plan.results
        if not self.described("results"):
            return self.stores_by_pointers
        parts = [(one, f"{self.buffers[one.name] or one.name}_part") for one in results]
        own = [one for one, part in parts if part == f"{one.name}_part"]
        return [
            *["tma.store_wait(0)"] * bool(own),
            *(f"{one.name}_part = {self.buffer_of(one.name)}" for one in own),
            *(f"{part}.store({self.stored(one)})" for one, part in parts),
            "hopper.fence_async_shared()",
            *(
                f"store_piece({one.name}_boxes, {part}, first_m, first_n)"
                for one, part in parts
            ),
        ]

    @property
    def next_part(self) -> list[str]:
        """What makes the next part begin below this one; a tile's columns have one."""
        return ["first_m += acc.shape[0]"] * self.swap_ab

    @property
    def stored_whole(self) -> list[str]:
        """What a tile waits for whose results lie where its operands were."""
        return ["tma.store_wait(0)"] * self.shares

    @property
    def freed(self) -> list[str]:
        """What gives the operands' buffers back; they come for every part of K."""
        if not self.matrices:
            return []
        return [
            "else:  # operands come with every split",
            "    mbarrier.wait(operand_full.index(CONSUMER), wave & 1)",
            "mbarrier.arrive(operand_empty.index(CONSUMER))",
        ]

    @property
    def last_stores(self) -> list[str]:
        """What is waited for at the end."""
        return ["tma.store_wait(0)"] if self.described("results") else []


def along_k(matrix: Matrix) -> bool:
    """Whether a K block of a matrix lies along K."""
    return matrix.contiguous_axis == "k"
