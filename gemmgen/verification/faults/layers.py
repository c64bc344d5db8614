"""Faults of a kernel's nn.Module: what it passes to the launcher, and says of it."""

import ast
import copy
from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, call_of
from gemmgen.problem.layer import Layer
from gemmgen.select.plan import Plan
from gemmgen.tables.functions import OPS


def layer_families(plan: Plan) -> Iterator[tuple[str, Edit]]:
    """Every kind of fault of a module, with the edit that makes it."""
    if not plan.module:
        return
    for place in range(len(plan.argument_names) - 1):
        yield "arguments exchanged", _exchanged(plan, place)
    yield "parameter detached", _detached
    yield "parameter of another type", _other_type
    yield "bias forgotten", _without_bias
    yield "another activation", _other_activation(plan)


def _exchanged(plan: Plan, place: int) -> Edit:
    """Two neighbours of what the launcher is passed."""

    def edit(node: ast.AST) -> ast.AST | None:
        call = call_of(node, plan.name)
        if call is None or not any(map(_parameter, call.args)):
            return None
        new = copy.copy(call)
        new.args = list(call.args)
        new.args[place : place + 2] = call.args[place : place + 2][::-1]
        return new

    return edit


def _parameter(node: ast.AST) -> str | None:
    """The parameter, if it is one: `self.weight`."""
    match node:
        case ast.Attribute(ast.Name("self"), name):
            return name
    return None


def _detached(node: ast.AST) -> ast.AST | None:
    if not _parameter(node):
        return None
    return ast.parse(f"{ast.unparse(node)}.detach()", mode="eval").body


def _told(node: ast.AST, *names: str) -> ast.Assign | None:
    """The node if it says one of these things of the kernel."""
    if not isinstance(node, ast.Assign) or ast.unparse(node.targets[0]) not in names:
        return None
    return node


def _said(node: ast.Assign, value: str) -> ast.AST:
    new = copy.copy(node)
    new.value = ast.parse(value, mode="eval").body
    return new


def _other_type(node: ast.AST) -> ast.AST | None:
    own = _told(node, "weight_type", "bias_type")
    if own is None or ast.unparse(own.value) == "None":
        return None
    wide = ast.unparse(own.value) == "torch.float64"
    return _said(own, "torch.float32" if wide else "torch.float64")


def _without_bias(node: ast.AST) -> ast.AST | None:
    own = _told(node, "bias_type")
    return own and _said(own, "None") if own and "torch" in ast.unparse(own) else None


def _other_activation(plan: Plan) -> Edit:
    """One more step than it has, or a plain Linear for what is none."""
    steps = (f"{name}(x)" for name, row in OPS.items() if len(row.parameters) == 1)
    mine = Layer(plan).activation
    other = "x" if mine != "x" else next(steps)

    def edit(node: ast.AST) -> ast.AST | None:
        own = _told(node, "activation")
        return _said(own, repr(other)) if own else None

    return edit
