"""Table `PEERS`: what a kernel races against, each where it applies."""

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from gemmgen.benchmark import eager
from gemmgen.epilogue.expression import Binary, Call, Name, Node, Number, spell
from gemmgen.measurement import Problem
from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.oracle.reference import torch_dtype

Entry = Callable[[], Any]


@dataclass(frozen=True)
class Contestant:
    """A call that takes part: it returns a tensor, or a tuple of several.

    `text` says what it computes, where that is not plain from its name.
    """

    call: Entry
    text: str = ""


@dataclass(frozen=True)
class Peer:
    """One way to the same result; `enter` gives None where it does not apply."""

    name: str
    doc: str
    enter: Callable[[Problem], Contestant | None]


def takes_out(plan: Plan) -> bool:
    """Whether torch writes this kernel's result into a given tensor, in one call.

    Only then is ours given one too, so that both sides are alike.
    """
    plain = eager.identity(plan) and plan.out == plan.dtype
    return plain and not OPERATIONS[plan.op].leading


def _torch(problem: Problem) -> Contestant:
    if takes_out(problem.plan):
        (out,) = problem.outputs()
        given = eager.arguments(problem)
        return Contestant(partial(torch.mm, *given, out=out), "torch.mm(a, b, out=out)")
    return returning(problem)


def returning(problem: Problem) -> Contestant:
    """torch's eager form as a call that returns a new tensor."""
    plan, given = problem.plan, eager.arguments(problem)
    if eager.identity(plan) and plan.out == plan.dtype:
        if OPERATIONS[plan.op].leading:
            return Contestant(partial(functional.linear, *given), "F.linear(x, w)")
        return Contestant(partial(torch.mm, *given), "torch.mm(a, b)")
    made = eager.eager(plan, problem.device)
    return Contestant(partial(made.function, *given), made.text)


def _addmm(problem: Problem) -> Contestant | None:
    plan = problem.plan
    statement, *others = plan.epilogue.statements
    found = None if others else _scaled_sum(plan, statement.value)
    if found is None:
        return None
    alpha, beta, addend = found
    numbers = f"alpha={spell(alpha)}, beta={spell(beta)}"
    left = f"torch.addmm({addend}, {_factors(plan)}, {numbers})"
    given = eager.arguments(problem)
    made = eager.written(plan, [f"return {left}"], problem.device)
    return Contestant(partial(made.function, *given), left)


def _factors(plan: Plan) -> str:
    """The text of a [M, K] and b [K, N], which `F.linear` alone takes as [N, K]."""
    a, b = plan.contraction.lhs.name, plan.contraction.first.name
    return f"{a}, {b}" + (".T" if OPERATIONS[plan.op].leading else "")


_ONE = Number(1.0)


def _scaled_sum(plan: Plan, node: Node) -> tuple[Node, Node, str] | None:
    """alpha, beta and c of `alpha * acc + beta * c`, c [M, N], if the tree is that."""
    if not isinstance(node, Binary) or node.op != "+":
        return None
    parts = [_scaled(plan, node.left), _scaled(plan, node.right)]
    sums = plan.epilogue.accumulators
    if parts[0] and parts[0][1] not in sums:
        parts.reverse()
    if parts[0] is None or parts[1] is None or parts[0][1] not in sums:
        return None
    kinds = {operand.name: (operand.axes, operand.dtype) for operand in plan.operands}
    addend = parts[1][1]
    if kinds.get(addend) != (("m", "n"), plan.dtype) or plan.out != plan.dtype:
        return None
    return parts[0][0], parts[1][0], addend


def _scaled(plan: Plan, node: Node) -> tuple[Node, str] | None:
    """The factor and the tensor of `factor * tensor`, where the factor is a number."""
    numbers = {operand.name for operand in plan.operands if operand.is_number}
    match node:
        case Name(name) if name not in numbers:
            return _ONE, name
        case Binary("*", Number() as factor, Name(name)) if name not in numbers:
            return factor, name
        case Binary("*", Name(factor), Name(name)) if factor in numbers:
            return Name(factor), name
        case Binary("*", Name(name), Name(factor)) if factor in numbers:
            return Name(factor), name
    return None


def _activation(problem: Problem) -> Contestant | None:
    plan = problem.plan
    statement, *others = plan.epilogue.statements
    match statement.value:
        case Call("gelu_tanh" | "relu" as function, (inner,)) if not others:
            bias = eager.added(plan, inner, plan.epilogue.accumulators[0], ("n",))
        case _:
            return None
    if bias is None or not hasattr(torch, "_addmm_activation"):
        return None
    use_gelu = function == "gelu_tanh"
    text = f"torch._addmm_activation({bias}, {_factors(plan)}, use_gelu={use_gelu})"
    given = eager.arguments(problem)
    made = eager.written(plan, [f"return {text}"], problem.device)
    return Contestant(partial(made.function, *given), text)


def _out_dtype(problem: Problem) -> Contestant | None:
    plan = problem.plan
    if not eager.identity(plan) or (plan.dtype, plan.out) not in _WIDENED:
        return None
    given, text = eager.arguments(problem), torch_dtype(plan.out)
    left = f"torch.mm({_factors(plan)}, out_dtype={text})"
    made = eager.written(plan, [f"return {left}"], problem.device)
    return Contestant(partial(made.function, *given), left)


_WIDENED = (("fp16", "fp32"), ("bf16", "fp32"))
"""What `torch.mm(out_dtype=)` can do."""


def _compiled(problem: Problem, mode: str | None) -> Contestant | None:
    """The eager form under `torch.compile`, for kernels that have something to fuse."""
    from torch import _dynamo  # takes as long to import as all the rest of torch

    plan = problem.plan
    if eager.identity(plan):
        return None
    given = eager.arguments(problem)
    made = eager.eager(plan, problem.device)
    function = torch.compile(made.function, mode=mode, dynamic=False, fullgraph=True)
    with _quiet(), _dynamo.config.patch(recompile_limit=_COMPILATIONS):
        function(*given)
    return Contestant(partial(function, *given))


_COMPILATIONS = 1000
"""More than a run has: torch counts functions that were written alike as one, and
refuses to compile it for the ninth time."""


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what autotuning prints and logs of its candidates out of the way."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


PEERS: dict[str, Peer] = {
    row.name: row
    for row in (
        Peer("torch", "the eager form, a bias fused by F.linear or addmm", _torch),
        Peer("addmm", "torch.addmm for alpha * acc + beta * c", _addmm),
        Peer("activation", "the private torch._addmm_activation", _activation),
        Peer("out_dtype", "torch.mm(out_dtype=) for wider results", _out_dtype),
        Peer(
            "compile", "torch.compile of the eager form", partial(_compiled, mode=None)
        ),
        Peer(
            "max-autotune", "torch.compile, mode max-autotune-no-cudagraphs",
            partial(_compiled, mode="max-autotune-no-cudagraphs"),
        ),
    )
}  # fmt: skip
