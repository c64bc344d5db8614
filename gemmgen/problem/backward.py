"""How the gradients of a kernel are computed: what is saved, and by which kernels.

Of a result f(acc, …) with acc = A · B, the gradient of acc comes element by element
from that of the result; those of A and B are its products with the other matrix, and
that of an operand is its own, summed along the axes that the operand lacks.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from gemmgen.epilogue.algebra import ZERO
from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import (
    Binary,
    Name,
    Negate,
    Node,
    Number,
    names,
    substituted,
)
from gemmgen.epilogue.gradient import (
    Derivative,
    derivative,
    gradient_name,
)
from gemmgen.epilogue.steps import stepwise
from gemmgen.problem.problem import Problem
from gemmgen.tables.dtypes import DTYPES


@dataclass(frozen=True)
class Backward:
    """The plan of a backward.

    `forward` are the statements of the epilogue, one by one. What the backward needs of
    their values is `saved`; `kept` is one of those that the forward has to store beside
    its results. `statements` compute gradients, after what they need is computed again.
    B's gradient may be added to one that there is, if the backward `accumulates`.
    """

    problem: Problem
    forward: tuple[Statement, ...]
    saved: tuple[str, ...]
    kept: str | None
    again: tuple[Statement, ...]
    derivative: Derivative
    accumulates: bool = False

    @property
    def sum(self) -> str:
        """The name of the product."""
        return self.problem.contraction.accumulators[0]

    @property
    def kept_dtype(self) -> str:
        """The type of what the forward stores beside its results."""
        return _precise_enough(self.problem)

    @property
    def incoming(self) -> dict[str, str]:
        """The gradients that are given, each with its dtype."""
        return {gradient_name(one.name): one.dtype for one in self.problem.results}

    def gradient(self, name: str) -> Node:
        """That of the sum or of an operand, [M, N]; 0 where it has none."""
        return self.derivative.gradients[name]

    def sources(self, tensor: str) -> tuple[str, ...]:
        """The gradients that are given which a tensor's is computed from.

        Where all of them are missing, it has none.
        """
        both = [one.name for one in self.problem.contraction.inputs]
        return self.derivative.sources(
            self.gradient(self.sum if tensor in both else tensor)
        )

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that have a gradient."""
        return tuple(
            one.name for one in self.problem.tensors if self.gradient(one.name) != ZERO
        )

    @property
    def factor(self) -> Node | None:
        """What A's and B's products are multiplied with, if the sum's gradient is
        nothing but one that is given and this, a number."""
        return self._split and self._split[1]

    @property
    def direct(self) -> str | None:
        """The gradient that is given which A and B are multiplied with as it stands."""
        return self._split and self._split[0]

    @property
    def _split(self) -> tuple[str, Node] | None:
        own = self.problem.dtype
        numbers = {one.name for one in self.problem.operands if one.is_number}
        for name, dtype in self.incoming.items():
            found = _factor(self.gradient(self.sum), name, numbers)
            if found is not None and dtype == own:
                return name, found
        return None

    @property
    def multiplied(self) -> bool:
        """Whether A and B have gradients at all."""
        return self.gradient(self.sum) != ZERO

    def given(self, operand: str) -> str | None:
        """The gradient that is given which is an operand's, but for a sum."""
        node = self.gradient(operand)
        found = isinstance(node, Name) and node.name in self.incoming
        return node.name if found and isinstance(node, Name) else None

    @property
    def passed(self) -> tuple[str, ...]:
        """The sum and operands whose gradients a pass over matrices computes.

        Sums of what is given are taken in the same pass, if there is one.
        """
        operands = [one for one in self.problem.tensors if one.name in self.operands]
        own = [
            one.name
            for one in operands
            if not self.given(one.name)
            or (one.is_matrix and self.incoming[str(self.given(one.name))] != one.dtype)
        ]
        first = [self.sum] if self.multiplied and self.direct is None else []
        if first or own:
            own = [one.name for one in operands if one.name in own or not one.is_matrix]
        return (*first, *own)

    @property
    def read(self) -> tuple[str, ...]:
        """What the pass reads: gradients that are given, values, operands, in order."""
        nodes = [one.value for one in (*self.again, *self.derivative.statements)]
        nodes += [self.gradient(name) for name in self.passed]
        used = {name for node in nodes for name in names(node)}
        operands = [one.name for one in self.problem.operands]
        return tuple(
            name for name in (*self.incoming, *self.saved, *operands) if name in used
        )

    @property
    def optional(self) -> tuple[str, ...]:
        """The gradients that the pass reads where they are given; one alone is."""
        found = tuple(name for name in self.read if name in self.incoming)
        return found if len(found) > 1 else ()

    @property
    def needed(self) -> frozenset[str]:
        """What of a call and its results gradients are computed from."""
        both = self.problem.contraction.inputs if self.multiplied else ()
        passed = {*self.read, *self.saved} if self.passed else ()
        factors = names(self.factor or ZERO)
        return frozenset({*passed, *(one.name for one in both), *factors})

    @property
    def numbers(self) -> tuple[str, ...]:
        """The operands that are numbers, of what is needed."""
        numbers = [one.name for one in self.problem.operands if one.is_number]
        return tuple(name for name in numbers if name in self.needed)


def backward_of(problem: Problem, accumulates: bool = False) -> Backward:
    """The plan that saves the least: results, or one value more.

    To save a value [M, N] costs a write and a read of it. To compute the product again
    would take longer for any K above a few hundred on every target.
    """
    statements = problem.epilogue.statements
    steps = _steps(problem, statements)
    results = {one.name for one in problem.results}
    more = [one.target for one in steps if one.whole and one.target not in results]
    for kept in (None, *more):
        found = _saving(problem, steps, kept)
        if found is not None:
            break
    else:
        found = _saving(problem, *_product_kept(problem, statements))
    assert found is not None, "with the product at hand nothing is missing"
    return replace(found, accumulates=accumulates and found.multiplied)


def _precise_enough(problem: Problem) -> str:
    """The type of what is saved: that of the inputs, or of `out` if that is wider.

    From a narrower result gradients would be as inexact as it is, or infinite.
    """
    return max(problem.out, problem.dtype, key=lambda name: DTYPES[name].bytes)


def _steps(problem: Problem, statements: Sequence[Statement]) -> tuple[Statement, ...]:
    axes = dict.fromkeys(problem.contraction.accumulators, ("m", "n"))
    return stepwise(statements, axes | {one.name: one.axes for one in problem.operands})


def _product_kept(
    problem: Problem, statements: Sequence[Statement]
) -> tuple[tuple[Statement, ...], str]:
    """The statements with one before them that gives the product a name, and that."""
    (product,) = problem.contraction.accumulators
    taken = {one.target for one in statements} | {one.name for one in problem.operands}
    free = ("product", *(f"product_{number}" for number in range(2, 99)))
    kept = next(name for name in free if name not in taken)
    rest = [
        replace(one, value=substituted(one.value, {product: Name(kept)}))
        for one in statements
    ]
    first = Statement(kept, Name(product), ("m", "n"))
    return _steps(problem, [first, *rest]), kept


def _saving(
    problem: Problem, steps: tuple[Statement, ...], kept: str | None
) -> Backward | None:
    """The plan that has results, and this value; None if it needs others."""
    (product,) = problem.contraction.accumulators
    wanted = [product, *(one.name for one in problem.tensors)]
    results = [one.name for one in problem.results]
    exact = DTYPES[_precise_enough(problem)].bytes
    known = [one.name for one in problem.results if DTYPES[one.dtype].bytes >= exact]
    known += [] if kept is None else [kept]
    found = derivative(steps, results, wanted, known)
    again, used = [], set(found.used)
    for one in reversed(steps):
        if one.target in used and one.target not in known:
            again.append(one)
            used |= set(names(one.value))
    if product in used:
        return None
    saved = tuple(name for name in known if name in used)
    return Backward(problem, steps, saved, kept, tuple(reversed(again)), found)


def _factor(node: Node, name: str, numbers: Collection[str]) -> Node | None:
    """What a name is multiplied with in an expression that is no more than that."""
    match node:
        case Name(found) if found == name:
            return Number(1.0)
        case Negate(value):
            rest = _factor(value, name, numbers)
            return None if rest is None else Negate(rest)
        case Binary("*" | "/" as op, left, right) if set(names(right)) <= set(numbers):
            rest = _factor(left, name, numbers)
            if rest == Number(1.0) and op == "*":
                return right
            return None if rest is None else Binary(op, rest, right)
    return None
