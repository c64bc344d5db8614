"""The text of the consumers of a warp-specialised kernel: product, epilogue, stores.

Groups of four warps multiply. Each has its part of the left side's rows, from shared
memory or from registers; the right side, in shared memory, is one for all of a tile.
"""

from dataclasses import dataclass

from gemmgen.problem.tensors import Operand, buffers
from gemmgen.render.kernel_text import KernelText
from gemmgen.schedules import from_registers, transposes
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix

_INSTRUCTION_BYTES = 32
"""Bytes of K that one wgmma multiplies (PTX ISA, wgmma shapes)."""


@dataclass(frozen=True)
class ConsumerText(KernelText):
    """The fragments of a consumer, in the order in which it reads."""

    @property
    def transposes(self) -> bool:
        """Whether the consumers compute the transpose, B's columns as its rows."""
        plan = self.plan
        return transposes(self.schedule.name, plan.product.kind, plan.layout)

    @property
    def from_registers(self) -> bool:
        """Whether wgmma takes its left side from registers."""
        plan = self.plan
        return from_registers(self.schedule.name, plan.product.kind, plan.layout)

    @property
    def left(self) -> Matrix:
        """The matrix of which each consumer has its part, as [part, k]."""
        return self.plan.b.transpose if self.transposes else self.plan.a

    @property
    def right(self) -> Matrix:
        """The one that all consumers of a tile share, as [k, other axis]."""
        return self.plan.a.transpose if self.transposes else self.plan.b

    @property
    def part(self) -> str:
        """The name of how much of a tile is one consumer's."""
        return "COLUMNS" if self.transposes else "ROWS"

    @property
    def part_of_tile(self) -> str:
        """How much that is."""
        return f"BLOCK_{self.left.axes[0].upper()} // WARPGROUPS"

    @property
    def matrices(self) -> list[Operand]:
        """The operands indexed [m, n], which the producer loads."""
        return [one for one in self.plan.operands if one.is_matrix]

    @property
    def buffers(self) -> dict[str, str | None]:
        """Whose buffer each operand [m, n] and result shares, if not its own."""
        stored = self.plan.results if self.described("results") else ()
        return buffers(self.plan.operands, stored)

    def tile_of(self, name: str) -> str:
        """The buffer that holds a tile of an operand or result."""
        return f"{self.buffers[name] or name}_tiles.index(SELF)"

    @property
    def shares(self) -> bool:
        """Whether some result lies where an operand was."""
        return any(self.buffers.values())

    @property
    def _sides(self) -> str:
        """Rows and columns of a consumer's part of a tile."""
        return "BLOCK_M, COLUMNS" if self.transposes else "ROWS, BLOCK_N"

    @property
    def corner(self) -> list[str]:
        """The statements that name the corner of a consumer's part of a tile."""
        m, n = self._corner("PART")
        lines = [f"first_m = {m}", f"first_n = {n}"]
        if not self.transposes:
            return lines
        lines.append("acc = acc.permute((1, 0))")
        if self.matrices or any(map(self._points_along, "mn")):
            lines.append("layout: tl.constexpr = acc.type.layout")
        return lines

    def _corner(self, number: str) -> tuple[str, str]:
        m, n = "tile_m * BLOCK_M", "tile_n * BLOCK_N"
        if self.transposes:
            return m, f"{n} + {number} * COLUMNS"
        return f"{m} + {number} * ROWS", n

    @property
    def multiplied(self) -> str:
        """The name of the layout in which wgmma leaves its sum."""
        return "turned" if self.transposes else "layout"

    @property
    def layouts(self) -> list[str]:
        """The statements that name wgmma's layouts."""
        width = f"BLOCK_{self.right.axes[1].upper()}"
        lines = [
            f"{self.multiplied}: tl.constexpr = gl.NVMMADistributedLayout("
            f"[3, 0], [4, 1], [16, {width}, {self.instruction_k}])"
        ]
        if not self.from_registers:
            parts = f"consumers cut {self.left.name} into wgmma's rows"
            return [f"# The transpose: {parts}, share {self.right.name}.", *lines]
        held = f"held: tl.constexpr = gl.DotOperandLayout(0, {self.multiplied}, 1)"
        name, turned = self.left.name, self.transposes
        return [
            "# wgmma reads tf32 in shared memory along K alone, which is not how",
            f"# {name} lies: it comes from registers{', as the left side' * turned}.",
            *lines,
            held,
        ]

    @property
    def accumulator_shape(self) -> str:
        """The part of a consumer as wgmma sums it."""
        return f"({self.part}, BLOCK_{self.right.axes[1].upper()})"

    @property
    def left_block(self) -> str:
        """A consumer's block of the left matrix, in shared memory or in registers."""
        block = f"{self.left.name}_ring.index(stage * WARPGROUPS + PART)"
        if self.from_registers:
            return _rows_first(self.left, block) + ".load(held)"
        return block

    @property
    def left_read(self) -> str:
        """The left side as wgmma takes it."""
        name = self.left.name
        return name if self.from_registers else _rows_first(self.left, name)

    @property
    def right_read(self) -> str:
        """The right side as wgmma takes it."""
        return _rows_first(self.right, self.right.name)

    @property
    def release(self) -> list[str]:
        """What gives a stage back: one block later, so that two are under way.

        What comes from registers cannot: loads of the next block would wait for them.
        """
        if self.from_registers:
            return [
                "# The next block is loaded into the same registers.",
                "acc = hopper.warpgroup_mma_wait(0, deps=[acc])",
                "mbarrier.arrive(free.index(stage))",
            ]
        return [
            "acc = hopper.warpgroup_mma_wait(1, deps=[acc])",
            "# The block before this one has been read.",
            "mbarrier.arrive(free.index((slot + STAGES - 1) % STAGES), pred=k > 0)",
        ]

    @property
    def last_release(self) -> list[str]:
        """What gives the last stage back."""
        if self.from_registers:
            return []
        return [
            "acc = hopper.warpgroup_mma_wait(0, deps=[acc])",
            "mbarrier.arrive(free.index((slot + STAGES - 1) % STAGES))",
        ]

    @property
    def instruction_k(self) -> int:
        """Elements of K of one instruction."""
        return _INSTRUCTION_BYTES // DTYPES[self.plan.dtype].bytes

    @property
    def stores(self) -> list[str]:
        """The statements that store the results, and give the buffers back."""
        results = self.plan.results
        if not self.described("results"):
            return [one.store for one in results]
        tiles = [(one, self.tile_of(one.name)) for one in results]
        lines = [
            *([] if self.shares else ["tma.store_wait(0)"]),
            *(f"{tile}.store({one.rounded})" for one, tile in tiles),
            "hopper.fence_async_shared()",
            *(
                f"store_block({one.name}_desc, " f"[first_m, first_n], {tile})"
                for one, tile in tiles
            ),
        ]
        if self.shares:
            lines += ["tma.store_wait(0)", "mbarrier.arrive(taken.index(SELF))"]
        return lines

    @property
    def last_stores(self) -> list[str]:
        """What is waited for at the end."""
        return ["tma.store_wait(0)"] if self.described("results") else []

    @property
    def operand_reads(self) -> list[str]:
        """The statements that bring the operands into registers."""
        lines = []
        sides = self._sides.split(", ")
        for position, (axis, count) in enumerate(zip("mn", sides, strict=True)):
            if not self._points_along(axis):
                continue
            # A row of the tile lies along axis 1 of the layout, and the other way.
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

    def _points_along(self, axis: str) -> bool:
        vectors = [one for one in self.plan.tensors if not one.is_matrix]
        return any(axis in one.axes for one in vectors) or not self.described("results")


def _rows_first(matrix: Matrix, block: str) -> str:
    return f"{block}.permute((1, 0))" if matrix.transposed else block
