"""The derivative of an epilogue: the same language, from results back to the sum.

Every call of a function becomes a statement, as does its argument. They are gone
through backwards: each adds to the gradients of the names that it reads. That of a name
is a statement too, so that no expression is repeated, however often it is used.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, count

from gemmgen.base.errors import Location
from gemmgen.epilogue.algebra import (
    ZERO,
    negated,
    over,
    plus,
    simplified,
    times,
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

    They start from the gradients of results, and read names of the epilogue. What is
    found is a name, or an expression that only one gradient is.
    """

    statements: tuple[Statement, ...]
    gradients: Mapping[str, Node]

    @property
    def used(self) -> frozenset[str]:
        """Every name that is read, gradients included."""
        nodes = [*(one.value for one in self.statements), *self.gradients.values()]
        return frozenset(name for node in nodes for name in names(node))


def stepwise(
    statements: Sequence[Statement], axes: Mapping[str, Sequence[str]]
) -> tuple[Statement, ...]:
    """The same with a statement for each call of a function and each of its arguments.

    `axes` are those of the names that are there at the start. What a function is called
    with becomes `pre`, what it returns `gelu_1`; equal ones are one.
    """
    return tuple(_Steps(statements, axes).made)


class _Steps:
    """Statements taken apart."""

    def __init__(
        self, statements: Sequence[Statement], axes: Mapping[str, Sequence[str]]
    ) -> None:
        self.made: list[Statement] = []
        self.axes = {name: frozenset(own) for name, own in axes.items()}
        self.taken = {*axes, *(one.target for one in statements)}
        self.named: dict[Node, str] = {}
        for one in statements:
            match one.value:
                case Call(function, arguments) if function != "where":
                    value: Node = Call(function, tuple(map(self.argument, arguments)))
                case _:
                    value = self.apart(one.value)
            self.state(one.target, value)

    def state(self, target: str, value: Node) -> Node:
        """A statement more; its name."""
        axes = frozenset[str]().union(*(self.axes[name] for name in names(value)))
        self.axes[target] = axes
        self.named.setdefault(value, target)
        self.made.append(Statement(target, value, tuple(sorted(axes))))
        return Name(target)

    def apart(self, node: Node) -> Node:
        """A node with the calls in it as statements of their own."""
        match node:
            case Negate(value):
                return Negate(self.apart(value))
            case Binary(op, left, right):
                return Binary(op, self.apart(left), self.apart(right))
            case Call("where", arguments):
                return Call("where", tuple(map(self.apart, arguments)))
            case Call(function, arguments):
                value = Call(function, tuple(map(self.argument, arguments)))
                return self.as_name(value, f"{function}_1", function)
        return node

    def argument(self, node: Node) -> Node:
        """A function's argument: a name, or a number."""
        own = self.apart(node)
        return own if not any(names(own)) else self.as_name(own, "pre", "pre")

    def as_name(self, value: Node, first: str, stem: str) -> Node:
        """The name of a value, a new one if it has none."""
        if isinstance(value, Name):
            return value
        if value in self.named:
            return Name(self.named[value])
        more = (f"{stem}_{number}" for number in count(2))
        name = next(one for one in chain((first,), more) if one not in self.taken)
        self.taken.add(name)
        return self.state(name, value)


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
    return Derivative(tuple(made), {name: found.get(name, ZERO) for name in wanted})


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
