"""Where memory lies: results beside inputs but not in them, workspaces in no pool."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.calls import Call
from gemmgen.verification.oracle.reference import torch_dtype

_M, _N = 5, 24
_K = _N
_PAD = 8
"""Elements between rows of one of the inputs."""
_POOLS = (
    ("native", (0, 1), False), ("native", (0, 0), True), ("other", (0, 1), True),
)  # fmt: skip
"""Allocators, pools that memory is of, and whether a workspace stays there."""


def places(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every place of a workspace and of the first result, by name.

    None of that where its type is not A's.
    """
    yield "a workspace in a pool", partial(_pooled, bench)
    yield "a workspace behind a pool", partial(_behind, bench)
    yield "a workspace where floats have 64 bits", partial(_by_default, bench)
    plan = bench.plan
    if plan.contraction.lhs.transposed or plan.results[0].dtype != plan.dtype:
        return
    for name, a, out, fine in _pairs():
        yield f"a result {name}", partial(_placed, bench, name, a, out, fine)
    yield "a result of no rows, in the weights", partial(_empty, bench)
    yield "a result of one row in an operand's place", partial(_in_place, bench)


def _pooled(bench: Bench) -> None:
    """No workspace stays in a pool of memory, which a graph has to get back whole.

    Of some allocators nobody knows, for they tell of no pools.
    """
    kept = subject.runtime(bench.module, "launch").WORKSPACES
    everywhere = {"address": 0, "total_size": 2**63}
    elsewhere = {"address": 0, "total_size": 1, "segment_pool_id": (0, 2)}
    for row in bench.parted:
        for backend, pool, stays in _POOLS:
            bench.renew()
            told = [elsewhere, {**everywhere, "segment_pool_id": pool}]
            with (
                bench.only(row._replace(split_k=2)),
                patch.object(
                    torch.cuda, "get_allocator_backend", partial(str, backend)
                ),
                patch.object(torch.cuda, "memory_snapshot", partial(list, told)),
            ):
                call = bench.call(bench.usual)
                made = bench.perform(bench.launcher, bench.usual, call)
            if made.refused or bool(kept) != stays:
                raise Wrong(f"{len(kept)} workspaces of pool {pool} are kept")


def _behind(bench: Bench) -> None:
    """One that begins where a pool ends is of no pool, and stays."""
    launch, found = subject.runtime(bench.module, "launch"), list[torch.Tensor]()
    made_by = launch.new_workspace

    def made(*given: Any) -> tuple[torch.Tensor, ...]:
        found[:] = made_by(*given)
        return tuple(found)

    def told() -> list[dict[str, Any]]:
        end = {"address": found[0].data_ptr() - 1, "total_size": 1}
        return [{**end, "segment_pool_id": (0, 1)}]

    for row in bench.parted:
        bench.renew()
        with (
            bench.only(row._replace(split_k=2)),
            patch.object(launch, "new_workspace", made),
            patch.object(torch.cuda, "get_allocator_backend", partial(str, "native")),
            patch.object(torch.cuda, "memory_snapshot", told),
        ):
            call = bench.call(bench.usual)
            bench.perform(bench.launcher, bench.usual, call)
        if not launch.WORKSPACES:
            raise Wrong("a workspace right behind a pool is not kept")


def _by_default(bench: Bench) -> None:
    """Sums have 32 bits, counts are integers, whatever torch makes by default."""
    kept = subject.runtime(bench.module, "launch").WORKSPACES
    for row in bench.parted:
        bench.renew()
        torch.set_default_dtype(torch.float64)
        try:
            with bench.only(row._replace(split_k=2)):
                call = bench.call(bench.usual)
                bench.perform(bench.launcher, bench.usual, call)
        finally:
            torch.set_default_dtype(torch.float32)
        for sums, counts in kept.values():
            if (sums.dtype, counts.dtype) != (torch.float32, torch.int32):
                raise Wrong(f"a workspace has {sums.dtype} and {counts.dtype}")


View = tuple[tuple[int, int], tuple[int, int], int]
"""Shape, strides and offset."""


def _pairs() -> Iterator[tuple[str, View, View, bool]]:
    """An input, a result in the same memory, and whether the two are apart."""
    a, long, wide = _M * _K, _K + _PAD, _K + _N
    before = _M * _N

    def at(rows: int, step: int, offset: int) -> View:
        return (rows, _K), (step, 1), offset  # as wide as a result, for _K is _N

    for name, given, out, fine in (
        ("right behind an input", (_M, _K, 0), (_M, _N, a), True),
        ("right before an input", (_M, _K, before), (_M, _N, 0), True),
        ("from an input's last element", (_M, _K, 0), (_M, _N, a - 1), False),
        ("up to an input's first element", (_M, _K, before - 1), (_M, _N, 0), False),
        ("in an input's last row", (_M, long, 0), (_M, _N, long * (_M - 1) + 1), False),
        ("in columns behind an input's", (_M, wide, 0), (_M, wide, _K), True),
        ("in columns before an input's", (_M, wide, _N), (_M, wide, 0), True),
        ("from an input's last column", (_M, wide, 0), (_M, wide, _K - 1), False),
        ("of one row, with no step", (1, _K, 0), (1, 0, _K), True),
        ("of one row, with any step", (1, _K, 0), (1, 1, _K), True),
        ("of no rows, in an input", (0, _K, 0), (0, _N, 8), True),
    ):
        yield name, at(*given), at(*out), fine


def _placed(bench: Bench, name: str, a: View, out: View, fine: bool) -> None:
    """Raise `Wrong` unless a call with such a result is refused where it should be."""
    plan = bench.plan
    facts = replace(bench.usual, rows=(a[0][0],), n=_N, k=_K, out="given")
    call: Call = bench.call(facts)
    assert call.outputs is not None
    whole = bench.driver.gpus.empty(
        (4 * _M * (_K + _N),), (1,), torch_dtype(plan.dtype), 0
    )
    call.inputs[plan.contraction.lhs.name] = whole.as_strided(*a)
    call.outputs[0] = whole.as_strided(*out)
    made: Any = bench.perform(bench.plain, facts, call)
    if made.refused == fine:
        raise Wrong(f"a result {name}: {made.told}")
    if made.refused and not isinstance(made.returned, ValueError):
        raise Wrong(f"a result {name} raises {made.told}")


def _empty(bench: Bench) -> None:
    """What is empty lies in nobody's way."""
    plan, facts = bench.plan, replace(bench.usual, rows=(0,), n=_N, k=_K, out="given")
    call: Call = bench.call(facts)
    assert call.outputs is not None
    call.outputs[0] = (
        call.inputs[plan.contraction.first.name].flatten()[8:8].view(0, _N)
    )
    made = bench.perform(bench.plain, facts, call)
    if made.refused:
        raise Wrong(f"an empty result within the weights: {made.told}")


def _in_place(bench: Bench) -> None:
    """An operand of one row may be the result, whatever the step to a second one."""
    plan, facts = bench.plan, replace(bench.usual, rows=(1,), n=_N, k=_K, out="given")
    alike = [
        one.name
        for one in plan.operands
        if one.is_matrix and one.dtype == plan.results[0].dtype
    ]
    for name in alike[:1]:
        call: Call = bench.call(facts)
        assert call.outputs is not None
        whole = bench.driver.gpus.empty((_N,), (1,), torch_dtype(plan.dtype), 0)
        call.inputs[name] = whole.as_strided((1, _N), (_N, 1))
        call.outputs[0] = whole.as_strided((1, _N), (1, 1))
        made = bench.perform(bench.plain, facts, call)
        if made.refused:
            raise Wrong(f"{name} of one row as the result: {made.told}")
