"""The text of the warp-specialised kernel, whose roles run beside each other.

Adds to `ConsumerText` what producer and consumers each take, and what they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.render.consumer_text import ConsumerText, along_k
from gemmgen.render.names import grouped, packed

_LOADS, _OPERANDS, _SUMS = "loads", "operands", "sums"
"""What the kernel calls that which it passes to the producer, and to consumers."""


@dataclass(frozen=True)
class Role:
    """One of the parts of a program: what it is passed, under which name."""

    name: str
    names: Sequence[str]
    constants: Sequence[str] = ()

    @property
    def passes(self) -> str:
        """The statement by which the kernel names that."""
        return packed(self.name, self.names, indent=4)

    @property
    def signature(self) -> str:
        """Its function's parameters."""
        constants = [f"{name}: tl.constexpr" for name in self.constants]
        return grouped([self.names, constants])


@dataclass(frozen=True)
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

    @property
    def producer(self) -> Role:
        """What the producer takes for A and B."""
        tensors = [one.name for one in self.plan.contraction.inputs]
        names = [
            *(f"{name}_desc" for name in tensors),
            *(f"{name}_smem" for name in tensors),
            *("full", "empty", "M", "N", "K"),
        ]
        return Role(_LOADS, names)

    @property
    def operands(self) -> Role:
        """What it takes for operands [m, n], nothing if there are none."""
        kinds = ("desc", "smem") if self.matrices else ()
        names = [
            f"({''.join(f'{one.name}_{kind}, ' for one in self.matrices).strip()})"
            for kind in kinds
        ]
        return Role(_OPERANDS, [*names, *self.operand_barriers])

    @property
    def consumer(self) -> Role:
        """What each consumer takes, beside its number."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        stored = "_desc" if self.described("results") else "_ptr"
        names = [
            *(one.parameter.partition(":")[0] for one in others),
            *(one.name + stored for one in self.plan.results),
            *(f"{one.name}_smem" for one in self.plan.contraction.inputs),
            *(f"{name}_smem" for name in self._own_buffers),
            *("full", "empty", "order"),
            *self.operand_barriers,
            *("M", "N", "K"),
            *self.strides,
        ]
        return Role(_SUMS, names, (*self.schedule.constants, "CONSUMER"))

    @property
    def roles(self) -> list[Role]:
        """What the kernel names to pass it on."""
        return [self.producer, *[self.operands] * bool(self.matrices), self.consumer]

    @property
    def passed(self) -> list[str]:
        """What the roles are passed: consumers, producer, the same for operands."""
        return [_SUMS, _LOADS, _OPERANDS if self.matrices else "()"]

    @property
    def inputs_along_k(self) -> list[str]:
        """How A and B lie."""
        return [
            f"A_K_MAJOR={along_k(self.plan.contraction.lhs)}",
            f"B_K_MAJOR={along_k(self.plan.contraction.first)}",
        ]

    @property
    def _own_buffers(self) -> list[str]:
        """The operands [m, n] and results that have a buffer of their own."""
        return [name for name, other in self.buffers.items() if not other]

    @property
    def shared(self) -> list[str]:
        """The statements that allocate shared memory, and make barriers ready."""
        counts = {one.name: "STAGES" for one in self.plan.contraction.inputs}
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
    def operand_barriers(self) -> list[str]:
        """The barriers of operands [m, n], of which every consumer has two."""
        return ["operand_full", "operand_empty"] if self.matrices else []
