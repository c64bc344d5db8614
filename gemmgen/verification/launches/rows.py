"""That a call of other rows, which a launcher need not decide, is as it would be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.problem.tensors import rows_first
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.calls import Facts
from gemmgen.verification.launches.habits import (
    check_kept,
    counting,
    direct,
    few_kept,
)
from gemmgen.verification.launches.kernels import kinds
from gemmgen.verification.stand_in.driver import PROCESSORS

_FEW = ((2,), (64,), (80,), (72,), (7,), (300,))
_MANY = ((1000,), (4096,), (16384,), (5,), (128,))
"""With these K also comes in other numbers of parts."""
_WARMED = (1, 2, 7, 15, 16, 17, 48, 64, 65, 100, 128, 129, 200, 300, 400, 500, 512)
"""With these, and a long K, one tile has parts that are multiples of 16 and others."""
_FIRST_MULTIPLE = 16
"""Rows for which Triton compiles what it does not for fewer."""
_LEADING = ((8, 8), (3, 5, 7), (2, 1), (2, 1, 1))
_SINGLE = 3
_AGAIN = 2
"""So that a call is repeated at once."""


def rows(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name; little where tensors lie along M."""
    yield str(_warms.__doc__), partial(_warms, bench)
    if not related(bench):
        return
    for one in (
        _relates,
        _chooses,
        _stays_right,
        _tells_gaps,
        _tells_one,
        _tells_far,
        _refuses,
        _keeps_few,
    ):
        yield str(one.__doc__), partial(one, bench)


def related(bench: Bench) -> bool:
    """Whether calls that differ in rows alone are decided together."""
    along = rows_first(bench.plan.contraction.lhs, bench.plan.tensors)
    return direct(bench) and along


def _relates(bench: Bench) -> None:
    """Calls that differ in rows alone are decided once a tile and kind of parts."""
    leading = _LEADING if OPERATIONS[bench.plan.op].leading else ()
    bench.renew()
    for sizes in (*_FEW, *leading):
        _right(bench, bench.launcher, replace(bench.usual, rows=sizes, n=0))
    for tile in kinds(bench):
        bench.renew()
        with bench.only(tile):
            launcher, decided = counting(bench)
            most = _kinds(tile, bench.usual)
            for view in ("contiguous", "padded"):
                usual = replace(
                    bench.usual, views={bench.plan.contraction.lhs.name: view}
                )
                few = len(decided)
                for sizes in (*_FEW, *_MANY):
                    _right(bench, launcher, replace(usual, rows=sizes))
                times = len(decided) - few
                if not 1 <= times <= most:
                    raise Wrong(f"calls of other rows decide {times} times")
            few = len(decided)
            _right(bench, launcher, replace(usual, rows=_FEW[0]))
            for sizes in leading:
                _right(bench, launcher, replace(bench.usual, rows=sizes))
            if len(decided) != few:
                raise Wrong("rows with gaps, or other leading sizes, are decided anew")
            for _ in range(_SINGLE):
                _right(bench, launcher, replace(bench.usual, rows=(1,)))
            if len(decided) > few + 1:
                raise Wrong("calls of a single row are decided anew")


def _kinds(tile: Any, usual: Facts) -> int:
    """How many kernels Triton may compile for a tile and these numbers of rows.

    One for multiples of 16 and one for others, of rows and of parts of K, and for one
    part.
    """
    found = set()
    for (count,) in (*_FEW, *_MANY):
        parts = tile.splits(tile.tiles(count, usual.n), usual.k, PROCESSORS)
        found.add((count % 16 == 0, parts == 1, parts % 16 == 0))
    return len(found)


def _chooses(bench: Bench) -> None:
    """Each number of rows has the tile that it would have afresh."""
    ends = {min(int(one.M), 2**20) for one in bench.module.TILES if one.M < 2**31}
    bench.renew()
    for n, k in ((64, 4096), (4096, 4096)):
        usual = replace(bench.usual, n=n, k=k)
        for _ in range(2):
            for count in sorted({1, 2, 16, 4000, 2**20, *ends} | {e + 1 for e in ends}):
                _right(bench, bench.launcher, replace(usual, rows=(count,)))


def _stays_right(bench: Bench) -> None:
    """Other rows come with another stream, device, graph or hook, or none."""
    bench.renew()
    changes: list[dict[str, Any]] = [
        {}, {"stream": 11}, {"current": 1}, {"captured": True}, {"device": 1}, {},
    ]  # fmt: skip
    for place, change in enumerate(changes):
        for sizes in ((64 + 8 * place,), (256 + 8 * place,)):
            facts = replace(bench.usual, rows=sizes, **change)
            _right(bench, bench.launcher, facts)
    bench.renew()
    for out, sizes in (
        ("given", (64,)),
        ("given", (80,)),
        ("made", (1,)),
        ("made", (0,)),
    ):
        _right(bench, bench.launcher, replace(bench.usual, rows=sizes, out=out))
    if OPERATIONS[bench.plan.op].leading:
        bench.renew()
        for last in (32, 32, 32, 0):
            _right(bench, bench.launcher, replace(bench.usual, rows=(2, last)))
    for hook in ("enter", "exit"):
        bench.renew()
        for sizes in _FEW[:3]:
            _right(bench, bench.launcher, replace(bench.usual, rows=sizes))
            facts = replace(bench.usual, rows=(sizes[0] + 8,), hooked=hook)
            _right(bench, bench.launcher, facts)


def _tells_gaps(bench: Bench) -> None:
    """Leading axes with gaps, between them or their rows, are no rows of others."""
    if not OPERATIONS[bench.plan.op].leading:
        return
    name = bench.plan.contraction.lhs.name
    for k, shape, strides in (
        (16, (2, 3, 16), (3 * 16 + 8, 16, 1)),
        (16, (2, 3, 16), (16, 2 * 16, 1)),
        (16, (2, 3, 16), (3 * 24, 24, 1)),
        (1, (2, 3, 1), (3, 1, 5)),
    ):
        bench.renew()
        facts = replace(bench.usual, rows=(2, 3), k=k)
        for _ in range(2 * _AGAIN):  # torch compares with what came last
            _right(bench, bench.launcher, facts)
            _right(bench, bench.launcher, replace(facts, rows=(6,)))
            _right(bench, bench.launcher, facts, {name: (shape, strides)})


def _tells_one(bench: Bench) -> None:
    """The step behind a single row is of no account, that of several is.

    Nor tell calls of no rows how others are served.
    """
    usual = replace(bench.usual, n=64, k=64)
    ones, none = (1, 2, 1, 3, 2, 4), (0, 0, 0, 16, 16, 16, 0)
    for step, counts in ((16, ones), (3, ones), (64, none)):
        bench.renew()
        for count in counts:
            views = {bench.plan.contraction.lhs.name: ((count, 64), (step, 1))}
            _right(bench, bench.launcher, replace(usual, rows=(count,)), views)


def _tells_far(bench: Bench) -> None:
    """Offsets that grow with the rows take 32 bits up to the last that does."""
    plan = bench.plan
    others = [one.name for one in plan.operands if one.is_matrix]
    usual = replace(bench.usual, n=16, k=16)
    for name in (plan.contraction.lhs.name, *others):
        for step in (2**30 - 8, 2**30 - 7, 0):
            for counts in ((2, 3, 4, 2, 3), (4, 2, 3)):
                bench.renew()
                for count in counts:
                    views = {name: ((count, 16), (step, 1))}
                    _right(bench, bench.launcher, replace(usual, rows=(count,)), views)
    for n, k, few in (
        (2**30, 16, (2, 3, 2)),
        (2**30 + 1, 16, (2, 3, 2)),
        (2**15 + 1, 16, (2**16 - 16, 2**16, 2**16 - 16)),  # of results alone
        (1, 1, (2, 2**31 - 1, 2**31)),
    ):
        bench.renew()
        for count in few:
            facts = replace(bench.usual, rows=(count,), n=n, k=k)
            _right(bench, bench.launcher, facts)


def _refuses(bench: Bench) -> None:
    """What is wrong with a call is said, whatever is known of others."""
    others: dict[tuple[int, ...], tuple[int, ...]] = {(96,): (97,)}
    if OPERATIONS[bench.plan.op].leading:
        others[2, 48] = (3, 32)
    for sizes, wrong in others.items():
        usual = replace(bench.usual, rows=sizes)
        bench.renew()
        for _ in range(3):
            _right(bench, bench.launcher, usual)
        for one in bench.plan.operands:
            if "m" in one.axes:
                shape = (*wrong, usual.n) if "n" in one.axes else wrong
                steps = torch.empty(shape, device="meta").stride()
                views = {one.name: (shape, steps)}
                if not _right(bench, bench.launcher, usual, views):
                    raise Wrong(f"{one.name} of other rows is not refused")


def _keeps_few(bench: Bench) -> None:
    """Of the weights of many layers few addresses are kept."""
    usual, alive = replace(bench.usual, n=16, k=64), []
    with few_kept(bench) as most:
        bench.renew()
        for count in range(2, 2 * most + 4):
            # Tiles are remembered for eight numbers of rows at a time.
            facts = replace(usual, rows=(8 * count,))
            for _ in range(_AGAIN):
                alive.append(bench.call(facts))
                bench.check(facts, alive[-1], [])
                check_kept(bench, most)


def _warms(bench: Bench) -> None:
    """After a warm-up no call of as many rows or fewer compiles anything.

    Of as many rows, where calls of fewer have nothing in common; what is never known
    tells nothing.
    """
    warmed = _WARMED if related(bench) else _WARMED[-1:]
    leading = related(bench) and OPERATIONS[bench.plan.op].leading
    learning = replace(bench.usual, gradient=(bench.plan.contraction.first.name, False))
    for usual in (
        replace(bench.usual, rows=warmed[-1:], n=64, k=16384),
        replace(bench.usual, rows=(2, warmed[-1] // 2) if leading else warmed[-1:]),
        replace(learning, rows=warmed[-1:], n=4096, k=1024),
    ):
        bench.renew()
        told = _warmed(bench, usual)
        if bool(told) != direct(bench) or any(one.rows > warmed[-1] for one in told):
            raise Wrong(f"a warm-up tells of {told}")
        for count in warmed if told else ():
            facts = replace(usual, rows=(count,))
            made = bench.perform(bench.launcher, facts, bench.call(facts))
            if made.through_triton or not made.launches:
                raise Wrong(f"{count} rows are compiled after a warm-up\n{facts}")
    if related(bench):
        bench.renew()
        told = _warmed(bench, replace(bench.usual, rows=(_FIRST_MULTIPLE,)))
        if told and max(one.rows for one in told) != _FIRST_MULTIPLE:
            raise Wrong(f"a warm-up of {_FIRST_MULTIPLE} rows tells of {told}")


def _warmed(bench: Bench, facts: Facts) -> Any:
    """What a warm-up tells, which has waited for all that it launched."""
    launches, waited = bench.driver.launches, [0]
    positional, _ = bench.call(facts).arguments(0)
    note = patch.object(bench.driver, "wait", lambda: waited.append(len(launches)))
    with note, torch.set_grad_enabled(facts.gradient[1]):
        told = bench.launcher.warmup(*positional)  # type: ignore[attr-defined]
    if told and related(bench) and waited[-1] < len(launches):
        raise Wrong("a warm-up does not wait for what it launched")
    return told


View = tuple[Sequence[int], Sequence[int]]


def _right(
    bench: Bench, launcher: Any, facts: Facts, views: Mapping[str, View] | None = None
) -> bool:
    """Raise `Wrong` for a call that is not as afresh; whether it is refused.

    Inputs may be others, of the same type and of some shape and strides.
    """
    call = bench.call(facts)
    for name, (shape, strides) in (views or {}).items():
        sides = zip(shape, strides, strict=True)
        last = sum((n - 1) * s for n, s in sides if n > 0)
        like: torch.Tensor = call.inputs[name]
        whole = bench.driver.gpus.empty((last + 1,), (1,), like.dtype, facts.device)
        call.inputs[name] = whole.as_strided(shape, strides)
    made = bench.perform(launcher, facts, call)
    bench.judge(facts, call, made, [])
    return made.refused
