"""The text of the warp-specialised kernel, whose roles run beside each other.

Adds to `ConsumerText` what producer and consumers each take, and what they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.base.names import grouped, line, packed
from gemmgen.render.consumer_text import ConsumerText, along_k

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
        passed = [*self.names, "loads", "M, N, K, SPLIT_K"]
        return grouped([passed, constants])


@dataclass(frozen=True)
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

    @property
    def operands(self) -> Role:
        """What it takes for operands [m, n], nothing if there are none."""
        names = [one.name for one in self.matrices]
        pairs = [
            f"({''.join(f'{self.moved_by(name)}, ' for name in names).strip()})",
            f"({''.join(f'{name}_smem, ' for name in names).strip()})",
        ]
        return Role(_OPERANDS, [*pairs, *self.operand_barriers])

    @property
    def consumer(self) -> Role:
        """What each consumer takes, beside its number."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        described = self.described("results")
        names = [
            *(one.parameter.partition(":")[0] for one in others),
            *(
                self.moved_by(one.name) if described else f"{one.name}_ptr"
                for one in self.plan.results
            ),
            *(f"{name}_smem" for name in self._own_buffers),
            *self.operand_barriers,
            "partials_ptr",
            "counters_ptr",
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
        lhs, rhs = self.plan.contraction.lhs, self.plan.contraction.first
        inputs = [self.moved_by(one.name) for one in (lhs, rhs)]
        operands = _OPERANDS if self.matrices else "()"
        passed = ["consume", _SUMS, *inputs, operands, "M", "N", "K", "SPLIT_K"]
        how = [
            f"A_K_MAJOR={along_k(lhs)}",
            f"B_K_MAJOR={along_k(rhs)}",
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
        matrices = [one.name for one in self.matrices]
        own = [name for name in self._own_buffers if name not in matrices]
        lines = [
            f"{name}_boxes = boxes_of({name}_desc, {name}_rest_desc)"
            for name in self.composed
        ]
        if self._own_buffers:
            lines.append("CONSUMERS: tl.constexpr = NUM_WGS + (NUM_WGS == 1)")
        lines += [f"{name}_smem = {self._parts(name)}" for name in matrices]
        lines += [
            f"{name}_smem = store_buffers({name}_desc, CONSUMERS, BLOCK_M)"
            for name in own
        ]
        operands = ["operand_full, operand_empty = ring(CONSUMERS, 1)"]
        return lines + operands * bool(matrices)

    def _parts(self, name: str) -> str:
        """The buffers of an operand [m, n], one for each part of a tile's rows."""
        if not self.swap_ab:
            return f"(buffers({name}_desc, CONSUMERS),)"
        return f"part_buffers({self.moved_by(name)}, CONSUMERS, BLOCK_M)"

    @property
    def composed(self) -> list[str]:
        """The tensors that have a second descriptor, for what is left of a side."""
        if not self.composes:
            return []
        stored = self.plan.results if self.described("results") else ()
        names = [self.right.name, *(one.name for one in self.matrices)]
        return names + [one.name for one in stored]

    def descriptors(self, name: str) -> list[str]:
        """The parameters by which a tensor comes that has descriptors."""
        rest = [f"{name}_rest_desc"] * (name in self.composed)
        return [f"{name}_desc", *rest]

    def moved_by(self, name: str) -> str:
        """What the pieces of a tensor are moved by."""
        if name == self.left.name:
            return f"{name}_desc"
        return f"{name}_boxes" if name in self.composed else f"({name}_desc,)"

    @property
    def operand_barriers(self) -> list[str]:
        """The barriers of operands [m, n], of which every consumer has two."""
        return ["operand_full", "operand_empty"] if self.matrices else []
