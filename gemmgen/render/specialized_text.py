"""The text of the warp-specialised kernel: what of it the shared roles are told.

Groups of four warps multiply. Each has its slice of the left side's rows, from shared
memory or from registers; the right side, in shared memory, is one for all of a tile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.base.names import WIDTH, line
from gemmgen.problem.tensors import Operand
from gemmgen.render.kernel_text import KernelText
from gemmgen.tables.layouts import Matrix

_INDENT = 8
"""Columns before the arguments of a call in a kernel."""


@dataclass(frozen=True)
class SpecializedText(KernelText):
    """The fragments of a warp-specialised kernel, in the order in which it reads."""

    @property
    def cuts_rows(self) -> bool:
        """Whether consumers cut the rows of any tile, whatever its sides are."""
        plan = self.plan
        return self.schedule.shared_axis(plan.product.kind, plan.layout) == "m"

    @property
    def composes(self) -> bool:
        """Whether a side may be the sum of several powers of two."""
        plan = self.plan
        return self.schedule.composes(plan.product.kind, plan.layout)

    @property
    def lhs_in_registers(self) -> bool:
        """Whether wgmma takes its left side from registers."""
        plan = self.plan
        return self.schedule.from_registers(plan.product.kind, plan.layout)

    @property
    def finishing(self) -> str:
        """What is done with each part of a sum, in words."""
        if self.plan.epilogue.is_empty:
            return "Store a part of a tile."
        return "Apply the epilogue to a part of a tile, and store it."

    @property
    def matrices(self) -> list[Operand]:
        """The operands indexed [m, n], which the producer loads."""
        return [one for one in self.plan.operands if one.is_matrix]

    @property
    def given(self) -> list[str]:
        """What finishes a part of a tile beside that: vectors, numbers, pointers."""
        others = [one for one in self.plan.operands if not one.is_matrix]
        stored = [] if self.described("results") else self.plan.results
        return [
            *(one.parameter.partition(":")[0] for one in others),
            *(f"{one.name}_ptr" for one in stored),
            *self.strides,
        ]

    @property
    def loads_of_operands(self) -> list[str]:
        """The statements that bring the epilogue's operands into registers."""
        spans = {"m": "part_rows", "n": "part_columns"}
        vectors = [tensor for tensor in self.plan.tensors if not tensor.is_matrix]
        return [
            *(
                f"offs_{axis}, mask_{axis} = {spans[axis]}(part, acc)"
                for axis in self._pointer_axes
            ),
            *(line for tensor in vectors for line in tensor.loads),
            *(
                f"{one.name} = load_part(part, {number}, acc){one.cast}"
                for number, one in enumerate(self.matrices)
            ),
        ]

    @property
    def _pointer_axes(self) -> list[str]:
        """The axes that some pointer is indexed by."""
        vectors = [one for one in self.plan.tensors if not one.is_matrix]
        used = {axis for one in vectors for axis in one.axes}
        return sorted(used if self.described("results") else {"m", "n"})

    @property
    def stores(self) -> list[str]:
        """The statements that store a part of the results."""
        if not self.described("results"):
            return self.stores_by_pointers
        values = ", ".join(packed(list(map(self.stored, self.plan.results))))
        return [f"store_part(part, {values})"]

    @property
    def decorator(self) -> str:
        """`@gluon.jit`, told that M needs no kernel of its own where no pointer runs.

        Of an M that is a multiple of 16 masks of pointers along it are wider.
        """
        told = "" if "m" in self._pointer_axes else '(do_not_specialize=["M"])'
        return f"@gluon.jit{told}"

    @property
    def composed(self) -> list[str]:
        """The tensors that have a second descriptor, for what is left of a side."""
        if not self.composes:
            return []
        stored = self.plan.results if self.described("results") else ()
        names = [self.plan.contraction.lhs.name, self.plan.contraction.first.name]
        names += [one.name for one in self.matrices]
        return names + [one.name for one in stored]

    def descriptors(self, name: str) -> list[str]:
        """The parameters by which a tensor comes that has descriptors."""
        rest = [f"{name}_rest_desc"] * (name in self.composed)
        return [f"{name}_desc", *rest]

    def _boxes(self, name: str) -> str:
        """A tensor's descriptors, as one value."""
        if name in self.composed:
            return f"boxes_of({name}_desc, {name}_rest_desc)"
        return f"({name}_desc,)"

    @property
    def reasons(self) -> list[str]:
        """Why the left side comes from registers, if it does."""
        if not self.lhs_in_registers:
            return []
        both = self.plan.contraction
        left = both.lhs if self.cuts_rows else both.first
        return [
            "# wgmma reads tf32 in shared memory along K alone, which is not how",
            f"# {left.name} lies: it comes from registers"
            f"{', as the left side' * (not self.cuts_rows)}.",
        ]

    @property
    def arguments_of_specialize(self) -> str:
        """What finishes parts; tensors, sizes, constants; how A and B lie."""
        lhs, rhs = self.plan.contraction.lhs, self.plan.contraction.first
        results = self.plan.results if self.described("results") else ()
        names = {
            "operands": [one.name for one in self.matrices],
            "results": [one.name for one in results],
        }
        how = [
            f"A_K_MAJOR={along_k(lhs)}",
            f"B_K_MAJOR={along_k(rhs)}",
            *["SWAP_AB=False"] * self.cuts_rows,
            *["LEFT_IN_REGISTERS=True"] * self.lhs_in_registers,
        ]
        inputs = [self._boxes(one.name) for one in (lhs, rhs)]
        groups = (
            ["finish_part", *packed(self.given)],
            inputs,
            ["partials_ptr", "counters_ptr", "M", "N", "K", "SPLIT_K"],
            [*self.schedule.constants],
            [
                word
                for role, tensors in names.items()
                for word in packed([self._boxes(name) for name in tensors], role)
            ],
            how,
        )
        return "\n".join(line(group, _INDENT) for group in groups)


def packed(values: Sequence[str], name: str = "") -> list[str]:
    """A tuple, which may come by name, in one word or in words that make up lines."""
    text = f"({', '.join(values)}{',' * (len(values) == 1)})"
    text = f"{name}={text}" if name else text
    return [text] if _INDENT + len(text) < WIDTH else text.split(", ")


def along_k(matrix: Matrix) -> bool:
    """Whether a K block of a matrix lies along K."""
    return matrix.contiguous_axis == "k"
