"""The tree of an epilogue expression and its two spellings: spec and Triton.

Text is always made anew from a tree, never pasted: nothing of a spec's own characters
reaches a generated module.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from ctypes import c_float
from dataclasses import dataclass

from gemmgen.tables.functions import OPS

_COMPARISON = 0
PRECEDENCE = dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON)
PRECEDENCE |= {"+": 1, "-": 1, "*": 2, "/": 2, "@": 2}
_NEGATE, _ATOM = 3, 4


@dataclass(frozen=True)
class Number:
    """A finite constant."""

    value: float


@dataclass(frozen=True)
class Name:
    """`acc`, an operand or an earlier result."""

    name: str


@dataclass(frozen=True)
class Negate:
    """Unary minus."""

    value: "Node"


@dataclass(frozen=True)
class Binary:
    """`left op right` for an operator of `PRECEDENCE`."""

    op: str
    left: "Node"
    right: "Node"


@dataclass(frozen=True)
class Call:
    """A function of `OPS`, or `where`, applied to its arguments."""

    function: str
    arguments: tuple["Node", ...]


Node = Number | Name | Negate | Binary | Call


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node, in reading order."""
    match node:
        case Negate(value):
            return (value,)
        case Binary(_, left, right):
            return (left, right)
        case Call(_, arguments):
            return arguments
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in reading order."""
    yield node
    for child in children(node):
        yield from walk(child)


def names(node: Node) -> Iterator[str]:
    """Every name used, in reading order, repeats included."""
    return (part.name for part in walk(node) if isinstance(part, Name))


def spell(
    node: Node,
    name: Callable[[str], str] = str,
    call: Callable[[str], str] = str,
    number: Callable[[float], str] = repr,
    argument: Callable[[Call, Node, str], str] = lambda *given: given[-1],
) -> str:
    """The node as Python text with the fewest brackets; callbacks spell the leaves.

    `argument` has the last word on what is passed in a call.
    """

    def at(part: Node, level: int) -> str:
        text, own = spelled(part)
        return text if own >= level else f"({text})"

    def spelled(part: Node) -> tuple[str, int]:
        match part:
            case Number(value):
                return number(value), _ATOM if value >= 0 else _NEGATE
            case Name(text):
                return name(text), _ATOM
            case Negate(value):
                return f"-{at(value, _NEGATE)}", _NEGATE
            case Binary(op, left, right):
                level = PRECEDENCE[op]
                return f"{at(left, level)} {op} {at(right, level + 1)}", level
            case Call(function, arguments):
                inner = ", ".join(argument(part, one, at(one, 0)) for one in arguments)
                return f"{call(function)}({inner})", _ATOM

    return at(node, 0)


def substituted(node: Node, nodes: Mapping[str, Node]) -> Node:
    """The tree with others in the place of these names."""
    return exchanged(node, {Name(name): other for name, other in nodes.items()})


def exchanged(node: Node, others: Mapping[Node, Node]) -> Node:
    """The tree with others in the place of these parts."""
    if node in others:
        return others[node]
    match node:
        case Negate(value):
            return Negate(exchanged(value, others))
        case Binary(op, left, right):
            return Binary(op, exchanged(left, others), exchanged(right, others))
        case Call(function, arguments):
            return Call(function, tuple(exchanged(one, others) for one in arguments))
    return node


def short_number(value: float) -> str:
    """A constant as prose writes it: whole numbers without a point."""
    whole = value == int(value) and abs(value) < 1e6
    return str(int(value)) if whole else repr(value)


def in_triton(
    node: Node, spelled: Mapping[str, str], numbers: Collection[str], told: str
) -> str:
    """The node as a kernel has it, in which some names are `spelled` otherwise.

    Triton takes a number for fp32 unless it meets a tensor in arithmetic. Where that is
    of a type which has to be `told`, so have values and arguments of `numbers` alone.
    """

    def typed(part: Node, text: str) -> str:
        alone = told and set(names(part)) <= set(numbers)
        return f"tl.full((), {text}, {told})" if alone else text

    def argument(call: Call, part: Node, text: str) -> str:
        values = [one for one in call.arguments if not _compares(one)]
        meets = any(set(names(one)) - set(numbers) for one in values)
        exact = isinstance(part, Number) and c_float(part.value).value == part.value
        return text if part not in values or (exact and meets) else typed(part, text)

    def name(text: str) -> str:
        return spelled.get(text, text)

    return typed(node, spell(node, name, _triton_function, argument=argument))


def _compares(node: Node) -> bool:
    return isinstance(node, Binary) and PRECEDENCE[node.op] == _COMPARISON


def _triton_function(function: str) -> str:
    return "tl.where" if function == "where" else OPS[function].called
