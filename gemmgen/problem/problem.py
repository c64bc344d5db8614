"""One kernel before anything is decided of it: tensors, types, epilogue, work."""

from dataclasses import dataclass

from gemmgen.epilogue.checked import Epilogue
from gemmgen.epilogue.linearity import linear_in
from gemmgen.problem.contraction import Contraction
from gemmgen.problem.tensors import Operand, Result, Tensor
from gemmgen.schedules.parts.tile import Product
from gemmgen.tables.dtypes import DTYPES


@dataclass(frozen=True)
class Problem:
    """What a kernel computes, on any GPU and by any schedule."""

    name: str
    op: str
    layout: str
    contraction: Contraction
    dtype: str
    accumulator: str
    out: str
    precision: str | None
    product: Product
    epilogue: Epilogue
    operands: tuple[Operand, ...]
    results: tuple[Result, ...]

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """The operands that are tensors."""
        return tuple(one for one in self.operands if not one.is_number)

    @property
    def argument_names(self) -> list[str]:
        """What the launcher takes before `out`, in its order."""
        inputs = [one.name for one in self.contraction.inputs]
        return [*inputs, *(one.name for one in self.operands)]

    @property
    def passed(self) -> tuple[Tensor, ...]:
        """The tensors of a call in the launcher's order, its results last."""
        inputs = [
            Tensor(one.name, one.stored_axes, self.dtype, "inputs")
            for one in self.contraction.inputs
        ]
        operands = [one.passed for one in self.tensors]
        return (*inputs, *operands, *(one.passed for one in self.results))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Those of them that a call brings: what is multiplied, then operands."""
        return tuple(one for one in self.passed if one.role != "results")

    @property
    def linear_in(self) -> tuple[str, ...] | None:
        """Sums and operands in parts of which results come that add up, if they do.

        Not those of 8 bits, which saturate: their sum is not the sum's result.
        """
        if any(DTYPES[one.dtype].scaled for one in self.results):
            return None
        epilogue, results = self.epilogue, [one.name for one in self.results]
        tensors = [one.name for one in self.tensors]
        return linear_in(epilogue.statements, epilogue.accumulators, results, tensors)
