"""Statements taken apart for derivatives, so that none has a function in a sum.

Every call of a function becomes a statement, as does its argument.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, count

from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import Binary, Call, Name, Negate, Node, names


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
