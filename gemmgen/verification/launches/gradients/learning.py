"""Calls that need a gradient, on the stand-in: repeated as others are."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.verification.cases.cases import input_tensors, numbers
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.launches.bench import Bench, Made
from gemmgen.verification.launches.calls import Facts
from gemmgen.verification.launches.habits import direct
from gemmgen.verification.stand_in.record import check_assumptions, difference, named

KEPT = 3
"""Calls of a signature after which it is known; with numbers torch compares none."""
_ROWS = (64, 72, 64, 8)
_SIDE = 16
"""Each step has sizes of its own, for what a launcher remembers is its process's."""


def learning(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name; nothing of kernels without gradients."""
    if not bench.plan.grad:
        return
    names = input_tensors(bench.plan)
    each = [names, *([name] for name in names)]
    for at, some in enumerate(each, 1):
        yield f"gradients of {some}", partial(_again, bench, some, at * _SIDE)
    last = (1 + len(each)) * _SIDE
    yield str(_of_rows.__doc__), partial(_of_rows, bench, last)
    yield str(_surrounded.__doc__), partial(_surrounded, bench, last + _SIDE)
    yield str(_refuses_out.__doc__), partial(_refuses_out, bench, last + 2 * _SIDE)


def call_that_learns(bench: Bench, facts: Facts, names: Sequence[str]) -> Made:
    """What becomes of a call of which these tensors learn; held against them."""
    call = bench.call(facts)
    for name in names:
        call.inputs[name].requires_grad_()
    made = bench.perform(subject.launcher(bench.plan, bench.module), facts, call)
    if made.refused:
        raise Wrong(f"refuses to learn: {made.told}")
    if not all(one.requires_grad for one in several(made.returned)):
        raise Wrong(f"{names} learn, and a result is in no graph")
    (launched,) = made.launches
    values = named(launched)
    check_assumptions(launched, values)
    for name, one in call.inputs.items():
        passed = values.get(f"{name}_ptr")
        if isinstance(one, torch.Tensor) and passed not in (None, one.data_ptr()):
            raise Wrong(f"{name} is passed as {passed}")
    if launched.device != facts.device:
        raise Wrong(f"launched on device {launched.device}")
    return made


def _again(bench: Bench, names: Sequence[str], side: int) -> None:
    """What comes again is launched as it was, past Triton's own entry."""
    bench.renew()
    facts = replace(bench.usual, n=side, k=side)
    launcher: Any = subject.launcher(bench.plan, bench.module)
    calls = KEPT + (not launcher.by_row)  # else kept when it comes a second time
    first, *_ = [call_that_learns(bench, facts, names) for _ in range(calls)]
    with _known(bench):
        again = call_that_learns(bench, facts, names)
    if again.through_triton and direct(bench):
        raise Wrong("a call that learns and comes again is launched anew")
    (one,), (other,) = first.launches, again.launches
    moved = [name for name in named(one) if name.endswith(("_ptr", "_desc"))]
    difference(one, other, [name.rpartition("_")[0] for name in moved])


@contextmanager
def _known(bench: Bench) -> Iterator[None]:
    """While a call that learns must be found by torch's comparison alone."""
    cache = subject.launcher(bench.plan, bench.module).cache  # type: ignore[attr-defined]
    if not direct(bench) or numbers(bench.plan):
        yield
        return
    slow = Wrong("a call that learns and comes again is decided anew")
    with patch.object(cache, "dispatch", side_effect=slow):
        yield


def _of_rows(bench: Bench, side: int) -> None:
    """Calls that learn are told apart by their rows."""
    bench.renew()
    for rows in [*([_ROWS[0]] * KEPT), *_ROWS] * 2:
        facts = replace(bench.usual, rows=(rows,), n=side, k=side)
        made = call_that_learns(bench, facts, input_tensors(bench.plan)[:1])
        if (sizes := named(made.launches[0])["M"]) != rows:
            raise Wrong(f"{rows} rows are passed as {sizes}")


def _surrounded(bench: Bench, side: int) -> None:
    """A call that learns and is known, on either device, and beside a hook."""
    bench.renew()
    usual = replace(bench.usual, n=side, k=side)
    others = [replace(usual, device=1), replace(usual, current=1), usual]
    for facts in [usual, *others] * KEPT:
        call_that_learns(bench, facts, input_tensors(bench.plan))
    if not call_that_learns(
        bench, replace(usual, hooked="enter"), input_tensors(bench.plan)
    ).hooks:
        raise Wrong("a call that learns calls no hook")


def _refuses_out(bench: Bench, side: int) -> None:
    """Into given results nothing learns, known or not, nor goes what is wrong.

    Both are refused by the kernel's name.
    """
    bench.renew()
    facts, names = replace(bench.usual, n=side, k=side), input_tensors(bench.plan)
    for _ in range(KEPT):
        call_that_learns(bench, facts, names)
    given = replace(facts, out="given")
    for learns in (True, False):
        call = bench.call(given)
        for name in names if learns else ():
            call.inputs[name].requires_grad_()
        if not learns:
            call.inputs[names[0]] = "no tensor"
        made = bench.perform(subject.launcher(bench.plan, bench.module), given, call)
        if not made.told.startswith(f"ValueError('{bench.plan.name}: "):
            raise Wrong(f"into given results, learning: {learns}: {made.told}")
