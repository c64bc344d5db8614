"""Faults of what happens to the product before it is stored."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression, keyword, with_keyword
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import OPS


def epilogue_families(plan: Plan) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault of an epilogue, with the edit that makes it."""
    yield "NaN dropped", _without_nan
    for name in plan.contraction.accumulators:
        yield "rounded before the epilogue", _rounded_early(plan, name)
    yield "operand under the other axis", _other_axis
    for one in plan.operands:
        if one.is_matrix:
            yield "operand of another tile", _first_tile(one.name)
        yield "operand dropped", _without_operand(one.name)
        yield "factor added", _added_factor(one.name)
    for function in plan.epilogue.functions:
        if function in OPS:
            yield "function dropped", _without_call(OPS[function].called)
            yield "function before its sum", _early_call(OPS[function].called)


def _without_nan(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or not keyword(node, "propagate_nan"):
        return None
    return with_keyword(node, "propagate_nan", None)


_SUMMING = ("tl.dot", "sum_splits", "multiply")
"""What adds to a sum before any epilogue reads it."""
_LOOKING = ("load_part", "part_columns", "part_rows")
"""What looks only at the layout and the sides of a part's sum."""


def _rounded_early(plan: Plan, name: str) -> Edit:
    """A sum rounded to the result's type where the epilogue reads it.

    What is only rounded is the same rounded twice. With no epilogue the product that is
    transposed back is rounded next.
    """
    outs = {one.dtype for one in plan.results}
    plain = plan.epilogue.is_empty
    narrow, wide = DTYPES[plan.out].triton, DTYPES[plan.accumulator].triton

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or narrow == wide or len(outs) > 1:
            return None
        if not _reads(node.value, name) or call_of(node.value, *_SUMMING):
            return None
        text = ast.unparse(node.value)
        turned = text in (f"{name}.T", f"{name}.permute((1, 0))")
        if text == f"{name}.to(tl.{narrow})" or (plain and turned):
            return None
        rounded = _Renamed(name, f"{name}.to(tl.{narrow}).to(tl.{wide})")
        new = copy.deepcopy(node)
        new.value = rounded.visit(new.value)
        return ast.fix_missing_locations(new)

    return edit


def _reads(node: ast.AST, name: str) -> bool:
    """Whether the values of a block are read, not only what it is like."""
    if isinstance(node, ast.Attribute) and node.attr in (
        "dtype",
        "numel",
        "shape",
        "type",
    ):
        return False
    if isinstance(node, ast.Name):
        return node.id == name
    if call_of(node, *_LOOKING):
        return False
    return any(_reads(part, name) for part in ast.iter_child_nodes(node))


class _Renamed(ast.NodeTransformer):
    """Puts an expression in place of a name, wherever that is read."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == self.name and isinstance(node.ctx, ast.Load):
            return expression(self.text)
        return node


def _other_axis(node: ast.AST) -> ast.AST | None:
    """A vector operand read along the axis that it does not have."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        text = ast.unparse(node)
        if "tl.load(" in text and "[None, :]" not in text:
            swapped = text
            for old, new in (("offs_m", "offs_§"), ("offs_n", "offs_m"), ("§", "n")):
                swapped = swapped.replace(old, new)
            return ast.parse(swapped).body[0]
    return None


def _is_operand(node: ast.expr, name: str) -> bool:
    """Whether this is an operand's value, spread over a tile or not."""
    bare = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(bare, ast.Name) and bare.id == name


def _without_operand(name: str) -> Edit:
    """An operand's value in the epilogue replaced by nothing: 0, or 1 as a factor."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.BinOp):
            return None
        if _is_operand(node.left, name):
            return node.right
        return node.left if _is_operand(node.right, name) else None

    return edit


def _added_factor(name: str) -> Edit:
    """A scale used as a summand."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            return None
        if not any(_is_operand(one, name) for one in (node.left, node.right)):
            return None
        return ast.BinOp(node.left, ast.Add(), node.right)

    return edit


def _without_call(function: str) -> Edit:
    """A function's first argument in place of its call."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, function)
        return call.args[0] if call and call.args else None

    return edit


def _early_call(function: str) -> Edit:
    """f(x + y) as f(x) + y, and so with every operator."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, function)
        if call is None or not call.args or not isinstance(call.args[0], ast.BinOp):
            return None
        inner = call.args[0]
        early = ast.Call(call.func, [inner.left, *call.args[1:]], call.keywords)
        return ast.BinOp(early, inner.op, inner.right)

    return edit


def _first_tile(name: str) -> Edit:
    """A matrix operand whose rows are all the first one."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or f"{name}_offs = offs_m" not in (
            text := ast.unparse(node)
        ):
            return None
        return ast.parse(text.replace("offs_m[:, None]", "offs_m[:, None] * 0")).body[0]

    return edit
