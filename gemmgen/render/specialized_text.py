"""The text of the warp-specialised kernel, whose roles run beside each other.

Adds to `ConsumerText` what producer and consumers each take, and what they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.render.consumer_text import ConsumerText, along_k
from gemmgen.render.names import grouped, line, packed

_OPERANDS, _SUMS = "operands", "sums"
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
        passed = [*self.names, "loads", "M, N, K"]
        return grouped([passed, constants])


@dataclass(frozen=True)
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

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
            *(f"{name}_smem" for name in self._own_buffers),
            *self.operand_barriers,
            *self.strides,
        ]
        return Role(_SUMS, names, (*self.schedule.constants, "CONSUMER"))

    @property
    def roles(self) -> list[Role]:
        """What the kernel names to pass it on."""
        return [*[self.operands] * bool(self.matrices), self.consumer]

    @property
    def arguments_of_specialize(self) -> str:
        """What the roles are passed, constants, how A and B lie."""
        inputs = [f"{one.name}_desc" for one in (self.plan.a, self.plan.b)]
        operands = _OPERANDS if self.matrices else "()"
        passed = ["consume", _SUMS, *inputs, operands, "M", "N", "K"]
        how = [
            f"A_K_MAJOR={along_k(self.plan.a)}",
            f"B_K_MAJOR={along_k(self.plan.b)}",
            *["SWAP_AB=False"] * (not self.swap_ab),
        ]
        groups = passed, [*self.schedule.constants], how
        return "\n".join(line(group, 8) for group in groups)

    @property
    def _own_buffers(self) -> list[str]:
        """The operands [m, n] and results that have a buffer of their own."""
        return [name for name, other in self.buffers.items() if not other]

    @property
    def shared(self) -> list[str]:
        """The statements that allocate shared memory, and make barriers ready."""
        if not self._own_buffers:
            return []
        operands = ["operand_full, operand_empty = ring(CONSUMERS, 1)"]
        return [
            "CONSUMERS: tl.constexpr = NUM_WGS + (NUM_WGS == 1)",
            *(
                f"{name}_smem = buffers({name}_desc, CONSUMERS)"
                for name in self._own_buffers
            ),
            *operands * bool(self.matrices),
        ]

    @property
    def operand_barriers(self) -> list[str]:
        """The barriers of operands [m, n], of which every consumer has two."""
        return ["operand_full", "operand_empty"] if self.matrices else []
