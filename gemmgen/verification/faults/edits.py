"""Edits of the parts of a warp-specialized kernel, of which its faults are made."""

import ast
import copy
from collections.abc import Callable, Iterable, Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression, keyword, with_keyword

WAIT, ARRIVE, EXPECT = "mbarrier.wait", "mbarrier.arrive", "mbarrier.expect"
FENCE, STORE_WAIT = "hopper.fence_async_shared", "tma.store_wait"
COPIES = {"tma_load": 1, "load_piece": 2, "load_pieces": 1, "load_parts": 1}
STORES = {"tma_store": 1, "store_piece": 2}
"""What moves blocks, and which argument is the corner, or its first coordinate."""
OTHER = {
    "full": "empty",
    "empty": "full",
    "operand_full": "operand_empty",
    "operand_empty": "operand_full",
    "order": "empty",
}
"""The barrier that is taken for another."""


def _calls(node: ast.AST, functions: tuple[str, ...]) -> bool:
    """Whether a statement does nothing but call one of these functions."""
    if not isinstance(node, (ast.Expr, ast.Assign)):
        return False
    return call_of(node.value, *functions) is not None


def dropped(functions: Iterable[str]) -> Edit:
    """A statement dropped that does nothing but call one of these functions."""

    def edit(node: ast.AST) -> ast.AST | None:
        return ast.Pass() if _calls(node, tuple(functions)) else None

    return edit


def changed(function: str, place: int, form: str) -> Edit:
    """An argument replaced by what a form makes of it."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, function)
        if call is None:
            return None
        new = copy.copy(call)
        new.args = list(call.args)
        old = f"({ast.unparse(call.args[place])})"
        new.args[place] = expression(form.format(old))
        return new

    return edit


def counted(form: str) -> Edit:
    """A barrier that is initialized for another number of arrivals."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "mbarrier.init")
        count = keyword(call, "count") if call else None
        if call is None or count is None:
            return None
        value = expression(form.format(ast.unparse(count.value)))
        return with_keyword(call, "count", value)

    return edit


def replaced(old: str, new: str) -> Edit:
    """An expression of this text that is read, replaced."""

    def edit(node: ast.AST) -> ast.AST | None:
        kinds = (ast.BinOp, ast.Call, ast.Compare, ast.IfExp)
        read = isinstance(node, kinds) or isinstance(
            getattr(node, "ctx", None), ast.Load
        )
        return expression(new) if read and ast.unparse(node) == old else None

    return edit


def replacements(faults: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, Edit]]:
    """By the kind of each fault, what is replaced and by what: the edits."""
    for name, old, new in faults:
        yield name, replaced(old, new)


def _indexed(node: ast.AST) -> tuple[ast.Call, str] | None:
    """A call `name.index(i)` or `names[j].index(i)`, and what is indexed."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    ring = node.func.value
    if node.func.attr != "index" or not isinstance(ring, (ast.Name, ast.Subscript)):
        return None
    return node, ast.unparse(ring)


def other_block(old: str, new: str) -> Edit:
    """Another index of a ring or of tiles."""

    def edit(node: ast.AST) -> ast.AST | None:
        found = _indexed(node)
        if found is None or found[1] in OTHER or ast.unparse(found[0].args[0]) != old:
            return None
        return ast.Call(found[0].func, [expression(new)], [])

    return edit


def other_barrier(function: str) -> Edit:
    """A call with another barrier of the same index."""

    def changed(call: ast.Call, name: str) -> ast.expr | None:
        index = ast.unparse(call.args[0])
        other = OTHER.get(name)
        return expression(f"{other}.index({index})") if other else None

    return _first_argument(function, changed)


def next_stage(function: str) -> Edit:
    """The barrier after the one, or of the other consumer."""

    def changed(call: ast.Call, name: str) -> ast.expr | None:
        index = ast.unparse(call.args[0])
        other = f"({index} + 1) % STAGES" if name in ("full", "empty") else "0"
        return expression(f"{name}.index({other})")

    return _first_argument(function, changed)


def _first_argument(
    function: str, changed: Callable[[ast.Call, str], ast.expr | None]
) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, function)
        found = _indexed(call.args[0]) if call else None
        first = changed(*found) if found else None
        if call is None or first is None:
            return None
        return ast.Call(call.func, [first, *call.args[1:]], call.keywords)

    return edit


def behind(first: str, second: str, body: str = "body") -> Edit:
    """A statement with a text moved behind the next of its body with another."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, (ast.For, ast.FunctionDef, ast.If)):
            return None
        statements = getattr(node, body, [])
        texts = [ast.unparse(one) for one in statements]
        places = [
            at
            for at, (text, one) in enumerate(zip(texts, statements, strict=True))
            if first in text and not isinstance(one, ast.For)
        ]
        at = places[0] if places else len(texts)
        later = [i for i in range(at + 1, len(texts)) if second in texts[i]]
        if not later:
            return None
        new = copy.deepcopy(node)
        moved = getattr(new, body)
        moved.insert(later[0], moved.pop(at))
        return new

    return edit


def ahead(first: str, second: str) -> Edit:
    """A statement with a text moved before one of its body with another."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, (ast.For, ast.FunctionDef)):
            return None
        texts = [ast.unparse(one) for one in node.body]
        later = [at for at, text in enumerate(texts) if text.startswith(first)]
        found = [at for at, text in enumerate(texts) if second in text]
        if not later or not found or later[0] < found[0]:
            return None
        new = copy.deepcopy(node)
        new.body.insert(found[0], new.body.pop(later[0]))
        return new

    return edit


def bounded(old: str, new: str) -> Edit:
    """A bound of a loop replaced."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "range")
        if call is None or old not in (
            texts := [ast.unparse(one) for one in call.args]
        ):
            return None
        texts[texts.index(old)] = new
        return ast.Call(call.func, [expression(one) for one in texts], [])

    return edit


def without_term(term: str) -> Edit:
    """A sum without its last term."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
            return None
        return node.left if ast.unparse(node.right) == term else None

    return edit


def same_k(node: ast.AST) -> ast.AST | None:
    """The corner of blocks that are loaded, at the first of K."""
    call = call_of(node, *COPIES)
    texts = [ast.unparse(one) for one in call.args] if call else []
    if call is None or "k" not in texts:
        return None
    new = copy.copy(call)
    new.args = list(call.args)
    new.args[texts.index("k")] = ast.Constant(0)
    return new


def swapped_corner(node: ast.AST) -> ast.AST | None:
    """The corner of what is loaded or stored, its coordinates exchanged."""
    call = call_of(node, *COPIES, *STORES)
    if call is None:
        return None
    new = copy.deepcopy(call)
    at = {**COPIES, **STORES}[ast.unparse(call.func)]
    corner = new.args[at]
    if isinstance(corner, ast.List):
        corner.elts.reverse()
    else:
        new.args[at : at + 2] = reversed(new.args[at : at + 2])
    return new


def shortened(function: str, place: int, old: str, new: str) -> Edit:
    """Shared memory, or barriers, for fewer than there are."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, function)
        text = ast.unparse(call.args[place]) if call else ""
        if not text.startswith(old):
            return None
        return changed(function, place, text.replace(old, new, 1))(node)

    return edit


def misnumbered(node: ast.AST) -> ast.AST | None:
    """The second consumer takes itself for the first."""
    second = isinstance(node, ast.Tuple) and ast.unparse(node) == "(consumer, 1)"
    return expression("(consumer, 0)") if second else None


def otherwise(name: str) -> Edit:
    """An argument of this name, which is true or false, as the other."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.keyword) or node.arg != name:
            return None
        return ast.keyword(name, expression(f"not {ast.unparse(node.value)}"))

    return edit
