"""One kernel at one shape: its peers entered, all results judged, then the race."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gemmgen.base.errors import EnvironmentMissing
from gemmgen.benchmark.peers import PEERS, Contestant, returning, takes_out
from gemmgen.benchmark.results import AGAIN, EMPTY, OURS, CallTime, Roofline, Row
from gemmgen.measurement import Device, Problem, cpu_time, judge, problem, race
from gemmgen.select.plan import Plan
from gemmgen.spec.shapes import Shape

Launcher = Callable[..., Any]

SMALL = Shape(16, 16, 16)
"""Where a call's time is the CPU's alone."""


def contest(
    plan: Plan,
    launcher: Launcher,
    shape: Shape,
    peers: Sequence[str],
    roofline: Roofline,
    device: Device,
    budget_s: float,
) -> Row:
    """Time a launcher against its peers, and against itself."""
    with _torch_multiplies_as(plan), _enough_memory(plan, shape):
        given = problem(plan, shape, device.kind)
        entered, failed = _entered(given, peers)
        calls = {OURS: ours(given, launcher)}
        calls |= {name: one.call for name, one in entered.items()}
        judged = judge(given, {name: results_of(call) for name, call in calls.items()})
        calls |= {AGAIN: ours(given, launcher), EMPTY: lambda: None}
        timings = race(calls, device, budget_s=budget_s)
    kind, rights = plan.product.kind, plan.product.rights
    return Row(
        plan.name,
        kind,
        shape,
        given.traffic,
        roofline.seconds(kind, rights * shape.flops, given.traffic),
        timings,
        {name: _finite(one.error) for name, one in judged.items()},
        judged[OURS].outside,
        {name: one.text for name, one in entered.items() if one.text},
        failed,
        rights,
    )


def call_time(plan: Plan, launcher: Launcher, device: Device) -> CallTime:
    """What a call that returns a new tensor costs the CPU, ours and torch's eager."""
    with _torch_multiplies_as(plan):
        given = problem(plan, SMALL, device.kind)
        theirs = returning(given).call
        mine = partial(launcher, *given.arguments)
        timings = cpu_time({OURS: mine, "torch": theirs}, device.synchronize)
    return CallTime(plan.name, SMALL, timings)


def ours(given: Problem, launcher: Launcher) -> Callable[[], Any]:
    """The kernel's call, with an `out` where torch gets one too."""
    if takes_out(given.plan):
        (out,) = given.outputs()
        return partial(launcher, *given.arguments, out=out)
    return partial(launcher, *given.arguments)


def _entered(
    given: Problem, names: Sequence[str]
) -> tuple[dict[str, Contestant], dict[str, str]]:
    """The peers that apply, and why any that should could not be made to run."""
    entered, failed = {}, {}
    for name in names:
        try:
            contestant = PEERS[name].enter(given)
            if contestant is not None:
                contestant.call()
                entered[name] = contestant
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # torch.compile fails in many ways
            lines = str(error).strip().splitlines() or [type(error).__name__]
            failed[name] = lines[0][:200]
    return entered, failed


def results_of(call: Callable[[], Any]) -> Sequence[Tensor]:
    """What a call returns, as a tuple, kept from later calls."""
    returned = call()
    results = (returned,) if isinstance(returned, Tensor) else returned
    return tuple(result.clone() for result in results)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


@contextlib.contextmanager
def _torch_multiplies_as(plan: Plan) -> Iterator[None]:
    """torch's tf32 beside a tf32 kernel, and its fp32 beside all others of fp32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if plan.product.mma.rounds else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def _enough_memory(plan: Plan, shape: Shape) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        message = f"{plan.name} at {shape} takes more memory than this GPU has"
        raise EnvironmentMissing(message) from None
