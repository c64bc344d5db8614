"""One example of a whole backward: a call through autograd, its gradients judged.

What is drawn beside the call: which tensors learn, which results have a gradient, and
how that lies in memory. Memory that is not written shows as NaN.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from gemmgen.problem.tensors import Result
from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.cases.views import VIEWS, framed_input
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import (
    Call,
    Wrong,
    as_matrices,
    as_matrix,
    bits,
    framed_inputs,
)
from gemmgen.verification.oracle.bounded import ARITHMETIC, binary, exactly
from gemmgen.verification.oracle.comparison import accepted, in_bounds
from gemmgen.verification.oracle.gradients import gradients, result_of
from gemmgen.verification.oracle.reference import torch_dtype

_FORMS = ("expanded", "negated", *VIEWS)
"""How the gradient of a result lies in memory: as `sum` makes it, as a view that
negates what is stored, or as any input."""

_MAIN_FORMS = ("contiguous", "padded", "transposed", "misaligned")
"""The same of what a gradient is added to, which no two elements may share."""

SMALLEST = (16, 16, 16)
"""The sides of a tile whose edges small cases meet."""
_RANGES = 2
"""Into how many the rows of a small case are cut, so that each has several tiles."""


@contextmanager
def small_passes(module: ModuleType, on_gpu: bool) -> Iterator[None]:
    """With passes over matrices in small tiles, so that a program has several of them.

    A GPU keeps their sides: there a case is as large as it takes.
    """
    passes = subject.runtime(module, "gradients.elementwise")
    tile, grid = passes.TILE, passes.grid
    if not on_gpu:
        tile = tile._replace(m=SMALLEST[0], n=SMALLEST[1])

    def few(*given: Any) -> tuple[int, int]:
        columns, ranges = grid(*given)
        return columns, min(ranges, _RANGES)

    with patch.multiple(passes, TILE=tile, grid=few):
        yield


def backward_cases(plan: Plan) -> Iterator[Case]:
    """Cases that are always tried: several tiles each way, every view of all inputs.

    And every form of a gradient that is given, which the seed decides; rows of one axis
    and, where they may be, of several.
    """
    rows = [(53,), (3, 19)] if OPERATIONS[plan.op].leading else [(53,)]
    floats = (0.75,) * len(numbers(plan))
    each = zip(range(len(_FORMS)), cycle(VIEWS), cycle(rows), strict=False)
    for seed, view, sizes in each:
        views = (view,) * len(plan.inputs)
        yield Case(sizes, 71, 19, "normal", views, floats, seed)


def run_backward(plan: Plan, launcher: Any, case: Case, device: torch.device) -> float:
    """Run and judge one case; the largest error in parts of the bound."""
    draw = random.Random(case.seed)
    framed = framed_inputs(plan, case, device)
    before = {name: one.buffer.clone() for name, one in framed.items()}
    tensors = {name: one.view.detach() for name, one in framed.items()}
    learning = [name for name in tensors if draw.random() < 0.6] or [*tensors]
    for name in learning:
        tensors[name].requires_grad_()
    before_main = _main_grads(plan, case, tensors, draw)
    call = Call(tensors, dict(zip(numbers(plan), case.numbers, strict=True)), None)
    given, found = _taken(plan, launcher, call, case, learning, draw)
    for name, one in framed.items():
        if not bool((bits(one.buffer) == bits(before[name])).all()):
            raise Wrong(f"the backward writes into {name}")
    grads = {plan.results[at].name: as_matrix(one) for at, one in given.items()}
    plain = Call(
        {name: one.detach() for name, one in tensors.items()}, call.numbers, None
    )
    wanted = gradients(plan, as_matrices(plan, plain), grads)
    made = dict(zip(learning, found, strict=True))
    kinds = {name: result_of(plan, name) for name in learning}
    arithmetic = ARITHMETIC[plan.accumulator]
    for name, main in before_main.items():
        if made[name] is not None:
            raise Wrong(f"the gradient of {name} is returned beside its main_grad")
        made[name] = tensors[name].main_grad
        kinds[name] = replace(kinds[name], dtype=plan.accumulator)
        exact = exactly(_as_wanted(plan, name, main, plain).double())
        added = wanted.get(name)  # none if no result with a gradient depends on it
        wanted[name] = binary("+", added, exact, arithmetic) if added else exact
    return max(
        _judged(plan, kinds[name], wanted.get(name), made[name], tensors[name], plain)
        for name in learning
    )


@contextmanager
def poisoned() -> Iterator[None]:
    """Fill memory that is allocated with NaN, which stays where nothing is written."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _taken(
    plan: Plan,
    launcher: Any,
    call: Call,
    case: Case,
    learning: list[str],
    draw: random.Random,
) -> tuple[dict[int, Tensor], tuple[Tensor | None, ...]]:
    """Gradients of some results of a call, and those of what learns."""
    with poisoned():
        results = call.of(plan, launcher)
        given = _incoming(plan, case, results, draw)
        found = torch.autograd.grad(
            [results[at] for at in given],
            [call.tensors[name] for name in learning],
            list(given.values()),
            allow_unused=True,
        )
    return given, found


def _incoming(
    plan: Plan, case: Case, results: list[Tensor], draw: random.Random
) -> dict[int, Tensor]:
    """Gradients of results by place, of one of them at least."""
    every = range(len(results))
    chosen = [at for at in every if draw.random() < 0.7] or [draw.choice(every)]
    made = {}
    for at in chosen:
        form, shape = _FORMS[(case.seed + at) % len(_FORMS)], tuple(results[at].shape)
        dtype = torch_dtype(plan.results[at].dtype)
        source = torch.Generator().manual_seed(case.seed + at)

        def fill(size: tuple[int, ...], source: torch.Generator = source) -> Tensor:
            return torch.randn(size, generator=source).double()

        if form == "expanded":
            one = fill((1,)).to(dtype).expand(shape)
        elif form == "negated":
            one = torch._neg_view(fill(shape).to(dtype))
        else:
            one = framed_input(VIEWS[form], shape, dtype, fill).view
        made[at] = one.to(results[at].device)
    return made


def _main_grads(
    plan: Plan, case: Case, tensors: dict[str, Tensor], draw: random.Random
) -> dict[str, Tensor]:
    """What B's gradient is to be added to, by B's name: nothing, or its `main_grad`."""
    name = plan.contraction.first.name
    able = plan.grad_accumulate and plan.backward and plan.backward.multiplied
    if not able or not tensors[name].requires_grad or draw.random() < 0.3:
        return {}
    source = torch.Generator().manual_seed(case.seed)

    def fill(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, generator=source).double()

    view, dtype = VIEWS[draw.choice(_MAIN_FORMS)], torch_dtype(plan.accumulator)
    main = framed_input(view, tuple(tensors[name].shape), dtype, fill).view
    main = main.to(tensors[name].device)
    tensors[name].main_grad = main
    return {name: main.clone()}


def _judged(
    plan: Plan,
    result: Result,
    want: Any,
    got: Tensor | None,
    tensor: Tensor,
    call: Call,
) -> float:
    name, dtype = result.value, torch_dtype(result.dtype)
    if want is None or got is None:
        if (want is None) != (got is None):
            raise Wrong(f"the gradient of {name} is {'missing' if want else 'made up'}")
        return 0.0
    if got.shape != tensor.shape or got.dtype != dtype:
        raise Wrong(f"the gradient of {name} is {got.dtype} {tuple(got.shape)}")
    if not got.numel():
        return 0.0
    found = _as_wanted(plan, name, got.detach(), call).double()
    wrong = ~accepted(plan, result, want, found)
    if wrong.any():
        index = tuple(int(one) for one in wrong.nonzero()[0])
        value, error = float(want.value[index]), float(want.error[index])
        raise Wrong(
            f"the gradient of {name} at {index} is {float(found[index]):.9g}, should "
            f"be {value:.9g} ± {error:.2g}; {int(wrong.sum())} of {wrong.numel()} "
            "elements are wrong"
        )
    size = in_bounds(result, want, found)
    return float(torch.where(size.isfinite(), size, 0.0).max())


def _as_wanted(plan: Plan, name: str, grad: Tensor, call: Call) -> Tensor:
    """A gradient as the oracle has it: [M, K], [K, N], or along an operand's axes."""
    laid = Call({**call.tensors, name: grad}, call.numbers, None)
    inputs, both = as_matrices(plan, laid), plan.contraction
    if name == both.lhs.name:
        return inputs.lhs
    if name == both.first.name:
        return inputs.rhs[0]
    spread = inputs.operands[name]
    assert isinstance(spread, Tensor)
    axes = next(one.axes for one in plan.tensors if one.name == name)
    return spread if len(axes) == 2 else spread.flatten()
