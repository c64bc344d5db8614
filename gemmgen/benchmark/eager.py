"""A kernel as its users would write it in torch, made from its epilogue's tree.

The text is that of a function over the kernel's inputs; reports show it. A bias that is
added to the product first goes to `F.linear` or `torch.addmm`, which fuse it.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from gemmgen.epilogue.checked import Statement
from gemmgen.epilogue.expression import Binary, Call, Name, Negate, Node, names, spell
from gemmgen.measurement import Problem
from gemmgen.select.plan import Plan
from gemmgen.tables.functions import OPS, Op
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.oracle.reference import torch_dtype

Value: TypeAlias = Tensor | float


@dataclass(frozen=True)
class Eager:
    """A function over the kernel's inputs; `text` is its body, a statement a line."""

    text: str
    function: Callable[..., Any]


def eager(plan: Plan, device: torch.device) -> Eager:
    """The results of a kernel by torch's own operations, in the dtype of the result."""
    statements, sums = _products(plan)
    return written(plan, _body(plan, statements, sums), device)


def identity(plan: Plan) -> bool:
    """Whether the kernel stores the product as it is."""
    return plan.epilogue.is_empty


def arguments(problem: Problem) -> tuple[Value, ...]:
    """The inputs as the function takes them.

    Matrices lie as they are multiplied, and operands have the dtype of the result:
    neither costs torch time.
    """
    plan, inputs = problem.plan, problem.matrices
    values: dict[str, Value] = {}
    for operand in plan.operands:
        value = inputs.operands[operand.name]
        if isinstance(value, Tensor):
            value = value[0] if operand.axes == ("n",) else value
            value = value.to(torch_dtype(plan.out))
        values[operand.name] = value
    rhs = inputs.rhs
    if _is_linear(plan):
        rhs = tuple(problem.tensors[one.name] for one in plan.contraction.rhs)
    return (inputs.lhs, *rhs, *values.values())


def written(plan: Plan, lines: list[str], device: torch.device) -> Eager:
    """The function whose body these lines are; names are those of the epilogue."""
    body = "".join(f"    {line}\n" for line in lines)
    scope: dict[str, Any] = {"torch": torch, "F": functional}
    constant = _constants(torch_dtype(plan.out), device)
    scope |= {op.name: _function(op, constant) for op in OPS.values()}
    scope["where"] = _where(constant)
    # The text holds identifiers, numbers and operators that the parser has checked.
    exec(f"def eager({', '.join(plan.argument_names)}):\n{body}", scope)
    return Eager("\n".join(lines), scope["eager"])


def added(plan: Plan, node: Node, total: str, axes: tuple[str, ...]) -> str | None:
    """The operand with these axes in `acc + operand`, in either order, if it is that.

    `total` is the sum's name. torch fuses it only when it has the type of the inputs
    and of the result.
    """
    match node:
        case Binary("+", Name(name), Name(other)) if total in (name, other):
            name = other if name == total else name
            fitting = [
                operand.name for operand in plan.operands if operand.axes == axes
            ]
            types = {operand.dtype for operand in plan.operands if operand.name == name}
            alike = types == {plan.dtype} == {plan.out}
            return name if name in fitting and alike else None
    return None


def _is_linear(plan: Plan) -> bool:
    return OPERATIONS[plan.op].leading


def _products(plan: Plan) -> tuple[tuple[Statement, ...], list[str]]:
    """The statements left and those of the sums, a bias taken in where it can be."""
    statements, lines = plan.epilogue.statements, list[str]()
    for total, right in plan.contraction.products.items():
        statements, text = _product(plan, total, right.name, statements)
        lines.append(f"{total} = {text}")
    return statements, lines


def _product(
    plan: Plan, total: str, b: str, statements: tuple[Statement, ...]
) -> tuple[tuple[Statement, ...], str]:
    """The statements left and the text of one sum."""
    a = plan.contraction.lhs.name
    uses = [name for one in statements for name in names(one.value)].count(total)
    call = f"F.linear({a}, {b})" if _is_linear(plan) else f"torch.mm({a}, {b})"
    for at, statement in enumerate(statements):
        found = _biased(plan, statement.value, total) if uses == 1 else None
        if found is not None:
            rest, bias = found
            left = Statement(statement.target, rest, statement.axes)
            statements = (*statements[:at], left, *statements[at + 1 :])
            if _is_linear(plan):
                return statements, f"F.linear({a}, {b}, {bias})"
            return statements, f"torch.addmm({bias}, {a}, {b})"
    return statements, call if plan.out == plan.dtype else f"{call}{_to(plan.out)}"


def _biased(plan: Plan, node: Node, total: str) -> tuple[Node, str] | None:
    """The tree with `acc + bias[n]` replaced by `acc`, and the bias; None without."""
    bias = added(plan, node, total, ("n",))
    if bias is not None:
        return Name(total), bias
    match node:
        case Negate(value):
            found = _biased(plan, value, total)
            return found and (Negate(found[0]), found[1])
        case Binary(op, left, right):
            found = _biased(plan, left, total)
            if found:
                return Binary(op, found[0], right), found[1]
            found = _biased(plan, right, total)
            return found and (Binary(op, left, found[0]), found[1])
        case Call(function, parts):
            for at, part in enumerate(parts):
                found = _biased(plan, part, total)
                if found:
                    inside = (*parts[:at], found[0], *parts[at + 1 :])
                    return Call(function, inside), found[1]
    return None


def _body(
    plan: Plan, statements: tuple[Statement, ...], sums: Sequence[str]
) -> list[str]:
    lines = [*sums]
    if not identity(plan):
        lines += [
            f"{statement.target} = {spell(statement.value)}" for statement in statements
        ]
    values = [
        result.value + (_to(result.dtype) if result.dtype != plan.out else "")
        for result in plan.results
    ]
    return [*lines, f"return {', '.join(values)}"]


def _to(dtype: str) -> str:
    return f".to({torch_dtype(dtype)})"


_WITH_NUMBERS: dict[str, Callable[..., Tensor]] = {
    "leaky_relu": functional.leaky_relu,
    "clamp": torch.clamp,
}
"""Functions that torch has in one operation when all but the first are numbers."""


def _constants(dtype: torch.dtype, device: torch.device) -> Callable[[Value], Tensor]:
    """Makes a tensor of a number, once; a copy to the GPU at each call would wait."""

    @functools.cache
    def made(number: float) -> Tensor:
        return torch.tensor(number, dtype=dtype, device=device)

    return lambda value: value if isinstance(value, Tensor) else made(value)


def _function(op: Op, constant: Callable[[Value], Tensor]) -> Callable[..., Tensor]:
    """A function of the language over tensors and numbers."""
    quick = _WITH_NUMBERS.get(op.name)

    def apply(*values: Value) -> Tensor:
        tensors = [isinstance(one, Tensor) for one in values]
        if quick and tensors[0] and not any(tensors[1:]):
            return quick(*values)
        return op.torch(torch, *map(constant, values))

    return apply


def _where(constant: Callable[[Value], Tensor]) -> Callable[..., Tensor]:
    return lambda condition, x, y: torch.where(condition, constant(x), y)
