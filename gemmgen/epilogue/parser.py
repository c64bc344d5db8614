"""The epilogue language: text → `Epilogue`, with every mistake located.

Parses with Python's own `ast` and keeps only what the grammar names.
"""

import ast
import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from gemmgen.base.errors import (
    Location,
    SpecError,
    SpecErrors,
    not_built,
    one_of,
    quoted,
    unknown,
)
from gemmgen.epilogue.checked import AXES, Epilogue, Operand, Statement, default_target
from gemmgen.epilogue.constants import why_not_computed
from gemmgen.epilogue.expression import Binary, Call, Name, Negate, Node, Number, names
from gemmgen.epilogue.syntax import Mistake, Source
from gemmgen.gate.reserved import is_reserved
from gemmgen.tables.functions import OPS

MAX_DEPTH = 32
FUNCTIONS = (*OPS, "where")

_OPERATORS: dict[type[ast.operator], str] = {
    **{ast.Add: "+", ast.Sub: "-"},
    **{ast.Mult: "*", ast.Div: "/"},
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">"},
    **{ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
}


def compile_epilogue(
    text: str,
    accumulators: Sequence[str],
    result: str,
    taken: Iterable[str],
    locate: Callable[[int], Location],
) -> Epilogue:
    """Check `text` and return its `Epilogue`; raise `SpecErrors` with all its mistakes.

    `accumulators` are the sums that it starts from; `result` is what the result of a
    bare expression is called, unless an operand has that name; `taken` are names that
    operands and results cannot have; `locate` maps an offset in `text` to its place.
    """
    body = text.lstrip(" \n")
    margin = len(text) - len(body)
    parser = _Parser(body, tuple(accumulators), result, frozenset(taken))
    try:
        epilogue = parser.epilogue()
    except Mistake as mistake:  # after which nothing more can be said
        parser.mistakes.append(mistake)
    if parser.mistakes:
        raise SpecErrors(
            SpecError(locate(margin + mistake.offset), mistake.message)
            for mistake in parser.mistakes
        )
    return epilogue


class _Parser:
    """One pass over the syntax tree of an epilogue, which collects mistakes."""

    def __init__(
        self, text: str, sums: tuple[str, ...], result: str, taken: frozenset[str]
    ) -> None:
        self.source = Source(text)
        self.sums = sums
        self.result = result
        self.taken = taken | set(FUNCTIONS)
        self.operands: dict[str, Operand] = {}
        self.axes: dict[str, frozenset[str]] = dict.fromkeys(sums, frozenset("mn"))
        self.used: set[str] = set()
        self.mistakes: list[Mistake] = []

    def fail(self, node: ast.AST, message: str) -> Mistake:
        return self.source.mistake(node, message)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note a mistake after which the rest can still be read."""
        try:
            yield
        except Mistake as mistake:
            self.mistakes.append(mistake)

    def epilogue(self) -> Epilogue:
        statements = tuple(self.statement(node) for node in self.syntax())
        unused = [name for name in self.sums if name not in self.used]
        if unused and not self.mistakes:
            product = "the product" if len(self.sums) == 1 else "one of the products"
            raise Mistake(0, f"epilogue never uses {quoted(unused[0])}, {product}")
        return Epilogue(statements, tuple(self.operands.values()), self.sums)

    @property
    def matrix(self) -> tuple[Node, frozenset[str]]:
        """What a part with a mistake is taken for, so that the rest can be read."""
        return Name(self.sums[0]), frozenset("mn")

    def syntax(self) -> list[ast.stmt]:
        """The statements; a bare expression is one, of the result's default name."""
        body = self.source.statements()
        if len(body) > 1 or not isinstance(body[0], ast.Expr):
            return body
        operands = self.source.operands(body[0])
        target = ast.Name(default_target(self.result, operands))
        return [ast.copy_location(ast.Assign([target], body[0].value), body[0])]

    def statement(self, node: ast.stmt) -> Statement:
        if not (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            message = "each statement of an epilogue must be 'name = …'"
            self.mistakes.append(self.fail(node, message))
            return Statement(self.sums[0], self.matrix[0], ())
        value, axes = self.node(node.value, 0)
        target = node.targets[0]
        with self.collecting():
            self.check_target(target, target.id)
        if target.id not in self.operands:
            self.axes.setdefault(target.id, axes)
        return Statement(target.id, value, tuple(sorted(axes)))

    def check_target(self, node: ast.AST, name: str) -> None:
        """Refuse a result's name that is taken."""
        self.new_name(node, name, "result")
        if name in self.axes:
            raise self.fail(node, f"{quoted(name)} is already a name")
        if name in self.operands:
            index = AXES[self.operands[name].axes].text
            raise self.fail(
                node, f"{quoted(name)} is the operand {name}{index} already"
            )

    def new_name(self, node: ast.AST, name: str, kind: str) -> None:
        """Refuse a name that a generated module could not use."""
        allowed = kind == "result" and name == "out"
        shape = name[0].islower() and name == name.lower() and len(name) <= 63
        if not shape or keyword.iskeyword(name) or keyword.issoftkeyword(name):
            raise self.fail(
                node, f"{kind} {quoted(name)} must be a lower-case Python name"
            )
        if not allowed and (name in self.taken or is_reserved(name)):
            raise self.fail(
                node, f"{kind} {quoted(name)} has a name that the kernel itself uses"
            )

    def node(self, node: ast.expr, depth: int) -> tuple[Node, frozenset[str]]:
        """A subtree and the axes along which its value varies; mistakes are noted."""
        with self.collecting():
            return self.sound(node, depth)
        return self.matrix

    def sound(self, node: ast.expr, depth: int) -> tuple[Node, frozenset[str]]:
        """The same; raises the mistake of the subtree's top."""
        if depth > MAX_DEPTH:
            raise self.fail(node, f"epilogue nests deeper than {MAX_DEPTH}")
        match node:
            case ast.Constant():
                return Number(self.number(node)), frozenset()
            case ast.Name():
                return self.reference(node)
            case ast.UnaryOp(op=ast.USub()):
                value, axes = self.node(node.operand, depth + 1)
                return Negate(value), axes
            case ast.BinOp() if type(node.op) in _OPERATORS:
                left, left_axes = self.node(node.left, depth + 1)
                right, right_axes = self.node(node.right, depth + 1)
                whole = Binary(_OPERATORS[type(node.op)], left, right)
                if reason := why_not_computed(whole):
                    text = quoted(self.source.of(node))
                    raise self.fail(node, f"constant {text} {reason}")
                return whole, left_axes | right_axes
            case ast.Call() if self.source.is_scalar(node):
                return self.operand(node, node.func, ())
            case ast.Call():
                return self.call(node, depth)
            case ast.Subscript():
                return self.operand(node, node.value, self.index(node))
            case ast.Compare():
                raise self.fail(
                    node, "a comparison may only be the first argument of where(…)"
                )
        text = self.source.of(node)
        raise self.fail(
            node,
            f"{quoted(text)} is not part of the epilogue language, which has names, "
            "numbers, + - * /, comparisons in where(…) and functions",
        )

    def number(self, node: ast.Constant) -> float:
        given = node.value
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise self.fail(node, f"{quoted(str(given))} is not a number")
        try:
            value = float(given)
        except OverflowError:
            value = math.inf
        if abs(value) > 3e38:
            raise self.fail(node, "number too large for fp32")
        return value

    def reference(self, node: ast.Name) -> tuple[Node, frozenset[str]]:
        name = node.id
        if name in self.operands:
            raise self.fail(
                node,
                f"operand {quoted(name)} is written with its index, "
                f"{name}{AXES[self.operands[name].axes].text}",
            )
        if name not in self.axes:
            raise self.fail(
                node,
                unknown("name", name, self.axes)
                + "; an operand is written with its index, such as bias[n]",
            )
        self.used.add(name)
        return Name(name), self.axes[name]

    def operand(
        self, node: ast.expr, base: ast.expr, axes: tuple[str, ...]
    ) -> tuple[Node, frozenset[str]]:
        if not isinstance(base, ast.Name):
            raise self.fail(node, "only an operand's name can have an index")
        name = base.id
        if name in self.axes:
            raise self.fail(node, f"{quoted(name)} is no operand and has no index")
        if name not in self.operands:
            with self.collecting():
                self.new_name(node, name, "operand")
            self.operands[name] = Operand(name, axes)
        known = self.operands[name].axes
        if known != axes:
            raise self.fail(
                node, f"operand {quoted(name)} was {name}{AXES[known].text} before"
            )
        return Name(name), frozenset(axes)

    def index(self, node: ast.Subscript) -> tuple[str, ...]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        axes = tuple(part.id for part in parts if isinstance(part, ast.Name))
        if len(axes) == len(parts) and "b" in axes:
            raise self.fail(node.slice, not_built("an operand with a batch index b"))
        if len(axes) != len(parts) or axes not in AXES:
            given = self.source.of(node.slice)
            name = self.source.of(node.value)
            raise self.fail(
                node.slice,
                f"operand {quoted(name)} cannot have the index {quoted(given)} "
                + one_of(row.text for row in AXES.values()),
            )
        return axes

    def call(self, node: ast.Call, depth: int) -> tuple[Node, frozenset[str]]:
        if not isinstance(node.func, ast.Name):
            raise self.fail(node, "only functions of the epilogue language are called")
        name = node.func.id
        if name not in FUNCTIONS:
            raise self.fail(
                node, "epilogue calls " + unknown("function", name, FUNCTIONS)
            )
        parameters = ("cond", "x", "y") if name == "where" else OPS[name].parameters
        if node.keywords or len(node.args) != len(parameters):
            raise self.fail(node, f"call it as {name}({', '.join(parameters)})")
        parts = [
            (
                self.condition(argument, depth + 1)
                if (name, position) == ("where", 0)
                else self.node(argument, depth + 1)
            )
            for position, argument in enumerate(node.args)
        ]
        call = Call(name, tuple(part for part, _ in parts))
        if not any(True for _ in names(call)):
            raise self.fail(node, f"{name}(…) of numbers alone: write its value")
        return call, frozenset().union(*(axes for _, axes in parts))

    def condition(self, node: ast.expr, depth: int) -> tuple[Node, frozenset[str]]:
        if not (isinstance(node, ast.Compare) and len(node.ops) == 1):
            raise self.fail(
                node, f"where(…) needs one comparison first, such as {self.sums[0]} > 0"
            )
        op = _COMPARISONS.get(type(node.ops[0]))
        if op is None:
            raise self.fail(node, "comparisons are < <= > >= == !=")
        left, left_axes = self.node(node.left, depth)
        right, right_axes = self.node(node.comparators[0], depth)
        return Binary(op, left, right), left_axes | right_axes
