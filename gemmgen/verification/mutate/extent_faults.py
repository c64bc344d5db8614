"""Faults that show beyond a few tiles alone: many of them, long sums, many parts."""

import ast
import copy
from collections.abc import Iterator
from typing import TypeGuard

from gemmgen.base.ast_edits import Edit, call_of, expression


def extent_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield "columns beyond the second tile", _replaced(
        "offs_n < N", "offs_n < min(N, 2 * BLOCK_N)"
    )
    yield "rows beyond the second tile", _replaced(
        "offs_m < M", "offs_m < min(M, 2 * BLOCK_M)"
    )
    yield "K beyond 4096", _ended("min(K, 4096)")
    yield "last block of multiples of 512 lost", _ended("K - (K % 512 == 0) * BLOCK_K")
    yield "parts beyond the sixteenth", _parts
    yield "sum begins with who comes last", _replaced(
        "i * SIZE", "(i + tl.program_id(1)) % SPLIT_K * SIZE"
    )


def _replaced(before: str, after: str) -> Edit:
    """One expression in place of another, in a kernel that has what it names."""
    wanted = {part.id for part in ast.walk(expression(after)) if _is_constant(part)}

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.FunctionDef) or before not in ast.unparse(node):
            return None
        if not wanted <= {one.arg for one in node.args.args}:
            return None
        return _Exchange(before, after).visit(copy.deepcopy(node))

    return edit


def _is_constant(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id.isupper()


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
        if call is None or len(call.args) != 3 or ast.unparse(call.args[1]) != "K":
            return None
        first, _, step = call.args
        return ast.Call(call.func, [first, expression(end), step], call.keywords)

    return edit


def _parts(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "range", "tl.range")
    if call is None or [ast.unparse(one) for one in call.args] != ["SPLIT_K"]:
        return None
    return ast.Call(call.func, [expression("min(SPLIT_K, 16)")], call.keywords)
