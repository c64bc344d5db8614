"""The faults that only some schedules can have: of descriptors, parts of K and sums."""

import ast
import copy
from collections.abc import Iterable, Iterator

from gemmgen.base.ast_edits import Edit, passed_as


def split_k_faults(sums: Iterable[str]) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it, in a kernel of such `sums`."""
    yield "coordinates swapped", _swapped_coordinates
    for name in sums:
        yield "product not transposed back", _statement(f"{name} = {name}.T")
    yield "sum along the other axis", _other_sum
    yield "part runs to the end of K", _bound(0)
    yield "part runs past the end of K", _bound(1)
    yield "last part lost", _fewer_parts
    yield "barrier dropped", _statement("tl.debug_barrier()")
    for tile in ("tl.program_id(0)", "slice_id"):
        yield "count not reset", _statement(f"tl.store(counters_ptr + {tile}, 0)")
    yield "counted before it is kept", _counted_first
    yield "count compared with one less", _earlier
    yield "no part reduces", _compared(ast.Lt())
    yield "every part reduces", _compared(ast.GtE())
    yield "atomic relaxed", passed_as("sem", "'acq_rel'", "'relaxed'")
    yield "atomic released only", passed_as("sem", "'acq_rel'", "'release'")
    yield "atomic of one SM", passed_as("scope", "'gpu'", "'cta'")


def _statement(text: str) -> Edit:
    """The statement dropped."""

    def edit(node: ast.AST) -> ast.AST | None:
        whole = isinstance(node, (ast.Assign, ast.Expr))
        return ast.Pass() if whole and ast.unparse(node) == text else None

    return edit


def _swapped_coordinates(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if not ast.unparse(node.func).endswith(("_desc.load", "_desc.store")):
        return None
    new = copy.deepcopy(node)
    assert isinstance(new.args[0], ast.List)
    new.args[0].elts.reverse()
    return new


def _other_sum(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Call) and ast.unparse(node) == "tl.sum(products, axis=1)":
        return ast.parse("tl.sum(products, axis=0)", mode="eval").body
    return None


def _bound(kept: int) -> Edit:
    """One side of `min(K, k_begin + length)`."""

    def edit(node: ast.AST) -> ast.AST | None:
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node) == "min(K, k_begin + length)"
        ):
            return node.args[kept]
        return None

    return edit


def _fewer_parts(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("range"):
        return None
    if [ast.unparse(argument) for argument in node.args] != ["SPLIT_K"]:
        return None
    fewer = ast.parse("SPLIT_K - 1", mode="eval").body
    return ast.Call(node.func, [fewer], node.keywords)


def _counted(node: ast.AST) -> ast.Compare | None:
    """The comparison that tells who came last."""
    if isinstance(node, ast.Compare) and ast.unparse(node.left) == "before":
        return node
    return None


def _earlier(node: ast.AST) -> ast.AST | None:
    found = _counted(node)
    if found is None:
        return None
    fewer = ast.parse("SPLIT_K - 2", mode="eval").body
    return ast.Compare(found.left, found.ops, [fewer])


def _compared(how: ast.cmpop) -> Edit:
    """The same with 0: whoever comes is the last, or nobody is."""

    def edit(node: ast.AST) -> ast.AST | None:
        found = _counted(node)
        return ast.Compare(found.left, [how], [ast.Constant(0)]) if found else None

    return edit


def _counted_first(node: ast.AST) -> ast.AST | None:
    """A split that is counted, and then kept."""
    name = "orelse" if isinstance(node, ast.If) else "body"
    body = getattr(node, name, [])
    last = body[-1] if isinstance(node, (ast.FunctionDef, ast.If)) and body else None
    if not isinstance(last, ast.Return) or "counts_last(" not in ast.unparse(last):
        return None
    new = copy.deepcopy(node)
    counted = ast.Assign([ast.Name("last", ast.Store())], getattr(new, name)[-1].value)
    kept = getattr(new, name)[:-1]
    setattr(new, name, [counted, *kept, ast.Return(ast.Name("last", ast.Load()))])
    return new
