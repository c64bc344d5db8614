"""Calls that torch has to see, on the stand-in: none goes past it, known or not."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import forward_ad

from gemmgen.verification.cases.cases import input_tensors
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.launches.bench import Bench, Made
from gemmgen.verification.launches.calls import Facts
from gemmgen.verification.launches.gradients.learning import KEPT, call_that_learns
from gemmgen.verification.operators.told import Told, ToldOfFunctions
from gemmgen.verification.operators.traced import check_records
from gemmgen.verification.oracle.reference import torch_dtype

_SIDE = 48
"""What the package's launcher remembers is its process's: sizes that no other has."""
Seen = Callable[[], Sequence[object]]


class _Subclass(torch.Tensor):  # type: ignore[misc]
    """A tensor of a class of somebody's own."""


def seen(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for number, around in enumerate(
        (_mode, _function_mode, _profiled, _cast, _not_cast, _level, _inference)
    ):
        facts = replace(bench.usual, n=_SIDE, k=_SIDE + 16 * number)
        yield str(around.__doc__), partial(_called, bench, around, facts)
        if bench.plan.grad and around is not _inference:
            yield f"{around.__doc__} What learns.", partial(
                _learned, bench, around, facts
            )
    last = replace(bench.usual, n=2 * _SIDE)
    yield str(_of_a_subclass.__doc__), partial(_of_a_subclass, bench, last)
    yield str(_of_a_tangent.__doc__), partial(_of_a_tangent, bench, last)
    yield str(_casts.__doc__), partial(_casts, bench, last)
    yield str(_recorded.__doc__), partial(_recorded, bench, replace(last, k=2 * _SIDE))
    yield str(_traced.__doc__), partial(_traced, bench, replace(last, k=_SIDE))


def _overload(bench: Bench) -> Any:
    launcher: Any = subject.launcher(bench.plan, bench.module)
    return launcher.operator.overload


@contextmanager
def _mode(bench: Bench) -> Iterator[Seen]:
    """Under a mode that is told of operators."""
    with Told() as mode:
        yield lambda: [one for one in mode.seen if one is _overload(bench)]


@contextmanager
def _function_mode(bench: Bench) -> Iterator[Seen]:
    """Under a mode that is told of torch's functions."""
    with ToldOfFunctions() as mode:
        yield lambda: [one for one in mode.seen if one is _overload(bench)]


@contextmanager
def _profiled(bench: Bench) -> Iterator[Seen]:
    """Under a profiler."""
    name, found = _overload(bench).name(), list[object]()
    with torch.autograd.profiler.profile() as profile:
        yield lambda: found
    found += [one for one in profile.function_events if one.name == name]


@contextmanager
def _autocast(dtype: torch.dtype) -> Iterator[None]:
    """As `torch.autocast`, which does nothing where torch finds no GPU."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


@contextmanager
def _cast(bench: Bench) -> Iterator[Seen | None]:
    """Under autocast to bf16."""
    with _autocast(torch.bfloat16):
        yield None


@contextmanager
def _not_cast(bench: Bench) -> Iterator[Seen | None]:
    """Under autocast to fp16."""
    with _autocast(torch.float16):
        yield None


@contextmanager
def _level(bench: Bench) -> Iterator[Seen | None]:
    """Where forward derivatives are computed, of other tensors."""
    with forward_ad.dual_level():
        yield None


@contextmanager
def _inference(bench: Bench) -> Iterator[Seen | None]:
    """In inference mode."""
    with torch.inference_mode():
        yield None


_LAUNCHED = _profiled, _inference
"""Where a call into given results need not be an operator's, whose are copied."""
Around = Callable[[Bench], AbstractContextManager[Seen | None]]


def _called(bench: Bench, around: Around, facts: Facts) -> None:
    """A call comes to the same, and torch is told of it once."""
    launcher = subject.launcher(bench.plan, bench.module)
    bench.renew()
    for out in ("made", "given"):
        own = replace(facts, out=out)
        for inside in [True] + [False] * KEPT + [True] * 2:
            call = bench.call(own)
            with around(bench) if inside else nullcontext() as told:
                made = bench.perform(launcher, own, call)
            if made.refused:
                raise Wrong(f"refuses a call: {made.told}")
            if len(made.launches) != 1:
                raise Wrong(f"{len(made.launches)} launches of one call")
            copied = out == "given" and inside and around not in _LAUNCHED
            if not copied:
                bench.check_one(own, call, made, [])
            if told is not None and out == "made" and len(told()) != 1:
                raise Wrong(f"torch is told {len(told())} times")


def _learned(bench: Bench, around: Around, facts: Facts) -> None:
    """A call that learns does so, and launches once."""
    bench.renew()
    for inside in [False] * KEPT + [True] * 2 + [False]:
        with around(bench) if inside else nullcontext():
            call_that_learns(bench, facts, input_tensors(bench.plan))


def _of_a_subclass(bench: Bench, facts: Facts) -> None:
    """A tensor of a class of its own makes results of this class, known or not.

    Also where a profiler is told of the call.
    """

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_subclass(_Subclass)

    around = nullcontext, partial(_profiled, bench)
    for name, changed, made in _with_one_changed(bench, facts, own, around):
        if made.refused:
            raise Wrong(f"refuses a subclass: {made.told}")
        kinds = {type(one) for one in several(made.returned)}
        if kinds != {_Subclass if changed else torch.Tensor}:
            raise Wrong(f"{name} of a subclass makes results of {kinds}")


def _of_a_tangent(bench: Bench, facts: Facts) -> None:
    """A tensor with a forward derivative is refused by its name, known or not."""

    def dual(tensor: torch.Tensor) -> torch.Tensor:
        return forward_ad.make_dual(tensor, tensor)

    around = (forward_ad.dual_level,)
    for name, changed, made in _with_one_changed(bench, facts, dual, around):
        wanted = f"ValueError('{bench.plan.name}: {name} must have no tangent"
        if made.told.startswith(wanted) != changed:
            raise Wrong(f"{name} with a tangent: {changed}, {made.told}")


def _with_one_changed(
    bench: Bench,
    facts: Facts,
    change: Callable[[torch.Tensor], torch.Tensor],
    around: Sequence[Callable[[], AbstractContextManager[Any]]],
) -> Iterator[tuple[str, bool, Made]]:
    """Calls of which one input is changed or none, and what came of each.

    Changed before such calls are known, and `around` by each of these after that.
    """
    launcher = subject.launcher(bench.plan, bench.module)
    bench.renew()
    for name in input_tensors(bench.plan):
        for inside in (around[0], *[None] * KEPT, *around):
            call = bench.call(facts)
            with inside() if inside else nullcontext():
                if inside:
                    call.inputs[name] = change(call.inputs[name])
                made = bench.perform(launcher, facts, call)
            yield name, bool(inside), made


def _casts(bench: Bench, facts: Facts) -> None:
    """Under autocast of GPUs to A's type, a call takes tensors of another."""
    dtype = torch_dtype(bench.plan.dtype)
    if dtype not in (torch.float16, torch.bfloat16):
        return
    call = bench.call(facts)
    for name in input_tensors(bench.plan):
        call.inputs[name] = call.inputs[name].float()
    launcher = subject.launcher(bench.plan, bench.module)
    with _autocast(dtype):
        made = bench.perform(launcher, facts, call)
    if made.refused:
        raise Wrong(f"what autocast should cast is refused: {made.told}")


def _recorded(bench: Bench, facts: Facts) -> None:
    """To `torch.jit.trace` it is one operator, known or not, and launches once."""
    launcher = subject.launcher(bench.plan, bench.module)
    records = partial(check_records, _overload(bench), launcher)
    own = replace(facts, keywords=0)
    bench.renew()
    for calls in (0, KEPT):
        for _ in range(calls):
            bench.perform(launcher, facts, bench.call(facts))
        made = bench.perform(lambda *inputs: records(inputs), own, bench.call(own))
        if isinstance(made.returned, Wrong):
            raise made.returned
        if made.refused or len(made.launches) != 1:
            raise Wrong(f"traced, it launches {len(made.launches)}: {made.told}")


def _traced(bench: Bench, facts: Facts) -> None:
    """What torch.compile traces is the operator, known or not, by name or position."""
    launcher: Any = subject.launcher(bench.plan, bench.module)
    cache, asked = launcher.cache, []

    def operator(*inputs: Any, **named: Any) -> Any:
        asked.append((inputs, named))
        return operator

    module = sys.modules[type(cache).__module__]
    for out in ("made", "given"):
        for keywords in (0, 1):
            own = replace(facts, out=out, keywords=keywords)
            for _ in range(KEPT):
                bench.perform(launcher, own, call := bench.call(own))
            positional, given = call.arguments(keywords)
            with (
                patch.object(module, "tracing", lambda: True),
                patch.object(cache, "as_operator", operator),
            ):
                returned = launcher(*positional, **given)
            wanted = tuple(positional), {"out": None, **given}
            if returned is not operator or asked.pop() != wanted:
                raise Wrong("what torch.compile traces is not the operator")
