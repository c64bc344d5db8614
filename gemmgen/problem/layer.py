"""A kernel as a layer: which arguments are parameters, what of torch it stands for."""

from dataclasses import dataclass

from gemmgen.epilogue.expression import (
    Binary,
    Name,
    Node,
    exchanged,
    names,
    short_number,
    spell,
    substituted,
    walk,
)
from gemmgen.problem.problem import Problem
from gemmgen.problem.tensors import Operand

BIAS = "bias"
"""The operand that is a parameter, if it has a value for each column."""
_LINEAR = Name("x")
_LONGEST = 100
"""Parts of an activation, more than any of torch's has; statements that use a name
twice each double them."""


@dataclass(frozen=True)
class Layer:
    """A kernel whose right matrix, and bias if it has one, are nn.Linear's."""

    problem: Problem

    @property
    def bias(self) -> Operand | None:
        """The operand that is a parameter, if there is one."""
        bound = (one for one in self.problem.operands if one.name == BIAS)
        return next((one for one in bound if one.axes == ("n",)), None)

    @property
    def parameters(self) -> dict[str, str]:
        """nn.Linear's names of the arguments that are parameters."""
        held = {self.problem.contraction.first.name: "weight"}
        return held | ({BIAS: BIAS} if self.bias else {})

    @property
    def passed(self) -> list[str]:
        """The arguments that each call brings, in the launcher's order."""
        held = self.parameters
        return [name for name in self.problem.argument_names if name not in held]

    @property
    def activation(self) -> str | None:
        """What becomes of nn.Linear's result x, as text of the language.

        None where that is not all: more operands, results or another type.
        """
        (result, *more), epilogue = self.problem.results, self.problem.epilogue
        known: dict[str, Node] = {name: Name(name) for name in epilogue.accumulators}
        parts = dict.fromkeys(known, 1)
        for one in epilogue.statements:
            called = (getattr(part, "name", "") for part in walk(one.value))
            parts[one.target] = sum(parts.get(name, 1) for name in called)
            if parts[one.target] > _LONGEST:
                return None
            known[one.target] = substituted(one.value, known)
        value = self._of_linear(known[result.value])
        alike = result.dtype == self.problem.dtype and not more
        if alike and len(self.passed) == 1 and {*names(value)} == {_LINEAR.name}:
            return spell(value, number=short_number)
        return None

    def _of_linear(self, node: Node) -> Node:
        """An expression with x in the place of what nn.Linear computes."""
        (product,) = self.problem.epilogue.accumulators
        if self.bias is None:
            return substituted(node, {product: _LINEAR})
        pair = Name(product), Name(BIAS)
        sums = (Binary("+", *pair), Binary("+", *pair[::-1]))
        return exchanged(node, dict.fromkeys(sums, _LINEAR))
