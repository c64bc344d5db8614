"""What a launcher must do over many calls: remember, forget, and keep nothing alive."""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

import torch
import triton

from gemmgen.verification.cases import numbers
from gemmgen.verification.examples import Wrong
from gemmgen.verification.launches.bench import Bench, Made
from gemmgen.verification.launches.calls import Call, Facts, call_of
from gemmgen.verification.launches.turns import in_turns

_MOST = 8
"""What the limits of what is remembered are set to."""
_LARGEST = 4096
"""What such a limit may be; each entry takes about a KiB."""
_POINTS = 16
"""Of a call, at which another thread's turn may come; there are about as many."""
_DIRECT = ("3.6.", "3.7.", "3.8.", "3.9.")
"""The Tritons whose launcher in C is called directly."""


def habits(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for habit in (
        _repeats,
        _bounded,
        _lets_go,
        _twice,
        _copies,
        _recovers,
        _beside,
        _signs,
    ):
        yield str(habit.__doc__), lambda habit=habit: habit(bench)  # type: ignore[misc]


def _usual(bench: Bench) -> Facts:
    return Facts(numbers=(1.0,) * len(numbers(bench.plan)))


def _made(bench: Bench, facts: Facts) -> Call:
    return call_of(bench.plan, bench.driver.gpus, facts)


def _through_triton(made: Made) -> bool:
    return any(one.through_triton for one in made.launches)


def _repeats(bench: Bench) -> None:
    """A second call of a signature goes past Triton's own entry."""
    if bench.plan.configs or not triton.__version__.startswith(_DIRECT):
        return
    facts = _usual(bench)
    for out in ("made", "given"):
        bench.renew()
        both = [
            bench.check(one, _made(bench, one), [])
            for one in [replace(facts, out=out)] * 2
        ]
        if not _through_triton(both[0]) or _through_triton(both[1]):
            raise Wrong("a second call of a signature decides everything anew")


def _bounded(bench: Bench) -> None:
    """What is remembered is bounded, of signatures and of addresses."""
    bench.renew()
    limits = [
        (module, name)
        for module in bench.shared
        for name, value in vars(module).items()
        if name.startswith("MOST_") and isinstance(value, int)
    ]
    before = [getattr(module, name) for module, name in limits]
    if not limits or max(before) > _LARGEST:
        raise Wrong(f"what is remembered is not bounded: {before}")
    for module, name in limits:
        setattr(module, name, _MOST)
    try:
        usual = _usual(bench)
        for k in range(2 * _MOST + 1):
            facts = replace(usual, k=16 * k)
            bench.check(facts, _made(bench, facts), [])
        alive = [_made(bench, usual) for _ in range(2 * _MOST + 1)]
        for call in alive:
            bench.check(usual, call, [])
        largest = max(map(len, _tables(bench.launcher)), default=0)
        if largest > _MOST:
            raise Wrong(f"{largest} signatures or addresses are kept, not {_MOST}")
    finally:
        for (module, name), value in zip(limits, before, strict=True):
            setattr(module, name, value)


def _tables(root: Any) -> Iterator[dict[Any, Any]]:
    """Every dict that a function reaches through closures, dicts and sequences."""
    waiting, seen = [root], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        elif isinstance(one, dict):
            yield one
            waiting += dict.values(one)  # some have another attribute of that name
        elif isinstance(one, (list, tuple)):
            waiting += one


def _lets_go(bench: Bench) -> None:
    """No tensor of a call is kept alive by what is remembered of it."""
    bench.renew()
    facts = _usual(bench)
    call = _made(bench, facts)
    made = bench.perform(bench.launcher, facts, call)
    places = [weakref.ref(one) for one in (*call.tensors, *_results(made))]
    bench.driver.launches.clear()
    del call, made
    if any(place() is not None for place in places):
        gc.collect()
    if any(place() is not None for place in places):
        raise Wrong("a tensor is kept alive by what is remembered of its call")


def _results(made: Made) -> list[torch.Tensor]:
    if made.refused:
        raise Wrong(f"raises {made.returned!r}")
    value = made.returned
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _twice(bench: Bench) -> None:
    """A call that launches twice is not remembered as one launch."""

    def launcher(*inputs: Any, out: Any = None) -> Any:
        bench.plain(*inputs, out=out)
        return bench.plain(*inputs, out=out)

    bench.renew()
    facts = _usual(bench)
    call, both = _made(bench, facts), bench.remembered(launcher)
    for _ in range(3):
        count = len(bench.perform(both, facts, call).launches)
        if count != 2:
            raise Wrong(f"of two launches of one call {count} are repeated")


def _copies(bench: Bench) -> None:
    """A launch of other tensors than those that were passed is not remembered."""

    def launcher(first: Any, *inputs: Any, out: Any = None) -> Any:
        return bench.plain(torch.empty_like(first), *inputs, out=out)

    bench.renew()
    facts, name = _usual(bench), bench.plan.a.name
    call, copying = _made(bench, facts), bench.remembered(launcher)
    address = call.inputs[name].data_ptr()
    for _ in range(3):
        made = bench.perform(copying, facts, call)
        passed = made.launches[0].arguments[0]
        if address in (passed, getattr(passed, "address", None)):
            raise Wrong("a launch is repeated with what its launcher had copied")


def _recovers(bench: Bench) -> None:
    """After a launch that failed the next one is as it would have been."""
    bench.renew()
    facts = _usual(bench)
    call, watch = _made(bench, facts), bench.driver.on_launch
    for _ in range(2):
        bench.driver.on_launch = _fail
        failed = bench.perform(bench.launcher, facts, call)
        bench.driver.on_launch = watch
        if not isinstance(failed.returned, RuntimeError):
            raise Wrong(f"a launch that fails is no error: {failed.returned!r}")
        for _ in range(3):
            bench.check(facts, call, [])


def _beside(bench: Bench) -> None:
    """Two threads that call for the first time leave each other alone, at any point."""
    usual = _usual(bench)
    both = usual, replace(usual, n=128)
    for point in range(_POINTS):
        bench.renew(anew=False)
        calls = [_made(bench, facts) for facts in both]
        actions = [
            partial(bench.perform, bench.launcher, facts, call)
            for facts, call in zip(both, calls, strict=True)
        ]
        made = in_turns(bench.driver, actions, [False] * point + [True])
        for facts, call, one in zip(both, calls, made, strict=True):
            bench.judge(facts, call, one, [])


def _signs(bench: Bench) -> None:
    """0.0 and -0.0 are different numbers, at the same addresses too."""
    facts = replace(_usual(bench), out="given")
    bench.renew()
    call = _made(bench, facts)
    for name in numbers(bench.plan):
        for value in (0.0, 0.0, -0.0, 0.0):
            call.inputs[name] = value
            bench.check(facts, call, [])


def _fail(_: Any) -> None:
    raise RuntimeError("Triton Error [CUDA]: out of resources")
