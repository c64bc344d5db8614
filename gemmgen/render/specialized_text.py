"""The text of the warp-specialised kernel, whose parts run beside each other.

Adds to `ConsumerText` what the producer and the consumers each take, what they share,
and how an operand [m, n] passes from one to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.render.consumer_text import ConsumerText
from gemmgen.render.names import grouped
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix

_BARRIERS = (
    "gl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())"
)


@dataclass(frozen=True)
class Role:
    """One of the parts: what it is passed, by groups, and its constants."""

    groups: tuple[Sequence[str], ...]
    constants: tuple[str, ...]

    @property
    def values(self) -> str:
        """What it is passed, of which its function unpacks its first argument."""
        return grouped(self.groups, indent=4)

    @property
    def signature(self) -> str:
        """Its function's parameters."""
        constants = [f"{one}: tl.constexpr" for one in self.constants]
        return grouped([["arguments"], constants])


@dataclass(frozen=True)
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

    @property
    def producer(self) -> Role:
        """What the producer takes."""
        tensors = [self.plan.a.name, self.plan.b.name]
        matrices = [one.name for one in self.matrices]
        return Role(
            (
                [f"{name}_desc" for name in tensors + matrices],
                [f"{name}_ring" for name in tensors]
                + [f"{name}_tiles" for name in matrices],
                ["full", "free", *(["there", "taken"] if matrices else [])],
                ["M", "N", "K"],
            ),
            self.schedule.constants,
        )

    @property
    def consumer(self) -> Role:
        """What each consumer takes, beside its number."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        results = [one.name for one in self.plan.results]
        stored = "_desc" if self.described("results") else "_ptr"
        return Role(
            (
                [one.parameter.partition(":")[0] for one in others]
                + [name + stored for name in results],
                [f"{one.name}_ring" for one in (self.plan.a, self.plan.b)]
                + [
                    f"{name}_tiles" for name, other in self.buffers.items() if not other
                ],
                [*("full", "free"), *self.consumer_barriers],
                ["M", "N", "K"],
                [", ".join(pair) for pair in self.stride_pairs],
            ),
            (*self.schedule.constants, "SELF"),
        )

    def roles(self, consumers: int) -> list[str]:
        """Each part's function and arguments, so many consumers first."""
        constants = ", ".join(self.schedule.constants)
        calls = [
            f"(consume, (sums, {constants}, {number}))" for number in range(consumers)
        ]
        return [*calls, f"(produce, (loads, {constants}))"]

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
            self._ring(plan.a),
            self._ring(plan.b),
            *(
                f"{name}_tiles = gl.allocate_shared_memory(tl.{DTYPES[dtype].triton}, "
                f"[CONSUMERS, {self._sides}], {name}_desc.layout)"
                for name, dtype in tiles
            ),
        ]
        lines += [
            f"{one} = " + _BARRIERS.format(count="STAGES") for one in ("full", "free")
        ]
        return lines + [
            f"{one} = " + _BARRIERS.format(count="CONSUMERS")
            for one in self.consumer_barriers
        ]

    def _ring(self, matrix: Matrix) -> str:
        mine = matrix.name == self.left.name
        blocks = "STAGES * WARPGROUPS" if mine else "STAGES"
        other = self.part if mine else f"BLOCK_{self.right.axes[1].upper()}"
        sizes = ["BLOCK_K" if axis == "k" else other for axis in matrix.stored_axes]
        return (
            f"{matrix.name}_ring = gl.allocate_shared_memory("
            f"tl.{DTYPES[self.plan.dtype].triton}, [{blocks}, {', '.join(sizes)}], "
            f"{matrix.name}_desc.layout)"
        )

    @property
    def consumer_barriers(self) -> list[str]:
        """The barriers that every consumer has one of."""
        return ["mine", *(["there", "taken"] if self.matrices else [])]

    @property
    def barrier_inits(self) -> list[str]:
        """The statements that make those of consumer i ready.

        Of a barrier that nobody waits for the compiler gives the memory to others, and
        one that was made ready must not be overwritten (PTX ISA, mbarrier.init).
        """
        mine, *others = [
            f"mbarrier.init({one}.index(i), count=1)" for one in self.consumer_barriers
        ]
        return ["if WARPGROUPS == 1:", f"    {mine}", *others]

    @property
    def ring_bytes(self) -> str:
        """Bytes of a stage."""
        return f"(BLOCK_M + BLOCK_N) * BLOCK_K * {DTYPES[self.plan.dtype].bytes}"

    @property
    def operand_bytes(self) -> str:
        """Bytes of a consumer's part of every operand [m, n]."""
        each = sum(DTYPES[one.dtype].bytes for one in self.matrices)
        return f"{self._sides.replace(', ', ' * ')} * {each}"

    @property
    def copies(self) -> list[str]:
        """The statements that load a K block of A, then of B.

        In this order, for neighbours want the same of B, which L2 reads once if all ask
        together: 1.13 ms against 1.41 the other way (8192x14336x4096 of zeros, H200).
        """
        lines = [f"# {self.plan.b.name} last: programs beside this one want the same."]
        for matrix in (self.plan.a, self.plan.b):
            lines += self._copy(matrix)
        return lines

    def _copy(self, matrix: Matrix) -> list[str]:
        axis = next(one for one in matrix.axes if one != "k")
        corner, block = f"tile_{axis} * BLOCK_{axis.upper()}", "stage"
        parted = matrix.name == self.left.name
        if parted:
            corner, block = f"{corner} + i * {self.part}", "stage * WARPGROUPS + i"
        copy = (
            f"load_block({matrix.name}_desc, "
            f"{matrix.corner(**{axis: corner, 'k': 'k'})}, full.index(stage), "
            f"{matrix.name}_ring.index({block}))"
        )
        if not parted:
            return [copy]
        return ["for i in gl.static_range(WARPGROUPS):", f"    {copy}"]

    @property
    def operand_corner(self) -> str:
        """The corner of consumer i's part of a tile, for the producer."""
        return f"[{', '.join(self._corner('i'))}]"
