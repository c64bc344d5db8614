"""What a launcher must do over many calls: remember, forget, and keep nothing alive."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
import triton

from gemmgen.problem.tensors import rows_first
from gemmgen.verification.cases.cases import input_tensors, numbers
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.calls import Facts
from gemmgen.verification.stand_in.turns import in_turns

_MOST = 8
"""What the limits of what is remembered are set to."""
_LARGEST = 8192
"""What such a limit may be; each entry takes a KiB at most."""
_POINTS = 16
"""Of a call, at which another thread's turn may come; there are about as many."""
_DIRECT = ("3.6.", "3.7.", "3.8.", "3.9.")
"""The Tritons whose launcher in C is called directly."""


def habits(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for habit in (
        _repeats,
        _remembers,
        _bounded,
        _lets_go,
        _given,
        _twice,
        _copies,
        _beside,
        _holds,
        _signs,
    ):
        yield str(habit.__doc__), partial(habit, bench)


def direct(bench: Bench) -> bool:
    """Whether launches that are repeated go past Triton's own entry."""
    return not bench.plan.configs and triton.__version__.startswith(_DIRECT)


def _repeats(bench: Bench) -> None:
    """A second call of a signature goes past Triton's own entry."""
    if not direct(bench):
        return
    facts = bench.usual
    for out in ("made", "given"):
        bench.renew()
        both = [
            bench.check(one, bench.call(one), [])
            for one in [replace(facts, out=out)] * 2
        ]
        if not both[0].through_triton or both[1].through_triton:
            raise Wrong("a second call of a signature decides everything anew")


def _remembers(bench: Bench) -> None:
    """After one call of each of two signatures nothing is decided anew, or after two.

    Two where results are given, and where no calls have other rows.
    """
    if not direct(bench):
        return
    alike = rows_first(bench.plan.contraction.lhs, bench.plan.tensors)
    every = len(bench.usual.numbers) + len(input_tensors(bench.plan))
    for out in ("made", "given", "an operand"):
        for keywords in (0, 1, every):
            both = [
                replace(bench.usual, out=out, n=n, keywords=keywords) for n in (64, 128)
            ]
            calls = 1 if alike and out == "made" else 2
            _decides(bench, both * 4, calls * len(both))


def counting(bench: Bench) -> tuple[Callable[..., Any], list[str]]:
    """A launcher that remembers nothing yet, and a list that grows as it decides."""
    decided: list[str] = []

    @wraps(bench.plain)
    def launcher(*inputs: Any, **named: Any) -> Any:
        decided.append("once")
        return bench.plain(*inputs, **named)

    return bench.remembered(launcher), decided


def _decides(bench: Bench, calls: list[Facts], times: int) -> None:
    """Raise `Wrong` unless right calls are decided so many times."""
    bench.renew()
    (deciding, decided), alive = counting(bench), []
    for facts in calls:
        alive.append(bench.call(facts))
        if bench.perform(deciding, facts, alive[-1]).refused:
            return
    if len(decided) != times:
        raise Wrong(f"of {len(calls)} calls {len(decided)} decide anew, not {times}")


def _bounded(bench: Bench) -> None:
    """What is remembered is bounded, of signatures and of addresses."""
    for out in ("made", "given"):
        usual = replace(bench.usual, out=out)
        with few_kept(bench) as most:
            bench.renew()
            depths = [16 * k for k in range(2 * most + 1) for _ in range(2)]
            every = [replace(usual, k=k) for k in depths]  # twice: they are kept
            every += [usual] * (2 * most + 1)
            alive = [(facts, bench.call(facts)) for facts in every]
            for facts, call in alive:
                bench.check(facts, call, [])
                check_kept(bench, most)


def check_kept(bench: Bench, most: int) -> None:
    """Raise `Wrong` if a launcher keeps more of anything."""
    largest = max(map(len, _tables(bench)), default=0)
    if largest > most:
        raise Wrong(f"{largest} signatures or addresses are kept, not {most}")


@contextmanager
def few_kept(bench: Bench) -> Iterator[int]:
    """With small limits of what is remembered: of how many."""
    limits = [
        (module, name, value)
        for module in bench.shared
        for name, value in vars(module).items()
        if name.startswith("MOST_") and isinstance(value, int)
    ]
    before = [value for *_, value in limits]
    if not limits or max(before) > _LARGEST:
        raise Wrong(f"what is remembered is not bounded: {before}")
    with ExitStack() as stack:
        for module, name, _ in limits:
            stack.enter_context(patch.object(module, name, _MOST))
        yield _MOST


def _tables(bench: Bench) -> Iterator[dict[Any, Any] | set[Any]]:
    """Every dict and set that a launcher reaches, through whatever holds others."""
    waiting, seen = [bench.launcher], set[int]()
    ours = [one.__name__ for one in bench.shared]
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
        elif isinstance(one, set):
            yield one
        elif isinstance(one, (list, tuple)):
            waiting += one
        elif type(one).__module__ in ours:
            waiting += vars(one).values()


def _lets_go(bench: Bench) -> None:
    """No tensor of a call is kept alive by what is remembered of it."""
    bench.renew()
    facts, places = bench.usual, []
    for _ in range(3):
        call = bench.call(facts)
        made = bench.perform(bench.launcher, facts, call)
        if made.refused:
            raise Wrong(f"raises {made.told}")
        plain = bench.perform(bench.plain, facts, call)
        results = [*several(made.returned), *several(plain.returned)]
        places += [weakref.ref(one) for one in (*call.tensors, *results)]
    bench.driver.launches.clear()
    del call, made, plain, results
    if any(place() is not None for place in places):
        gc.collect()
    if any(place() is not None for place in places):
        raise Wrong("a tensor is kept alive by what is remembered of its call")


def _given(bench: Bench) -> None:
    """A call into given results is remembered and comes in another state, or none."""
    usual = replace(bench.usual, out="given")
    changes: list[dict[str, Any]] = [
        {}, {}, {}, {"stream": 11}, {"current": 1}, {"captured": True}, {"device": 1},
        {"hooked": "enter"}, {"hooked": "exit"}, {},
    ]  # fmt: skip
    bench.renew()
    for change in changes:
        facts = replace(usual, **change)
        bench.check(facts, bench.call(facts), [])


def _twice(bench: Bench) -> None:
    """A call that launches twice is not remembered as one launch."""

    @wraps(bench.plain)
    def launcher(*inputs: Any, out: Any = None) -> Any:
        bench.plain(*inputs, out=out)
        return bench.plain(*inputs, out=out)

    for out in ("made", "given"):
        bench.renew()
        facts = replace(bench.usual, out=out)
        call, both = bench.call(facts), bench.remembered(launcher)
        for _ in range(3):
            made = bench.perform(both, facts, call)
            if made.refused or len(made.launches) != 2:
                raise Wrong(
                    f"of two launches of one call {len(made.launches)} are repeated, "
                    f"and it comes to {made.told}"
                )


def _copies(bench: Bench) -> None:
    """A launch of other tensors than those that were passed is not remembered."""

    @wraps(bench.plain)
    def launcher(first: Any, *inputs: Any, out: Any = None) -> Any:
        return bench.plain(torch.empty_like(first), *inputs, out=out)

    bench.renew()
    facts, name = bench.usual, bench.plan.contraction.lhs.name
    call, copying = bench.call(facts), bench.remembered(launcher)
    address = call.inputs[name].data_ptr()
    for _ in range(3):
        made = bench.perform(copying, facts, call)
        if made.refused:
            raise Wrong(f"a launch of other tensors {made.told}")
        passed = made.launches[0].arguments[0]
        if address in (passed, getattr(passed, "address", None)):
            raise Wrong("a launch is repeated with what its launcher had copied")


def _beside(bench: Bench) -> None:
    """Two threads that call for the first time leave each other alone, at any point."""
    usual = bench.usual
    both = usual, replace(usual, n=128)
    for point in range(_POINTS):
        bench.renew(anew=False)
        calls = [bench.call(facts) for facts in both]
        actions = [
            partial(bench.perform, bench.launcher, facts, call)
            for facts, call in zip(both, calls, strict=True)
        ]
        made = in_turns(bench.driver, actions, [False] * point + [True])
        for facts, call, one in zip(both, calls, made, strict=True):
            bench.judge(facts, call, one, [])


def _holds(bench: Bench) -> None:
    """A launch has its memory though another thread takes more, at any point.

    Also if it is known, and goes past Triton's own entry, which holds what it is given.
    """
    usual, other = bench.usual, replace(bench.usual, n=128)
    fewer = [replace(usual, rows=(count,)) for count in (32, 48)]
    for remembers, known in ((True, fewer), (False, [usual])):
        for point in range(_POINTS):
            bench.renew(anew=False)
            launcher = bench.launcher if remembers else bench.plain
            for facts in known:
                bench.perform(launcher, facts, bench.call(facts))
            both = (launcher, usual), (bench.plain, other)
            calls = [bench.call(facts) for _, facts in both]
            actions = [
                partial(bench.perform, own, facts, call)
                for (own, facts), call in zip(both, calls, strict=True)
            ]
            made = in_turns(bench.driver, actions, [False] * point + [True])
            for (_, facts), call, one in zip(both, calls, made, strict=True):
                bench.check_one(facts, call, one, [])


def _signs(bench: Bench) -> None:
    """0.0 and -0.0 are different numbers, at the same addresses too; 2 is 2.0."""
    facts = replace(bench.usual, out="given")
    for values in ((0.0, 0.0, -0.0, 0.0), (2, 2, 2)):
        bench.renew()
        call = bench.call(facts)
        for name in numbers(bench.plan):
            for value in values:
                call.inputs[name] = value
                bench.check(facts, call, [])
