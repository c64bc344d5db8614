"""The kinds of fault that Python around kernels can have: launchers, what they share.

Each is an edit of one node of a syntax tree; jitted functions are left alone.
"""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression
from gemmgen.verification.faults.expressions import box_families, call_families

_MOST_PARTS = 8
"""Operands, elements or arguments of one node that are dropped, each in its turn."""
_TYPES = ("Callable", "Mapping", "dict", "tuple")
"""What has brackets that are no lookup."""
_COUNTED = "one_a_split"
"""The grid with a program for each tile, or part."""
_CHANGED = {15: 7, 31: 33}
"""What alignments and widths are taken for."""
_LOOSER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip


def host_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault in any Python, with the edit that makes it."""
    for place in range(_MOST_PARTS):
        yield "condition dropped", _without_operand(place)
        yield "part of a key dropped", _without_key(place)
        yield "argument by name dropped", _without_keyword(place)
        yield "part of a sequence dropped", _without_element(place)
    yield "never taken", _decided(False)
    yield "always taken", _decided(True)
    yield "always true", _returned(True)
    yield "always false", _returned(False)
    yield "bound moved by one", _looser
    yield "with dropped", _without_with
    yield "threads share", _shared
    yield "statement dropped", _without_statement
    yield "limit dropped", _unlimited
    yield "alignment or width changed", _other_number
    yield "sum became largest", _largest
    yield "loop left at once", _left
    yield "bound of min or max dropped", _one_side
    yield "first of several left out", _starred("1:")
    yield "last of several left out", _starred(":-1")
    for place in range(_MOST_PARTS):
        yield "value of another key", _other_value(place)
        yield "a program too few", _fewer_programs(place)
    yield from box_families()
    yield from call_families()


def _without_operand(place: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.BoolOp) or place >= len(node.values):
            return None
        kept = [one for at, one in enumerate(node.values) if at != place]
        return kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)

    return edit


def _fewer(sequence: ast.expr, place: int) -> ast.expr | None:
    """A tuple or list without one of its elements."""
    if not isinstance(sequence, (ast.Tuple, ast.List)):
        return None
    if len(sequence.elts) < 2 or place >= len(sequence.elts):
        return None
    new = copy.copy(sequence)
    new.elts = [one for at, one in enumerate(sequence.elts) if at != place]
    return new


def _without_key(place: int) -> Edit:
    """Where something is looked up, or a list or tuple named `key` is made."""

    def edit(node: ast.AST) -> ast.AST | None:
        new = copy.copy(node)
        if isinstance(node, ast.Subscript):
            typed = ast.unparse(node.value) in _TYPES
            field, value = "slice", None if typed else _fewer(node.slice, place)
        elif (made := _key_of(node)) is not None:
            field, value = "value", _fewer(made, place)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".get"):
            found = _fewer(node.args[0], place)
            field, value = "args", [found, *node.args[1:]] if found else None  # type: ignore[assignment]
        else:
            return None
        setattr(new, field, value)
        return new if value is not None else None

    return edit


def _key_of(node: ast.AST) -> ast.expr | None:
    """What a statement makes `key` of, or adds to it."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        target = node.target
    else:
        return None
    return node.value if ast.unparse(target) == "key" else None


def _without_keyword(place: int) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Call) or place >= len(node.keywords):
            return None
        if node.keywords[place].arg in (None, "strict", "stacklevel"):
            return None
        kept = [one for at, one in enumerate(node.keywords) if at != place]
        return ast.Call(node.func, node.args, kept)

    return edit


def _without_element(place: int) -> Edit:
    """One element of a tuple or list that is an argument, or is returned."""

    def edit(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.keyword):
            value = _fewer(node.value, place)
            return ast.keyword(node.arg, value) if value is not None else None
        if isinstance(node, ast.Return) and node.value is not None:
            value = _fewer(node.value, place)
            return ast.Return(value) if value is not None else None
        return None

    return edit


def _decided(taken: bool) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, (ast.If, ast.IfExp)):
            return None
        new = copy.copy(node)
        new.test = ast.Constant(taken)
        return new

    return edit


def _returned(value: bool) -> Edit:
    """A function that decides something, decided."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.FunctionDef) or node.returns is None:
            return None
        if ast.unparse(node.returns) != "bool":
            return None
        new = copy.copy(node)
        new.body = [ast.Return(ast.Constant(value))]
        return new

    return edit


def _looser(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Compare) or type(node.ops[-1]) not in _LOOSER:
        return None
    last = _LOOSER[type(node.ops[-1])]()
    return ast.Compare(node.left, [*node.ops[:-1], last], node.comparators)


def _without_with(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.With):
        return None
    return ast.If(ast.Constant(True), node.body, [])


def _shared(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.ClassDef):
        return None
    kept = [one for one in node.bases if ast.unparse(one) != "threading.local"]
    if len(kept) == len(node.bases):
        return None
    new = copy.copy(node)
    new.bases = kept
    return new


def _without_statement(node: ast.AST) -> ast.AST | None:
    calls = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if calls or isinstance(node, ast.AugAssign) else None


def _unlimited(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
        return None
    if not ast.unparse(node.targets[0]).startswith("MOST_"):
        return None
    return ast.Assign(node.targets, ast.Constant(10**9))


def _other_number(node: ast.AST) -> ast.AST | None:
    """15 as a mask, 16 as a divisor, 31 as a width."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        number = node.right.value
        other = _CHANGED.get(number) if isinstance(number, int) else None
        if isinstance(node.op, (ast.BitAnd, ast.Pow)) and other is not None:
            return ast.BinOp(node.left, node.op, ast.Constant(other))
        if isinstance(node.op, ast.Mod) and number == 16:
            return ast.BinOp(node.left, node.op, ast.Constant(8))
    call = call_of(node, "math.gcd")
    if call is not None and ast.unparse(call.args[0]) == "16":
        return ast.Call(call.func, [ast.Constant(32), *call.args[1:]], [])
    return None


def _largest(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "sum")
    if call is None:
        return None
    more = [ast.keyword("default", ast.Constant(0))]
    return ast.Call(ast.Name("max", ast.Load()), call.args, more)


def _left(node: ast.AST) -> ast.AST | None:
    return ast.Break() if isinstance(node, ast.Continue) else None


def _one_side(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "min", "max")
    return call.args[-1] if call is not None and len(call.args) == 2 else None


def on_the_host(statement: ast.stmt) -> bool:
    """Whether Python runs a statement of a module, and Triton does not compile it."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return False
    if not isinstance(statement, ast.FunctionDef):
        return "@triton.jit" not in ast.unparse(statement)
    return not any("jit" in ast.unparse(one) for one in statement.decorator_list)


def _starred(part: str) -> Edit:
    """What is unpacked into arguments or a sequence, without its first or last."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Starred) or isinstance(node.ctx, ast.Store):
            return None
        fewer = expression(f"[*{ast.unparse(node.value)}][{part}]")
        return ast.Starred(fewer, ast.Load())

    return edit


def _other_value(place: int) -> Edit:
    """A word that a table of words has for a key, of the next key."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Dict) or place + 1 >= len(node.values):
            return None
        if not all(isinstance(one, ast.Constant) for one in node.values):
            return None
        new = copy.copy(node)
        new.values = list(node.values)
        new.values[place] = node.values[place + 1]
        return new

    return edit


def _fewer_programs(place: int) -> Edit:
    """A grid of a table without its last program, if none goes from tile to tile."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Dict) or place >= len(node.values):
            return None
        grid = ast.unparse(node.values[place])
        if grid != _COUNTED:
            return None
        fewer = f"(lambda first, *rest: (max(1, first - 1), *rest))(*{grid}(*given))"
        new = copy.copy(node)
        new.values = list(node.values)
        new.values[place] = expression(f"lambda *given: {fewer}")
        return new

    return edit
