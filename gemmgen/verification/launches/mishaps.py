"""What a launcher must do where something is amiss, around it or in a call."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.habits import direct
from gemmgen.verification.stand_in.driver import Launched
from gemmgen.verification.stand_in.turns import in_turns


def mishaps(bench: Bench) -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that is tried, by name."""
    for mishap in (
        _recovers,
        _distrusts,
        _asks_no_more,
        _complains,
        _tells_results,
        _takes_subclasses,
        _asks_for_gradients,
        _refuses_other_memory,
        _states_types,
        _makes_room,
        _needs_room,
        _counts_far,
        _serves_new_threads,
    ):
        yield str(mishap.__doc__), partial(mishap, bench)


def _recovers(bench: Bench) -> None:
    """After a launch that failed the next one is as it would have been."""
    bench.renew()
    facts = bench.usual
    call, watch = bench.call(facts), bench.driver.on_launch
    for _ in range(2):
        bench.driver.on_launch = _fail
        failed = bench.perform(bench.launcher, facts, call)
        bench.driver.on_launch = watch
        if not isinstance(failed.returned, RuntimeError):
            raise Wrong(f"a launch that fails is no error: {failed.returned!r}")
        for _ in range(3):
            bench.check(facts, call, [])


def _fail(_: Launched) -> None:
    raise RuntimeError("Triton Error [CUDA]: out of resources")


def _distrusts(bench: Bench) -> None:
    """A Triton whose launcher in C does something else is called by its own entry."""
    if not direct(bench):
        return
    facts, watch = bench.usual, bench.driver.on_launch
    call = bench.call(facts)
    for described in (False, True):
        for fails in (False, True):
            bench.renew()
            bench.driver.on_launch = partial(_amiss, bench, described, fails)
            made = [bench.perform(bench.launcher, facts, call) for _ in range(4)]
            bench.driver.on_launch = watch
            launches = [one for each in made for one in each.launches]
            if len(launches) != 4 or not all(one.through_triton for one in launches):
                raise Wrong("launched in a way that did something else when tried")


def _amiss(bench: Bench, described: bool, fails: bool, launched: Launched) -> None:
    """What a launcher tries by itself, with a descriptor or not, goes wrong."""
    kinds = launched.function.compiled.src.signature.values()
    has_one = any(kind.startswith("tensordesc") for kind in kinds)
    alike = bench.tries(launched) and has_one == described
    if not alike or launched.through_triton:
        bench.observe(launched)
    elif fails:
        raise TypeError("function takes exactly 12 arguments")


def _complains(bench: Bench) -> None:
    """What is wrong with arguments is said, remembered or not, and by a warm-up."""
    bench.renew()
    facts = bench.usual
    call = bench.call(facts)
    for _ in range(2):
        bench.perform(bench.launcher, facts, call)
    (first, *_), (*_, last) = call.inputs, call.inputs
    values = list(call.inputs.values())
    for positional, named in (
        (values, {"nobody": 1}),
        (values[:-1], {}),
        ([*values, values[-1]], {}),
        (values, {first: values[0]}),
        (values[:-1], {"nobody": values[-1]}),
        (values[:-1], {last: values[-1], "nobody": 1}),
        (values, {last: values[-1]}),
        ([], {last: values[-1]}),
    ):
        for each in (bench.launcher, bench.launcher.warmup):  # type: ignore[attr-defined]
            _says_the_same(bench, each, positional, named)


def _tells_results(bench: Bench) -> None:
    """No tensor passed as a result is taken for an input, or the other way."""
    bench.renew()
    for facts in (bench.usual, replace(bench.usual, out="given")):
        call = bench.call(facts)
        for _ in range(3):
            bench.perform(bench.launcher, facts, call)
    values, (first, *others) = list(call.inputs.values()), call.outputs or []
    given = {"out": others[0] if len(others) == 1 else tuple(others)} if others else {}
    launcher = bench.launcher
    _says_the_same(bench, launcher, values[:-1], {"out": values[-1]})
    _says_the_same(bench, launcher, [*values, first], given)
    if not others:
        for out in ((first,), [first]):
            _says_the_same(bench, launcher, values, {"out": out})


def _says_the_same(bench: Bench, call: Any, positional: Any, named: Any) -> None:
    """What is wrong is an error, in the words of the launcher that knows no call."""
    said = [_said(each, positional, named) for each in (call, bench.plain)]
    if said[0] != said[1] or said[0] == "nothing":
        raise Wrong(f"{said[0]}, afresh {said[1]}, of {list(named)} by name")


def _said(launcher: Any, positional: Any, named: Any) -> str:
    try:
        launcher(*positional, **named)
    except (TypeError, ValueError) as error:
        # What follows may count `out`, which a launcher that remembers always passes.
        return repr(error).partition(" but ")[0]
    return "nothing"


def _states_types(bench: Bench) -> None:
    """Whatever torch takes for a type or device that nobody states changes nothing."""
    before = torch.get_default_dtype()
    bench.renew()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("cpu"):
            for _ in range(3):
                call = bench.call(bench.usual)
                bench.check(bench.usual, call, [])
    finally:
        torch.set_default_dtype(before)


def _asks_no_more(bench: Bench) -> None:
    """An older GPU is asked for no descriptors, and its launches are repeated too."""
    if not direct(bench):
        return
    bench.renew()
    amiss = partial(_amiss, bench, True, True)
    with (
        patch.object(torch.cuda, "get_device_capability", lambda *_: (8, 0)),
        patch.object(bench.driver, "on_launch", amiss),
    ):
        for _ in range(3):
            made = bench.perform(bench.launcher, bench.usual, bench.call(bench.usual))
    if made.through_triton:  # there are no launches if no row serves it
        raise Wrong("launches of a GPU without descriptors decide everything anew")


def _takes_subclasses(bench: Bench) -> None:
    """Tensors of a class of their own are taken, unless that says what they do."""
    bench.renew()
    facts, name = replace(bench.usual, out="given"), bench.plan.contraction.lhs.name
    for kind in (_Own, _Own, _Own, _Dispatching):
        call = bench.call(facts)
        call.inputs[name] = call.inputs[name].as_subclass(kind)
        made = bench.check(facts, call, [])
        if made.refused != (kind is _Dispatching):
            raise Wrong(f"a tensor of a class of its own: {made.told}")


class _Own(torch.Tensor):  # type: ignore[misc]
    """A tensor like any other."""


class _Dispatching(torch.Tensor):  # type: ignore[misc]
    """A tensor whose memory need not be what it shows."""

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def _asks_for_gradients(bench: Bench) -> None:
    """An input that requires a gradient is refused while gradients are on alone."""
    bench.renew()
    for enabled in (True, False, True):
        facts = replace(
            bench.usual, gradient=(bench.plan.contraction.lhs.name, enabled)
        )
        for _ in range(3):
            call = bench.call(facts)
            if bench.check(facts, call, []).refused != enabled:
                raise Wrong(f"a gradient is required, gradients are on: {enabled}")


def _refuses_other_memory(bench: Bench) -> None:
    """Without memory of its own, as in a transform of torch.func, or on the CPU."""
    bench.renew()
    first, *others = bench.call(bench.usual).inputs.values()
    try:
        torch.func.vmap(lambda one: bench.launcher(one, *others))(first[None])
    except ValueError as error:
        if str(error).startswith(f"{bench.plan.name}: "):
            call = bench.call(bench.usual)
            for name, one in call.inputs.items():
                if isinstance(one, torch.Tensor):
                    there = torch.empty(one.shape, dtype=one.dtype, device="cpu")
                    call.inputs[name] = there
            if bench.check(bench.usual, call, []).refused:
                return
            raise Wrong("tensors of the CPU are not refused") from None
    raise Wrong("a tensor of a torch.func transform is not refused")


def _makes_room(bench: Bench) -> None:
    """There is a workspace for many tiles, also after one for few or for large ones.

    And where groups of warps share a tile, each with a counter.
    """
    bench.renew()
    for rows, n in ((64, 64), (4096, 4096), (64, 64), (4096, 4096)):
        facts = replace(bench.usual, rows=(rows,), n=n)
        bench.check(facts, bench.call(facts), [])
    for row in bench.parted:
        large = row._replace(m=64, n=64, split_k=64)
        small = row._replace(m=16, n=16, split_k=2)
        for tile, n in ((large, 512), (small, 1024)):
            facts = replace(bench.usual, rows=(n,), n=n)
            with bench.only(tile):
                bench.check(facts, bench.call(facts), [])
    tiles = [
        one for one in getattr(bench.module, "TILES", ())
        if one.schedule == bench.plan.specialized and one.warpgroups > 1
    ]  # fmt: skip
    for row in tiles[:1]:
        facts = replace(bench.usual, rows=(32 * row.m,), n=32 * row.n)
        with bench.only(row._replace(split_k=2)):
            bench.check(facts, bench.call(facts), [])


def _needs_room(bench: Bench) -> None:
    """No tile is taken that has more shared memory than a GPU gives a block."""
    if bench.plan.configs:
        return
    bench.renew()
    small = SimpleNamespace(multi_processor_count=1, shared_memory_per_block_optin=0)
    with patch.object(torch.cuda, "get_device_properties", lambda *_: small):
        made = bench.perform(bench.launcher, bench.usual, bench.call(bench.usual))
    if not isinstance(made.returned, RuntimeError):
        raise Wrong(f"without shared memory: {made.told}")


def _counts_far(bench: Bench) -> None:
    """The first offset that 32 bits do not hold is counted in 64."""
    bench.renew()
    a = bench.plan.contraction.lhs
    few = {"rows": (16,), "k": 2} if a.transposed else {"rows": (2,), "k": 16}
    facts = replace(bench.usual, **few)  # type: ignore[arg-type]
    for last in (2**31 - 1, 2**31):
        call = bench.call(facts)
        dtype = call.inputs[a.name].dtype
        whole = bench.driver.gpus.empty((last + 1,), (1,), dtype, 0)
        call.inputs[a.name] = whole.as_strided((2, 16), (last - 15, 1))
        bench.check(facts, call, [])


def _serves_new_threads(bench: Bench) -> None:
    """A thread that asked nothing of CUDA before makes any call, known or not."""
    bench.renew()
    usual = bench.usual
    known = usual, replace(usual, rows=(4096,)), replace(usual, out="given")
    for facts in known:
        for _ in range(3):
            bench.perform(bench.launcher, facts, bench.call(facts))
    others = replace(usual, rows=(4080,)), replace(usual, hooked="enter")
    for facts in (*known, *others):
        calls = [bench.call(facts) for _ in range(2)]
        actions = [partial(bench.perform, bench.launcher, facts, one) for one in calls]
        made = in_turns(bench.driver, actions, [])
        for call, one in zip(calls, made, strict=True):
            bench.check_one(facts, call, one, [])
