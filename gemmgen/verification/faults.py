"""The kinds of fault that mutants have, each an edit of one node of a syntax tree."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.dtypes import DTYPES
from gemmgen.functions import OPS
from gemmgen.plan import Plan
from gemmgen.verification.meetings import Edit, meetings


def families(plan: Plan) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield "left mask term dropped", _mask_term("left")
    yield "right mask term dropped", _mask_term("right")
    yield "mask dropped", _without_mask
    yield "< became <=", _less_or_equal
    yield "last of K lost", _shorter_loop
    yield "last of K masked", _tighter_mask
    yield "cdiv became floor", _floor_division
    yield "accumulation dropped", _lone_dot
    yield "accumulator narrowed", _narrow
    yield "pointer not advanced", _no_advance
    yield "swizzle without its minimum", _no_minimum
    yield "other is one", _other_one
    yield "both others are one", _others_one
    yield "NaN dropped", _without_nan
    yield "rounded before the epilogue", _rounded_early(plan)
    yield "offsets in 32 bits", _narrow_offsets
    yield "operand under the other axis", _other_axis
    yield "program id ignored", _no_program_id
    yield from meetings()
    strides = [*plan.a.strides, *plan.b.strides]
    strides += [stride for one in plan.tensors for stride in one.strides]
    strides += [stride for one in plan.results for stride in one.matrix.strides]
    for stride in strides:
        yield "stride taken as 1", _named(stride, ast.Constant(1))
    for matrix in (plan.a, plan.b, *(one.matrix for one in plan.results)):
        yield "strides swapped", _swapped(*matrix.strides)
    for one in plan.operands:
        if one.is_matrix:
            yield "operand of another tile", _first_tile(one.name)
        yield "operand dropped", _without_operand(one.name)
    for function in plan.epilogue.functions:
        if function in OPS:
            yield "function dropped", _without_call(OPS[function].called)


def _call_of(node: ast.AST, *functions: str) -> ast.Call | None:
    """The node if it calls one of these functions."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in functions:
        return node
    return None


def _keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((one for one in call.keywords if one.arg == name), None)


def _with_keyword(call: ast.Call, name: str, value: ast.expr | None) -> ast.Call:
    """The call with a keyword's value replaced, or the keyword gone for None."""
    new = copy.copy(call)
    new.keywords = [
        ast.keyword(one.arg, value) if one.arg == name and value else one
        for one in call.keywords
        if one.arg != name or value
    ]
    return new


def _mask_term(side: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        call = _call_of(node, "tl.load", "tl.store")
        mask = _keyword(call, "mask") if call else None
        if call is None or mask is None or not isinstance(mask.value, ast.BinOp):
            return None
        kept = mask.value.right if side == "left" else mask.value.left
        return _with_keyword(call, "mask", kept)

    return edit


def _without_mask(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "tl.load", "tl.store")
    if call is None or not _keyword(call, "mask"):
        return None
    return _with_keyword(_with_keyword(call, "mask", None), "other", None)


def _less_or_equal(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
        return ast.Compare(node.left, [ast.LtE()], node.comparators)
    return None


def _less_one(size: ast.expr) -> ast.BinOp:
    return ast.BinOp(size, ast.Sub(), ast.Constant(1))


def _shorter_loop(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "range")
    if call is None or len(call.args) != 3:
        return None
    first, last, step = call.args
    return ast.Call(call.func, [first, _less_one(last), step], [])


def _tighter_mask(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and ast.unparse(node) == "K - k":
        return _less_one(node)
    return None


def _floor_division(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "tl.cdiv", "triton.cdiv")
    return ast.BinOp(call.args[0], ast.FloorDiv(), call.args[1]) if call else None


def _lone_dot(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "tl.dot")
    return ast.Call(call.func, call.args[:2], call.keywords) if call else None


def _narrow(node: ast.AST) -> ast.AST | None:
    """The accumulator rounded after every block to the next narrower type."""
    call = _call_of(node, "tl.dot")
    if call is None:
        return None
    wide = any("float64" in ast.unparse(one) for one in call.keywords)
    narrow, back = ("float32", "float64") if wide else ("float16", "float32")
    return _expression(f"{ast.unparse(call)}.to(tl.{narrow}).to(tl.{back})")


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _no_advance(node: ast.AST) -> ast.AST | None:
    return ast.Pass() if isinstance(node, ast.AugAssign) else None


def _no_minimum(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "min")
    if call is None or ast.unparse(call.args[1]) != "GROUP_M":
        return None
    return call.args[1]


def _other_one(node: ast.AST) -> ast.AST | None:
    call = _call_of(node, "tl.load")
    if call is None or not _keyword(call, "other"):
        return None
    return _with_keyword(call, "other", ast.Constant(1.0))


def _others_one(node: ast.AST) -> ast.AST | None:
    """Both operands of the product padded with 1."""
    if not isinstance(node, ast.For):
        return None
    new = copy.deepcopy(node)
    for part in ast.walk(new):
        if isinstance(part, ast.keyword) and part.arg == "other":
            part.value = ast.Constant(1.0)
    return new


def _without_nan(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or not _keyword(node, "propagate_nan"):
        return None
    return _with_keyword(node, "propagate_nan", None)


def _rounded_early(plan: Plan) -> Edit:
    """`acc` rounded to the result's type where the epilogue reads it."""
    outs = {one.dtype for one in plan.results}
    narrow, wide = DTYPES[plan.out].triton, DTYPES[plan.accumulator].triton

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or narrow == wide or len(outs) > 1:
            return None
        names = [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)]
        if "acc" not in names or "tl.dot" in ast.unparse(node):
            return None
        rounded = _Renamed(f"acc.to(tl.{narrow}).to(tl.{wide})")
        new = copy.deepcopy(node)
        new.value = rounded.visit(new.value)
        return ast.fix_missing_locations(new)

    return edit


class _Renamed(ast.NodeTransformer):
    """Puts an expression in place of every `acc` that is read."""

    def __init__(self, text: str) -> None:
        self.text = text

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "acc" and isinstance(node.ctx, ast.Load):
            return _expression(self.text)
        return node


def _narrow_offsets(node: ast.AST) -> ast.AST | None:
    """`x.to(INDEX)` as x, and INDEX elsewhere as a 32-bit type."""
    if isinstance(node, ast.Call) and ast.unparse(node).endswith(".to(INDEX)"):
        assert isinstance(node.func, ast.Attribute)
        return node.func.value
    call = _call_of(node, "tl.full")
    if call is None:
        return None
    return ast.Call(call.func, [*call.args[:2], _expression("tl.int32")], [])


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


def _no_program_id(node: ast.AST) -> ast.AST | None:
    return ast.Constant(0) if _call_of(node, "tl.program_id") else None


def _named(name: str, value: ast.expr) -> Edit:
    """A value in place of each use of a name."""

    def edit(node: ast.AST) -> ast.AST | None:
        used = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        return copy.copy(value) if used and ast.unparse(node) == name else None

    return edit


def _swapped(one: str, other: str) -> Edit:
    """A sum of offsets with its two strides exchanged."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)):
            return None
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        if one not in names or other not in names or "step" in names:
            return None
        new = copy.deepcopy(node)
        for part in ast.walk(new):
            if isinstance(part, ast.Name) and part.id in (one, other):
                part.id = other if part.id == one else one
        return new

    return edit


def _first_tile(name: str) -> Edit:
    """A matrix operand whose rows are all the first one."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.Assign) or f"{name}_ptr + offs_m" not in (
            text := ast.unparse(node)
        ):
            return None
        return ast.parse(text.replace("offs_m[:, None]", "offs_m[:, None] * 0")).body[0]

    return edit


def _without_operand(name: str) -> Edit:
    """An operand's value in the epilogue replaced by nothing: 0, or 1 as a factor."""

    def edit(node: ast.AST) -> ast.AST | None:
        if not isinstance(node, ast.BinOp):
            return None
        sides = {"left": node.left, "right": node.right}
        for side, part in sides.items():
            bare = part.value if isinstance(part, ast.Subscript) else part
            if isinstance(bare, ast.Name) and bare.id == name:
                return sides["left" if side == "right" else "right"]
        return None

    return edit


def _without_call(function: str) -> Edit:
    """A function's first argument in place of its call."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = _call_of(node, function)
        return call.args[0] if call and call.args else None

    return edit
