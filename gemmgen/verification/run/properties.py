"""Runs all examples of one kernel: fixed ones, refusals, and those Hypothesis draws.

Stops at the first fault, with the smallest example that shows it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from gemmgen.schedules import SCHEDULES
from gemmgen.verification.basics.profiles import Profile
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.cases.views import DESCRIBABLE
from gemmgen.verification.example import subject
from gemmgen.verification.example.edge_cases import (
    describable,
    edge_cases,
    indescribable,
    plain,
)
from gemmgen.verification.example.large_offsets import far_places
from gemmgen.verification.example.pipelined import Pipelined, pipelined
from gemmgen.verification.example.stretched import (
    GROUP,
    large,
    many_tiles,
    small,
    stretched,
)
from gemmgen.verification.example.subject import Variant
from gemmgen.verification.launches.machine import real_calls
from gemmgen.verification.oracle.comparison import Block
from gemmgen.verification.run.trial import Trial

Item = TypeVar("Item")

_AT_ONCE = 4
"""Fixed or far examples of one step: about three compilations on a GPU."""

_FEW_TILES = 32
"""Of a row or a column, in the interpreter: sides of 16 would have hundreds."""


def run(trial: Trial, profile: Profile, number: int) -> None:
    """Try everything; raise `Fault` at the first thing that is wrong."""
    trial.module = trial.attempt("import", lambda: subject.load(trial.path))
    found = trial.attempt(
        "tiles", lambda: subject.variants(trial.plan, trial.module, trial.device)
    )
    if not trial.on_gpu:
        found = [*found, *pipelined(trial.plan, trial.module)]
    found = [one for one in found if trial.file in (None, SCHEDULES[one.schedule].file)]
    for step in trial.part.of(list(_steps(trial, found, profile, number))):
        step()


def _steps(
    trial: Trial, found: list[Variant], profile: Profile, number: int
) -> Iterator[Callable[[], None]]:
    """What is done for a kernel of these tiles, in independent parts.

    They do not depend on how many processes share them, so that a seed repeats.
    """
    yield trial.refuse
    if trial.file is None:  # else one is forced throughout
        yield trial.enter
        if trial.plan.folder == trial.plan.name:  # else it is a part of another
            yield trial.bring_out
        yield partial(trial.choose, number)
        if trial.plan.backward is not None:
            yield partial(trial.gradients, profile, number)
    for one in found:
        if isinstance(one, Pipelined):  # first, for they find most that is wrong
            yield from _always(trial, one, one.cases(trial.plan))
    seeds, seen = itertools.count(number), set[object]()
    for variant in found:
        text = variant.schedule if trial.on_gpu else variant.text
        first = text not in seen
        seen.add(text)
        if first:
            yield from _once(trial, variant, profile, number)
        elif trial.on_gpu:
            yield from _always(trial, variant, filter(plain, _cases(trial, variant)))
        for examples in trial.draws(profile, len(found)):
            drawn = partial(
                trial.drawn,
                profile=profile,
                examples=examples,
                number=next(seeds),
                views=None if first else DESCRIBABLE,
            )
            yield partial(trial.forced, variant, drawn)
    yield partial(trial.unforced, found[0])
    calls = real_calls(trial.plan, trial.module) if trial.on_gpu else ()
    yield from (partial(trial.attempt, *one) for one in calls)


def _once(
    trial: Trial, variant: Variant, profile: Profile, number: int
) -> Iterator[Callable[[], None]]:
    """What is tried with one tile of each text, the smallest.

    It stands for all of its schedule where each case compiles a kernel; in the
    interpreter tiles of one text differ by size alone, and a smaller one is faster.
    """
    own = variant if trial.on_gpu else small(variant)
    roles = variant.described(trial.plan)
    yield from _always(trial, own, _cases(trial, own))
    yield from _always(trial, own, indescribable(trial.plan, roles))
    for far in _batches(far_places(trial.plan, own.block, roles)):
        yield partial(trial.forced, own, partial(trial.far_away, far))
    if trial.on_gpu:
        yield from _always(trial, own, large(trial.plan, own))
        return
    for cut, case in stretched(trial.plan, own):
        yield partial(trial.forced, cut, partial(trial.fixed, [case]))
    for cut, programs in many_tiles(own, number):
        drawn = partial(
            trial.drawn,
            profile=profile,
            examples=max(3, profile.examples // 2),
            number=number,
            programs=programs,
        )
        yield partial(trial.forced, cut, drawn)


def _always(
    trial: Trial, variant: Variant, cases: Iterable[Case]
) -> Iterator[Callable[[], None]]:
    """Cases with one tile, some at a time."""
    for some in _batches(cases):
        yield partial(trial.forced, variant, partial(trial.fixed, some))


def _cases(trial: Trial, variant: Variant) -> Iterator[Case]:
    """What is always tried with a tile.

    What descriptors cannot describe runs another schedule, which has its own turn;
    on a GPU it would compile that.
    """
    if isinstance(variant, Pipelined):
        return iter(())
    group = 0 if trial.on_gpu else GROUP
    cases = edge_cases(trial.plan, variant.block, trial.processors, group)
    if not variant.described(trial.plan):
        if SCHEDULES[variant.schedule].memory_bound and not trial.on_gpu:
            return filter(partial(_is_small, variant.block), cases)
        return cases
    return (
        one for one in cases
        if describable(trial.plan, one) or not (trial.on_gpu or one.m * one.n * one.k)
    )  # fmt: skip


def _is_small(block: Block, case: Case) -> bool:
    """Whether few tiles that are a row, or a column, cover a case.

    Others make no difference: such tiles have no groups.
    """
    return -(-case.m // block.m) * -(-case.n // block.n) <= _FEW_TILES


def _batches(items: Iterable[Item]) -> list[tuple[Item, ...]]:
    """The items in order, some at a time."""
    iterator = iter(items)
    return list(iter(lambda: tuple(itertools.islice(iterator, _AT_ONCE)), ()))
