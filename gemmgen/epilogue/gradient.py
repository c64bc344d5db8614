"""The derivative of an epilogue: the same language, from results back to the sum.

Statements are gone through backwards: each adds to the gradients of the names that it
reads. That of a name is a statement too, so that no expression is repeated, however
often it is used.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

from gemmgen.base.errors import Location
from gemmgen.epilogue.algebra import (
    ZERO,
    addends,
    negated,
    over,
    plus,
    simplified,
    times,
    total,
    where,
)
from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import (
    Binary,
    Call,
    Name,
    Negate,
    Node,
    names,
    substituted,
    walk,
)
from gemmgen.epilogue.parser import FUNCTIONS, compile_epilogue
from gemmgen.tables.functions import OPS

BOTH = ("m", "n")


def gradient_name(name: str) -> str:
    """What the gradient of a name is called."""
    return f"grad_{name}"


@dataclass(frozen=True)
class Derivative:
    """`statements` that compute gradients, and where that of each name is found.

    They start from the gradients `given` of results, and read names of the epilogue.
    What is found is a name, or an expression that only one gradient is.
    """

    given: tuple[str, ...]
    statements: tuple[Statement, ...]
    gradients: Mapping[str, Node]

    @property
    def used(self) -> frozenset[str]:
        """Every name that is read, gradients included."""
        nodes = [*(one.value for one in self.statements), *self.gradients.values()]
        return frozenset(name for node in nodes for name in names(node))

    @cached_property
    def _sources(self) -> Mapping[str, frozenset[str]]:
        """What of `given` each name is computed from that is a gradient."""
        found = {one: frozenset([one]) for one in self.given}
        for one in self.statements:
            used = (found.get(name, frozenset()) for name in names(one.value))
            found[one.target] = frozenset[str]().union(*used)
        return found

    def sources(self, node: Node) -> tuple[str, ...]:
        """What of `given` an expression is computed from, in that order."""
        used = {one for name in names(node) for one in self._sources.get(name, ())}
        return tuple(one for one in self.given if one in used)

    def terms(self, node: Node) -> list[tuple[Node, tuple[str, ...]]]:
        """What is added up to a gradient; of `given`, what each term cannot do without.

        Where a result has no gradient, a term of that alone counts for nothing, however
        infinite what it is multiplied with. The term of a whole sum is there if that
        is; what is given is added as it stands, so that zeros count for nothing.
        """
        whole, found = self.sources(node), []
        for one in addends(node):
            own = self.sources(one)
            value = one.value if isinstance(one, Negate) else one
            as_it_stands = isinstance(value, Name) and own == (value.name,)
            found.append((one, () if as_it_stands or own == whole else own))
        return found

    def ordered(self) -> "Derivative":
        """The same with those terms of each sum last that may be left out."""

        def moved(node: Node) -> Node:
            terms = self.terms(node)
            if not any(needed for _, needed in terms):
                return node
            return total(
                one for one, _ in sorted(terms, key=lambda term: term[1] != ())
            )

        return self._with(moved)

    def where_given(self, given: Collection[str]) -> "Derivative":
        """What is left of it where these alone are given; 0 for no gradient."""

        def left(node: Node) -> Node:
            terms = addends(node)
            return total(one for one in terms if {*self.sources(one)} & {*given})

        return self._with(left)

    def _with(self, change: Callable[[Node], Node]) -> "Derivative":
        stated = [replace(one, value=change(one.value)) for one in self.statements]
        gradients = {name: change(node) for name, node in self.gradients.items()}
        return replace(self, statements=tuple(stated), gradients=gradients)


def derivative(
    statements: Sequence[Statement],
    results: Collection[str],
    wanted: Collection[str],
    known: Collection[str],
) -> Derivative:
    """The gradients of the names `wanted`, from those of `results`.

    The statements are `stepwise`, so that none has a function in a larger expression.
    Of the names `known` the values are at hand: a function that is one of them may have
    a derivative that needs nothing else.
    """
    found: dict[str, Node] = {one: Name(gradient_name(one)) for one in results}
    reaching = _reaching(statements, wanted)
    made: list[Statement] = []
    for one in reversed(statements):
        incoming = found.pop(one.target, ZERO)
        if incoming == ZERO or one.target not in reaching:
            continue
        if not isinstance(incoming, Name):
            named = gradient_name(one.target) + "_total" * (one.target in results)
            made.append(Statement(named, incoming, BOTH))
            incoming = Name(named)
        for name, part in _parts(one, incoming, reaching, one.target in known):
            found[name] = plus(found.get(name, ZERO), part)
    given = tuple(map(gradient_name, results))
    gradients = {name: found.get(name, ZERO) for name in wanted}
    return Derivative(given, tuple(made), gradients).ordered()


def _reaching(
    statements: Sequence[Statement], wanted: Collection[str]
) -> frozenset[str]:
    """The names whose values depend on those that are wanted."""
    reaching = set(wanted)
    for one in statements:
        if reaching & set(names(one.value)):
            reaching.add(one.target)
    return frozenset(reaching)


def _parts(
    statement: Statement, incoming: Node, reaching: frozenset[str], known: bool
) -> Iterator[tuple[str, Node]]:
    """What a statement adds to the gradient of each name that it reads."""

    def flow(node: Node, g: Node) -> Iterator[tuple[str, Node]]:
        if g == ZERO or not reaching & set(names(node)):
            return
        match node:
            case Name(name):
                yield name, g
            case Negate(inside):
                yield from flow(inside, negated(g))
            case Binary(op, left, right):
                parts = _OPERATORS[op](left, right, g)
                yield from flow(left, parts[0])
                yield from flow(right, parts[1])
            case Call("where", (condition, x, y)):
                yield from flow(x, where(condition, g, ZERO))
                yield from flow(y, where(condition, ZERO, g))
            case Call(function, arguments):
                slopes = _slopes(function, known)
                values = _values(function, arguments, Name(statement.target))
                for argument, slope in zip(arguments, slopes, strict=True):
                    yield from flow(argument, times(g, substituted(slope, values)))

    return flow(statement.value, incoming)


_OPERATORS: dict[str, Callable[[Node, Node, Node], tuple[Node, Node]]] = {
    "+": lambda x, y, g: (g, g),
    "-": lambda x, y, g: (g, negated(g)),
    "*": lambda x, y, g: (times(g, y), times(g, x)),
    # No y * y, which may be beyond the range where the quotient is not.
    "/": lambda x, y, g: (over(g, y), negated(over(over(times(g, x), y), y))),
}
"""The gradients of both sides, from that of the result."""


def _values(
    function: str, arguments: Sequence[Node], result: Node
) -> Mapping[str, Node]:
    """What the names of a function's derivative stand for."""
    return {
        **dict(zip(OPS[function].parameters, arguments, strict=True)),
        "f": result,
    }


@cache
def _slopes(function: str, from_result: bool) -> tuple[Node, ...]:
    """The derivatives of a function, over its parameters and its result `f`."""
    row = OPS[function]
    texts = row.partials
    if from_result and row.of_result:
        texts = (row.of_result,)
    return tuple(simplified(_expression(text)) for text in texts)


def _expression(text: str) -> Node:
    """A derivative of the table; whatever is no function is a name of its own."""
    used = [one for one in re.findall(r"[a-z_]\w*", text) if one not in FUNCTIONS]
    found = compile_epilogue(
        text, tuple(dict.fromkeys(used)), "slope_", (), lambda _: Location(text, 1, 1)
    )
    return found.statements[0].value


def without_derivative(statements: Sequence[Statement]) -> list[str]:
    """The functions that are called and have no derivative."""
    called = [
        part.function
        for one in statements
        for part in walk(one.value)
        if isinstance(part, Call) and part.function in OPS
    ]
    return [one for one in dict.fromkeys(called) if not OPS[one].partials]
