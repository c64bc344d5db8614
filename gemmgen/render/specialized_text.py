"""The text of the warp-specialised kernel, whose roles run beside each other.

Adds to `ConsumerText` what the producer and the consumers each take, what they share,
and how an operand [m, n] passes from one to the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.render.consumer_text import ConsumerText
from gemmgen.render.names import grouped, packed, unpacked
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix

_LOADS, _SUMS = "loads", "sums"
"""What the kernel calls that which it passes to the producer, and to consumers."""


@dataclass(frozen=True)
class Role:
    """One of the parts of a program: what it is passed, under which name; constants."""

    name: str
    names: Sequence[str]
    constants: Sequence[str]

    @property
    def unpacks(self) -> str:
        """The statement by which its function takes what it is passed."""
        return unpacked(self.names, "args", indent=4)

    @property
    def passes(self) -> str:
        """The one by which the kernel makes that."""
        return packed(self.name, self.names, indent=4)

    @property
    def signature(self) -> str:
        """Its function's parameters."""
        constants = [f"{name}: tl.constexpr" for name in self.constants]
        return grouped([["args"], constants])


@dataclass(frozen=True)
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

    @property
    def producer(self) -> Role:
        """What the producer takes."""
        tensors = [self.plan.a.name, self.plan.b.name]
        tensors += [one.name for one in self.matrices]
        names = [
            *(f"{name}_desc" for name in tensors),
            *(f"{name}_smem" for name in tensors),
            *("full", "empty"),
            *(("operand_full", "operand_empty") if self.matrices else ()),
            *("M", "N", "K"),
        ]
        return Role(_LOADS, names, self.schedule.constants)

    @property
    def consumer(self) -> Role:
        """What each consumer takes, beside its number."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        stored = "_desc" if self.described("results") else "_ptr"
        names = [
            *(one.parameter.partition(":")[0] for one in others),
            *(one.name + stored for one in self.plan.results),
            *(f"{one.name}_smem" for one in (self.plan.a, self.plan.b)),
            *(f"{name}_smem" for name in self._own_buffers),
            *("full", "empty"),
            *self.consumer_barriers,
            *("M", "N", "K"),
            *self.strides,
        ]
        return Role(_SUMS, names, (*self.schedule.constants, "CONSUMER"))

    def role(self, function: str, *number: int) -> str:
        """A role's function and arguments, for a consumer with its number."""
        passed = _SUMS if number else _LOADS
        arguments = [passed, *self.schedule.constants, *map(str, number)]
        return f"({function}, ({', '.join(arguments)}))"

    @property
    def _own_buffers(self) -> list[str]:
        """The operands [m, n] and results that have a buffer of their own."""
        return [name for name, other in self.buffers.items() if not other]

    @property
    def shared(self) -> list[str]:
        """The statements that allocate shared memory, and make barriers ready."""
        counts = {one.name: "STAGES" for one in (self.plan.a, self.plan.b)}
        counts[self.left.name] = "STAGES * NUM_WGS"
        counts |= dict.fromkeys(self._own_buffers, "CONSUMERS")
        operands = ["operand_full, operand_empty = ring(CONSUMERS, 1)"]
        return [
            *(f"{name}_smem = buffers({name}_desc, {n})" for name, n in counts.items()),
            "full, empty = ring(STAGES, NUM_WGS)",
            "order = bars(CONSUMERS, NUM_WGS == 1)",
            *operands * bool(self.matrices),
        ]

    @property
    def consumer_barriers(self) -> list[str]:
        """The barriers that every consumer has one of."""
        return ["order", *(["operand_full", "operand_empty"] if self.matrices else [])]

    @property
    def stage_bytes(self) -> str:
        """Bytes of a stage."""
        return f"(BLOCK_M + BLOCK_N) * BLOCK_K * {DTYPES[self.plan.dtype].bytes}"

    @property
    def operand_bytes(self) -> str:
        """Bytes of a consumer's slice of every operand [m, n]."""
        each = sum(DTYPES[one.dtype].bytes for one in self.matrices)
        return f"{' * '.join(self.sides.values())} * {each}"

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
        first, sliced = self.corner_of("wg")[axis], matrix.name == self.left.name
        block = "stage * NUM_WGS + wg" if sliced else "stage"
        corner = matrix.corner(**{axis: "first" if sliced else first, "k": "k"})
        load = (
            f"tma_load({matrix.name}_desc, {corner}, bar, "
            f"{matrix.name}_smem.index({block}))"
        )
        if not sliced:
            return [load]
        return [
            "for wg in gl.static_range(NUM_WGS):",
            f"    first = {first}",
            f"    {load}",
        ]

    @property
    def operand_copies(self) -> list[str]:
        """The statements that load a consumer's slice of every operand [m, n]."""
        first = [f"first_{axis} = {at}" for axis, at in self.corner_of("wg").items()]
        return first + [
            f"tma_load({one.name}_desc, [first_m, first_n], bar, "
            f"{one.name}_smem.index(consumer))"
            for one in self.matrices
        ]
