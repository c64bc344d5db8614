"""The kinds of fault that mutants have, each an edit of one node of a syntax tree."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of, expression, keyword, with_keyword
from gemmgen.select.plan import Plan
from gemmgen.verification.faults.epilogues import epilogue_families
from gemmgen.verification.faults.extents import extent_families
from gemmgen.verification.faults.gradients import gradient_families
from gemmgen.verification.faults.launchers import launcher_families
from gemmgen.verification.faults.layers import layer_families
from gemmgen.verification.faults.multiply_adds import multiply_add_families
from gemmgen.verification.faults.pipelines import pipeline_families
from gemmgen.verification.interpret.split_k_faults import split_k_faults

_MASKED = ("tl.load", "tl.store")


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
    yield "offsets in 32 bits", _narrow_offsets
    yield "alignment assumed", _assumed_alignment
    yield "program id ignored", _no_program_id
    yield from split_k_faults(plan.contraction.accumulators)
    yield from pipeline_families()
    yield from multiply_add_families()
    yield from extent_families()
    yield from launcher_families(plan)
    yield "stride taken as 1", _unit_stride
    for matrix in (*plan.contraction.inputs, *(one.matrix for one in plan.results)):
        yield "strides swapped", _swapped(*matrix.strides)
    yield from epilogue_families(plan)
    yield from gradient_families(plan)
    yield from layer_families(plan)


def _mask_term(side: str) -> Edit:
    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, *_MASKED)
        mask = keyword(call, "mask") if call else None
        if call is None or mask is None or not isinstance(mask.value, ast.BinOp):
            return None
        kept = mask.value.right if side == "left" else mask.value.left
        return with_keyword(call, "mask", kept)

    return edit


def _without_mask(node: ast.AST) -> ast.AST | None:
    call = call_of(node, *_MASKED)
    if call is None or not keyword(call, "mask"):
        return None
    return with_keyword(with_keyword(call, "mask", None), "other", None)


def _less_or_equal(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
        return ast.Compare(node.left, [ast.LtE()], node.comparators)
    return None


def _less_one(size: ast.expr) -> ast.BinOp:
    return ast.BinOp(size, ast.Sub(), ast.Constant(1))


def _shorter_loop(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "range", "tl.range")
    if call is None or ast.unparse(call.args[-1]) != "BLOCK_K":
        return None
    first, last, step = call.args
    return ast.Call(call.func, [first, _less_one(last), step], call.keywords)


def _tighter_mask(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.BinOp) and ast.unparse(node) in ("K - k", "k_end - k"):
        return _less_one(node)
    return None


def _floor_division(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "tl.cdiv", "cdiv")
    return ast.BinOp(call.args[0], ast.FloorDiv(), call.args[1]) if call else None


def _lone_dot(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "tl.dot")
    return ast.Call(call.func, call.args[:2], call.keywords) if call else None


def _narrow(node: ast.AST) -> ast.AST | None:
    """The accumulator rounded after every block to the next narrower type."""
    call = call_of(node, "tl.dot")
    if call is None:
        return None
    wide = any("float64" in ast.unparse(one) for one in call.keywords)
    narrow, back = ("float32", "float64") if wide else ("float16", "float32")
    return expression(f"{ast.unparse(call)}.to(tl.{narrow}).to(tl.{back})")


def _no_advance(node: ast.AST) -> ast.AST | None:
    return ast.Pass() if isinstance(node, ast.AugAssign) else None


def _no_minimum(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "min")
    if call is None or ast.unparse(call.args[1]) != "GROUP_M":
        return None
    return call.args[1]


def _other_one(node: ast.AST) -> ast.AST | None:
    call = call_of(node, "tl.load")
    if call is None or not keyword(call, "other"):
        return None
    return with_keyword(call, "other", ast.Constant(1.0))


def _others_one(node: ast.AST) -> ast.AST | None:
    """Both operands of the product padded with 1."""
    if not isinstance(node, ast.For):
        return None
    new = copy.deepcopy(node)
    for part in ast.walk(new):
        if isinstance(part, ast.keyword) and part.arg == "other":
            part.value = ast.Constant(1.0)
    return new


def _narrow_offsets(node: ast.AST) -> ast.AST | None:
    """`x.to(INDEX)` as x, and INDEX elsewhere as a 32-bit type."""
    if isinstance(node, ast.Call) and ast.unparse(node).endswith(".to(INDEX)"):
        assert isinstance(node.func, ast.Attribute)
        return node.func.value
    call = call_of(node, "tl.full")
    if call is None:
        return None
    return ast.Call(call.func, [*call.args[:2], expression("tl.int32")], [])


def _assumed_alignment(node: ast.AST) -> ast.AST | None:
    return ast.Constant(16) if call_of(node, "row_divisibility") else None


def _no_program_id(node: ast.AST) -> ast.AST | None:
    return ast.Constant(0) if call_of(node, "tl.program_id") else None


def _unit_stride(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
        return None
    return ast.Constant(1) if node.id.startswith("stride_") else None


def _swapped(one: str, other: str) -> Edit:
    """Offsets, or what `row_dot` makes them of, with their two strides exchanged."""

    def edit(node: ast.AST) -> ast.AST | None:
        summed = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)
        if not summed and call_of(node, "row_dot") is None:
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
