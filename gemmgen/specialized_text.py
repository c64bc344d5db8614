"""The text of the warp-specialised kernel, whose parts run beside each other.

Adds to `ConsumerText` what the producer and the consumers each take, what they share,
and how an operand [m, n] passes from one to the other.
"""

from dataclasses import dataclass

from gemmgen.consumer_text import ConsumerText
from gemmgen.dtypes import DTYPES
from gemmgen.layouts import Matrix

_BARRIERS = (
    "gl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())"
)


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
class SpecializedText(ConsumerText):
    """The fragments of a warp-specialised kernel."""

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
        stored = "_desc" if self.described("results") else "_ptr"
        return Role(
            (
                *(one.parameter.partition(":")[0] for one in others),
                *(name + stored for name in results),
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
            self._ring(plan.a),
            self._ring(plan.b),
            *(
                f"{name}_tiles = gl.allocate_shared_memory("
                f"tl.{DTYPES[dtype].triton}, [2, {self._sides}], {name}_desc.layout)"
                for name, dtype in tiles
            ),
        ]
        lines += [
            f"{one} = " + _BARRIERS.format(count="STAGES") for one in ("full", "free")
        ]
        return lines + [
            f"{one} = " + _BARRIERS.format(count=2) for one in self.pair_barriers
        ]

    def _ring(self, matrix: Matrix) -> str:
        mine = matrix.name == self.left.name
        blocks = "STAGES * (2 // TEAMS)" if mine else "STAGES"
        other = self.part if mine else f"BLOCK_{self.right.axes[1].upper()}"
        sizes = ["BLOCK_K" if axis == "k" else other for axis in matrix.stored_axes]
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
        return f"{self._sides.replace(', ', ' * ')} * {each}"

    @property
    def left_copy(self) -> str:
        """The descriptor and the corner of a consumer's block of the left matrix."""
        axis = self.left.axes[0]
        first = f"tile_{axis} * BLOCK_{axis.upper()} + i * {self.part}"
        return f"{self.left.name}_desc, {self.left.corner(**{axis: first, 'k': 'k'})}"

    @property
    def right_copy(self) -> str:
        """The descriptor and the corner of a block of the right matrix."""
        axis = self.right.axes[1]
        first = f"tile_{axis} * BLOCK_{axis.upper()}"
        return f"{self.right.name}_desc, {self.right.corner(**{axis: first, 'k': 'k'})}"

    @property
    def operand_corner(self) -> str:
        """The corner of consumer i's part of a tile, for the producer."""
        return f"[{', '.join(self._corner('i'))}]"
