"""Faults of launchers: what they check, make and ask, and of their tables."""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial

from gemmgen.base.ast_edits import Edit, call_of, expression, keyword, with_keyword
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan

_NAME, _OUT, _SHAPE, _DTYPE, _INPUTS = range(5)
"""Arguments of `output` and `outputs`; `tensor` has the shape at the same place."""
_SEVERAL = "CHECK.outputs"
_RESULTS = "CHECK.output", _SEVERAL
_BOUND, _SM = 4096, 200


def launcher_families(plan: Plan) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    for name in [one.name for one in plan.passed]:
        yield "axes of a tensor exchanged", _other_axes(name)
        yield "input not held against out", _not_held(name)
    for axis in sorted({*"mnk"} - {_sliced(plan)}):
        yield "blocks along another axis, or of a whole tile", _other_slices(plan, axis)
    yield "inputs not rounded", _not_rounded
    for place in range(2):
        yield "size not checked", _unchecked(place)
    yield "number rounded", _rounded
    for place in range(len(plan.results)):
        yield "result of another type", _made(partial(_of_another_type, place))
    yield "result made once", _made(_kept)
    yield "result not contiguous", _made(_spread)
    yield "last row bounded", _last_row(2, _BOUND)
    yield "last row for newer GPUs alone", _last_row(1, _SM)


def _without(nodes: list[ast.expr], name: str) -> list[ast.expr] | None:
    """The expressions without a name; None if it is not among them, or alone."""
    left = [one for one in nodes if ast.unparse(one) != name]
    return left if 0 < len(left) < len(nodes) else None


def _other_axes(name: str) -> Edit:
    """A matrix that is stored the other way round, as far as launches know."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Dict):
            return None
        axes = {ast.unparse(key): at for at, key in enumerate(node.keys) if key}
        at = axes.get(repr(name))
        value = node.values[at] if at is not None else None
        if not isinstance(value, ast.Constant) or len(str(value.value)) != 2:
            return None
        new = copy.deepcopy(node)
        new.values[at or 0] = ast.Constant(str(value.value)[::-1])
        return new

    return edit


def _sliced(plan: Plan) -> str:
    """The axis along which consumers have slices of a tile, if there are any."""
    if not plan.specialized:
        return ""
    return SCHEDULES[plan.specialized].shared_axis(plan.product.kind, plan.layout)


def _other_slices(plan: Plan, axis: str) -> Edit:
    """Descriptors of consumers' slices along an axis, or along none."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "Launches")
        if call is None or not plan.specialized:
            return None
        kept = [one for one in call.keywords if one.arg != "shared"]
        told = ast.keyword("shared", ast.Constant(axis))
        return ast.Call(call.func, call.args, [*kept, told])

    return edit


def _not_rounded(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "Launches")
    rounds = call is not None and keyword(call, "to_tf32")
    return with_keyword(call, "to_tf32", None) if call and rounds else None


def _not_held(name: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, *_RESULTS)
        held = call.args[_INPUTS] if call else None
        left = _without(held.elts, name) if isinstance(held, ast.Tuple) else None
        if call is None or left is None:
            return None
        return _with(call, _INPUTS, ast.Tuple(left, ast.Load()))

    return edit


def _unchecked(place: int) -> Edit:
    """A size that may be any: a text says that in a shape."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, "CHECK.tensor")
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
    call = call_of(node, "CHECK.number")
    return expression(f"round({ast.unparse(call)}, 1)") if call else None


def _made(change: Callable[[ast.Call], str]) -> Edit:
    """Another result where none is given."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, *_RESULTS)
        if call is None:
            return None
        given = ast.unparse(call.args[_OUT])
        text = f"{ast.unparse(call)} if {given} is not None else {change(call)}"
        return expression(text)

    return edit


def _of_another_type(place: int, call: ast.Call) -> str:
    types = copy.deepcopy(call.args[_DTYPE])
    several = types.elts if isinstance(types, ast.Tuple) else [types]
    is_fp64 = "float64" in ast.unparse(several[place])
    several[place] = expression(f"torch.{'float32' if is_fp64 else 'float64'}")
    changed = types if isinstance(types, ast.Tuple) else several[place]
    return ast.unparse(_with(call, _DTYPE, changed))


def _kept(call: ast.Call) -> str:
    key = f"({ast.unparse(call.args[_NAME])}, {ast.unparse(call.args[_SHAPE])})"
    return f"vars(Checks.output).setdefault({key}, {ast.unparse(call)})"


def _spread(call: ast.Call) -> str:
    text = ast.unparse(call)
    if call_of(call, _SEVERAL):
        return f"tuple(torch.stack([one] * 2, -1)[..., 0] for one in {text})"
    return f"torch.stack([{text}] * 2, -1)[..., 0]"


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
