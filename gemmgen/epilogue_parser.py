"""The epilogue language: text → `Epilogue`, with every mistake located.

Parses with Python's own `ast` and keeps only what the grammar names.
"""

import ast
import keyword
import math
import re
from collections.abc import Callable, Iterable

from gemmgen.epilogue import AXES, Epilogue, Operand, Statement
from gemmgen.errors import Location, SpecError, not_built, one_of, quoted, unknown
from gemmgen.expression import Binary, Call, Name, Negate, Node, Number, names
from gemmgen.functions import OPS
from gemmgen.reserved import is_reserved

MAX_CHARACTERS = 4096
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


class _Mistake(Exception):
    """A message and the offset in the text that it is about."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message


def compile_epilogue(
    text: str,
    default_target: str,
    taken: Iterable[str],
    locate: Callable[[int], Location],
) -> Epilogue:
    """Check `text` and return its `Epilogue`; raise a `SpecError` at its first mistake.

    `default_target` names the result of a bare expression, `taken` the names that the
    operation's own operands have; `locate` maps an offset in `text` to its place.
    """
    body = text.lstrip(" \n")
    margin = len(text) - len(body)
    try:
        return _Parser(body, default_target, frozenset(taken)).epilogue()
    except _Mistake as mistake:
        raise SpecError(locate(margin + mistake.offset), mistake.message) from None


class _Parser:
    """One pass over the syntax tree of an epilogue."""

    def __init__(self, text: str, default_target: str, taken: frozenset[str]) -> None:
        self.text = text
        # A scalar's empty index is no Python: it is parsed as a call without arguments.
        self.readable = re.sub(r"\[( *)\]", r"(\1)", text)
        self.default_target = default_target
        self.taken = taken | set(FUNCTIONS)
        self.lines = [0]
        for line in text.split("\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)
        self.operands: dict[str, Operand] = {}
        self.axes: dict[str, frozenset[str]] = {"acc": frozenset("mn")}
        self.used: set[str] = set()

    def fail(self, node: ast.AST, message: str) -> _Mistake:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return _Mistake(self.lines[line - 1] + column, message)

    def epilogue(self) -> Epilogue:
        statements = tuple(self.statement(node) for node in self.syntax())
        if "acc" not in self.used:
            raise _Mistake(0, "epilogue never uses 'acc', the product")
        return Epilogue(statements, tuple(self.operands.values()))

    def syntax(self) -> list[ast.stmt]:
        """The statements as Python parses them; indentation of the block is ignored."""
        self.screen()
        try:
            body = ast.parse(self.readable).body
        except SyntaxError as error:
            line = min(error.lineno or 1, len(self.lines) - 1)
            offset = self.lines[line - 1] + max(error.offset or 1, 1) - 1
            raise _Mistake(offset, f"epilogue is no expression: {error.msg}") from None
        except (MemoryError, RecursionError):
            raise _Mistake(0, "epilogue nests too deep to be read") from None
        if not body:
            raise _Mistake(0, "epilogue is empty; leave it out for 'acc'")
        if len(body) == 1 and isinstance(body[0], ast.Expr):
            target = ast.Name(self.default_target, lineno=1, col_offset=0)
            return [ast.Assign([target], body[0].value, lineno=1, col_offset=0)]
        return body

    def screen(self) -> None:
        """Refuse what the grammar can never hold before Python's parser sees it."""
        if len(self.text) > MAX_CHARACTERS:
            raise _Mistake(
                0,
                f"epilogue has {len(self.text)} characters; at most {MAX_CHARACTERS}",
            )
        for offset, character in enumerate(self.text):
            if character != "\n" and not " " <= character <= "~":
                raise _Mistake(
                    offset, f"epilogue holds the character {character!a}; plain "
                    "ASCII only"
                )  # fmt: skip
            if character in "#\\'\"`;@":
                raise _Mistake(offset, f"epilogue cannot hold {quoted(character)}")

    def statement(self, node: ast.stmt) -> Statement:
        if not (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            raise self.fail(node, "each statement of an epilogue must be 'name = …'")
        target = node.targets[0]
        implied = target.id == self.default_target
        if not implied:
            self.new_name(target, target.id, "result")
        if target.id in self.axes:
            raise self.fail(target, f"{quoted(target.id)} is already a name")
        value, axes = self.node(node.value, 0)
        self.axes[target.id] = axes
        return Statement(target.id, value, tuple(sorted(axes)))

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
        """A subtree and the axes along which its value varies."""
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
                op = _OPERATORS[type(node.op)]
                return Binary(op, left, right), left_axes | right_axes
            case ast.Call() if self.is_scalar(node):
                return self.operand(node, node.func, ())
            case ast.Call():
                return self.call(node, depth)
            case ast.Subscript():
                return self.operand(node, node.value, self.index(node))
            case ast.Compare():
                raise self.fail(
                    node, "a comparison may only be the first argument of where(…)"
                )
        text = ast.get_source_segment(self.text, node) or ""
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

    def is_scalar(self, node: ast.Call) -> bool:
        """Whether a call stands for an empty index, as in `alpha[]`."""
        line, column = node.func.end_lineno or 1, node.func.end_col_offset or 0
        return self.text[self.lines[line - 1] + column :].lstrip(" ").startswith("[")

    def operand(
        self, node: ast.expr, base: ast.expr, axes: tuple[str, ...]
    ) -> tuple[Node, frozenset[str]]:
        if not isinstance(base, ast.Name):
            raise self.fail(node, "only an operand's name can have an index")
        name = base.id
        if name in self.axes:
            raise self.fail(node, f"{quoted(name)} is no operand and has no index")
        if name not in self.operands:
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
            raise self.fail(
                node.slice,
                "an operand's index is none of what it may be "
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
                node, "where(…) needs one comparison first, such as acc > 0"
            )
        op = _COMPARISONS.get(type(node.ops[0]))
        if op is None:
            raise self.fail(node, "comparisons are < <= > >= == !=")
        left, left_axes = self.node(node.left, depth)
        right, right_axes = self.node(node.comparators[0], depth)
        return Binary(op, left, right), left_axes | right_axes
