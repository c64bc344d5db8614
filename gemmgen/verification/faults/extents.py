"""Faults that show beyond a few tiles alone: many of them, long sums, many parts."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression


def extent_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield "columns beyond the second tile", _spanned("N")
    yield "rows beyond the second tile", _spanned("M")
    yield "K beyond 4096", _ended("min({}, 4096)")
    yield "last block of multiples of 512 lost", _ended("{} - (K % 512 == 0) * BLOCK_K")
    yield "parts beyond the sixteenth", _parts
    for step in ("SIZE", "STEP"):
        yield "sum begins with who comes last", _exchanged(
            f"i * {step}", f"(i + tl.program_id(1)) % SPLIT_K * {step}"
        )


def _spanned(size: str) -> Edit:
    """Offsets along an axis, of which those beyond its second tile are outside."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "span", "span_in")
        if call is None or ast.unparse(call.args[2]) != size:
            return None
        least = expression(f"min({size}, 2 * BLOCK_{size})")
        return ast.Call(call.func, [*call.args[:2], least, *call.args[3:]], [])

    return edit


def _exchanged(before: str, after: str) -> Edit:
    """One expression in place of another, wherever a function has it."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.FunctionDef) or before not in ast.unparse(node):
            return None
        return _Exchange(before, after).visit(copy.deepcopy(node))

    return edit


class _Exchange(ast.NodeTransformer):
    """Puts one expression in place of another."""

    def __init__(self, before: str, after: str) -> None:
        self.before, self.after = before, after

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.unparse(node) == self.before:
            return expression(self.after)
        return self.generic_visit(node)


def _ended(end: str) -> Edit:
    """A loop over the blocks of all of K that ends elsewhere."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "range", "tl.range")
        if call is None or len(call.args) != 3:
            return None
        first, last, step = call.args
        if ast.unparse(last) not in ("K", "k_end", "k_end - k_begin"):
            return None
        new = expression(end.format(ast.unparse(last)))
        return ast.Call(call.func, [first, new, step], call.keywords)

    return edit


def _parts(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "range", "tl.range")
    if call is None or [ast.unparse(one) for one in call.args] != ["SPLIT_K"]:
        return None
    return ast.Call(call.func, [expression("min(SPLIT_K, 16)")], call.keywords)
