"""Faults of launchers: what they check, make and ask, and of their tables."""

import ast
import copy
from collections.abc import Callable, Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression
from gemmgen.select.plan import Plan
from gemmgen.tables.schedules import SCHEDULES, described
from gemmgen.verification.cases.roles import tensor_roles

_NAME, _OUT, _SHAPE, _DTYPE, _INPUTS = 1, 2, 3, 4, 5
"""Arguments of `result`; `check` has the shape at the same place."""
_BOUND, _SM = 4096, 200


def launcher_families(plan: Plan, stem: str) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault of one of a kernel's files, with the edit that makes it."""
    names = [plan.a.name, plan.b.name, *(one.name for one in plan.tensors)]
    names += [one.name for one in plan.results]
    for name, role in zip(names, tensor_roles(plan), strict=True):
        if stem in SCHEDULES and role not in described(stem, plan.product.kind):
            yield "offsets of a tensor forgotten", _not_asked(name)
        yield "tensor not asked whether it is described", _not_described(name)
        yield "input not held against out", _not_held(name)
    for place in range(2):
        yield "size not checked", _unchecked(place)
    yield "number rounded", _rounded
    yield "result of another type", _made(_as_fp64)
    yield "result made once", _made(_kept)
    yield "result not contiguous", _made(_spread)
    yield "last row bounded", _last_row(2, _BOUND)
    yield "last row for newer GPUs alone", _last_row(1, _SM)


def _without(nodes: list[ast.expr], name: str) -> list[ast.expr] | None:
    """The expressions without a name; None if it is not among them, or alone."""
    left = [one for one in nodes if ast.unparse(one) != name]
    return left if 0 < len(left) < len(nodes) else None


def _not_asked(name: str) -> Edit:
    """In a launch that has the tensor as a pointer: others count no offsets."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "offset_type")
        left = _without(call.args, name) if call else None
        return ast.Call(call.func, left, call.keywords) if call and left else None

    return edit


def _not_described(name: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.keyword) or node.arg not in SCHEDULES:
            return None
        value = node.value
        left = _without(value.elts, name) if isinstance(value, ast.Tuple) else None
        return ast.keyword(node.arg, ast.Tuple(left, ast.Load())) if left else None

    return edit


def _not_held(name: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "result")
        held = call.args[_INPUTS] if call else None
        left = _without(held.elts, name) if isinstance(held, ast.Tuple) else None
        if call is None or left is None:
            return None
        return _with(call, _INPUTS, ast.Tuple(left, ast.Load()))

    return edit


def _unchecked(place: int) -> Edit:
    """A size that may be any: a text says that in a shape."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "check")
        shape = call.args[_SHAPE] if call else None
        if call is None or not isinstance(shape, ast.Tuple):
            return None
        if place >= len(shape.elts) or not isinstance(shape.elts[place], ast.Name):
            return None
        sizes = copy.deepcopy(shape)
        sizes.elts[place] = ast.Constant(ast.unparse(shape.elts[place]))
        return _with(call, _SHAPE, sizes)

    return edit


def _with(call: ast.Call, place: int, value: ast.expr) -> ast.Call:
    """The call with another argument."""
    arguments = list(call.args)
    arguments[place] = value
    return ast.Call(call.func, arguments, call.keywords)


def _rounded(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "number")
    return expression(f"round({ast.unparse(call)}, 1)") if call else None


def _made(change: Callable[[ast.Call], str]) -> Edit:
    """Another result where none is given."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "result")
        if call is None:
            return None
        given = ast.unparse(call.args[_OUT])
        text = f"{ast.unparse(call)} if {given} is not None else {change(call)}"
        return expression(text)

    return edit


def _as_fp64(call: ast.Call) -> str:
    other = "float32" if "float64" in ast.unparse(call.args[_DTYPE]) else "float64"
    return ast.unparse(_with(call, _DTYPE, expression(f"torch.{other}")))


def _kept(call: ast.Call) -> str:
    key = f"({ast.unparse(call.args[_NAME])}, {ast.unparse(call.args[_SHAPE])})"
    return f"vars(result).setdefault({key}, {ast.unparse(call)})"


def _spread(call: ast.Call) -> str:
    return f"torch.stack([{ast.unparse(call)}] * 2, -1)[..., 0]"


def _last_row(place: int, value: int) -> Edit:
    """An argument of the table's last tile."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) != "TILES":
            return None
        new = copy.deepcopy(node)
        assert isinstance(new.value, ast.Tuple)
        tile = new.value.elts[-1]
        assert isinstance(tile, ast.Call)
        tile.args[place] = ast.Constant(value)
        return new

    return edit
