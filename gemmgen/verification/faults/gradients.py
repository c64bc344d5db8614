"""Faults of backwards: of the gradients' kernel, and of who calls it and products."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of
from gemmgen.select.plan import Plan


def gradient_families(plan: Plan) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault of a backward, with the edit that makes it."""
    if plan.backward is None:
        return
    yield "gradient scaled", _scaled
    yield "gradient without a factor", _without_factor
    yield "branches of a derivative swapped", _other_branch
    yield "gradient of another value", _another_value(plan)
    yield "not summed", _not_summed
    yield "left uninitialised", _not_stored
    yield "sums of a tile lost", _same_row
    yield "sides of a product swapped", _swapped_sides(plan)
    yield "needs ignored", _never_needed
    yield "results without a gradient ignored", _always_given
    yield "not added to what there is", _not_added


def _gradient(node: ast.AST) -> ast.Assign | None:
    """The node if it states a gradient, and does not load it."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return None
    loaded = "tl.load" in ast.unparse(node.value) or isinstance(node.value, ast.Call)
    stated = node.targets[0].id.startswith("grad_")
    is_choice = call_of(node.value, "tl.where") is not None
    return node if stated and (is_choice or not loaded) else None


def _with_value(node: ast.Assign, value: ast.expr) -> ast.Assign:
    new = copy.copy(node)
    new.value = value
    return ast.fix_missing_locations(new)


def _scaled(node: ast.AST) -> ast.AST | None:
    own = _gradient(node)
    if own is None or "_offs" in ast.unparse(own.targets[0]):
        return None
    return _with_value(own, ast.BinOp(own.value, ast.Mult(), ast.Constant(1.0625)))


def _without_factor(node: ast.AST) -> ast.AST | None:
    own = _gradient(node)
    if own is None or "_offs" in ast.unparse(own.targets[0]):
        return None
    match own.value:
        case ast.BinOp(left, ast.Mult(), _):
            return _with_value(own, left)
    return None


def _other_branch(node: ast.AST) -> ast.AST | None:
    own = _gradient(node)
    call = call_of(own.value, "tl.where") if own else None
    if own is None or call is None:
        return None
    new = copy.copy(call)
    new.args = [call.args[0], call.args[2], call.args[1]]
    return _with_value(own, new)


def _another_value(plan: Plan) -> Edit:
    """The gradient that is given where a value was saved."""
    assert plan.backward is not None
    saved, given = plan.backward.saved, next(iter(plan.backward.incoming))

    def edit(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return ast.Name(given, ast.Load()) if node.id in saved else None
        return None

    return edit


def _not_summed(node: ast.AST) -> ast.AST | None:
    """A tile, or a row or column of one, for the sum of all."""
    if isinstance(node, ast.AugAssign) and ast.unparse(node.target).endswith("_sums"):
        return ast.copy_location(ast.Assign([node.target], node.value), node)
    call = call_of(node, "tl.sum")
    if call is None:
        return None
    new, (added, axis) = copy.copy(call), call.args
    along_n = ast.unparse(axis) == "1"
    block, side = ("BLOCK_N", "[None, :]") if along_n else ("BLOCK_M", "[:, None]")
    text = f"tl.where((tl.arange(0, {block}) == 0){side}, {ast.unparse(added)}, 0.0)"
    new.args = [ast.parse(text, mode="eval").body, axis]
    return ast.fix_missing_locations(new)


def _not_stored(node: ast.AST) -> ast.AST | None:
    """A gradient that is never written."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("_ptr is not None"):
        new = copy.copy(node)
        new.body = [ast.Pass()]
        return ast.fix_missing_locations(new)
    return None


def _same_row(node: ast.AST) -> ast.AST | None:
    """The sums of all tiles in one row."""
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "row":
        match node.value:
            case ast.BinOp(pointer, ast.Add(), _):
                return _with_value(node, pointer)
    return None


def _swapped_sides(plan: Plan) -> Edit:
    """A product of the gradient with its sides the other way round."""
    names = [f"{plan.name}_grad_{one.name}" for one in plan.contraction.inputs]
    names += [f"{name}_added" for name in names]

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, *names)
        if call is None:
            return None
        new = copy.copy(call)
        first, second, *more = call.args
        new.args = [second, first, *more]
        return new

    return edit


def _never_needed(node: ast.AST) -> ast.AST | None:
    """A gradient that is taken for one that nobody needs."""
    if isinstance(node, ast.If) and ast.unparse(node.test).startswith("needs_"):
        new = copy.copy(node)
        new.test = ast.Constant(False)
        return new
    return None


def _always_given(node: ast.AST) -> ast.AST | None:
    """A gradient that is made of results' where none of them has one."""
    if not isinstance(node, ast.If):
        return None
    test = ast.unparse(node.test)
    if test.startswith("grad_") and test.endswith(" is None"):
        new = copy.copy(node)
        new.test = ast.Constant(False)
        return new
    return None


def _not_added(node: ast.AST) -> ast.AST | None:
    """A gradient that is added to another in vain: the sum goes nowhere."""
    if not isinstance(node, ast.Call) or not node.keywords:
        return None
    kept = [one for one in node.keywords if ast.unparse(one) != "out=main_grad"]
    if len(kept) == len(node.keywords):
        return None
    new = copy.copy(node)
    new.keywords = kept
    return new
