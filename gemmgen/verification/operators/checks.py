"""A kernel as an operator of torch: entered where it must be, and right as one.

What torch itself can check of an operator, `torch.library.opcheck`, is checked too.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from gemmgen.select.plan import Plan
from gemmgen.verification.example.cut import PLACEMENTS, check_cut
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.operators.derivatives import check_derivatives
from gemmgen.verification.operators.entered import Entered
from gemmgen.verification.operators.passes import check_pass
from gemmgen.verification.operators.registration import check_registration
from gemmgen.verification.operators.told import Told, ToldOfFunctions
from gemmgen.verification.operators.traced import check_compiled, check_recorded
from gemmgen.verification.operators.transforms import check_transforms

_ITEMS, _AXES = 2, 2
"""Of what is mapped, and how many axes it may be mapped along."""
_WHOLE_OR_COLUMNS = 2
"""Ways to cut a call: not at all, along columns; others are along its rows and K."""
_NO_GPU = "xla"
"""A device that torch knows, also where it is built for CUDA, and no kernel is for."""


def check_operator(
    plan: Plan, launcher: Callable[..., Any], device: torch.device
) -> int:
    """Raise `Wrong` for what is not as it must be; how many things were tried."""
    one = Entered(plan, launcher, device)
    checks = (
        check_registration,
        _called,
        _cut,
        _sharded,
        _told,
        _given,
        _without_memory,
        _mapped,
        _cast,
        check_compiled,
        check_recorded,
        check_derivatives,
        check_transforms,
        check_pass,
    )
    for check in checks:
        check(one)
    return len(checks)


def _called(one: Entered) -> None:
    """As an operator it returns what its launcher does."""
    one.same("the operator", one.overload(*one.inputs))
    with torch.inference_mode():
        one.same("the operator in inference mode", one.overload(*one.inputs))
    for place, _, given in one.tensors():  # which torch writes out for an operator
        negated = one.with_other(place, torch._neg_view(-given))
        one.same("the operator of a negated view", one.overload(*negated))
    out = [torch.zeros_like(want) for want in one.wanted]
    given = out if len(out) > 1 else out[0]
    with patch.object(one.launcher.operator, "overload", None):  # nobody has to see it
        one.same("a call", one.launcher.operator.call(*one.inputs))
        one.launcher.operator.call(*one.inputs, out=given)
        one.same("given results", out)


def _cut(one: Entered) -> None:
    """In each way in which DTensor may cut it, parts make it up; K, if they can."""
    axes, linear_in = one.launcher.operator.axes, one.linear_in
    if axes.linear_in != linear_in:
        raise Wrong(f"linear_in is {axes.linear_in}, not {linear_in}")
    sharding = sys.modules[type(axes).__module__]
    given = (sharding, axes, lambda *each: several(one.launcher(*each)), one.inputs)
    wanted = _WHOLE_OR_COLUMNS + len(one.rows) + (linear_in is not None)
    if (ways := check_cut(*given)) != wanted:
        raise Wrong(f"{ways} ways to cut it")


def _sharded(one: Entered) -> None:
    """DTensor, when it is there, learns these ways once, from any call."""
    slot, learnt = one.launcher.operator.slot, list[Any]()
    sharding = sys.modules[type(slot.operator.axes).__module__]
    place, _, first = next(one.tensors())
    negated = one.with_other(place, torch._neg_view(-first))
    dtensor = "torch.distributed.tensor"

    def register(overload: Any) -> Callable[..., Any]:
        return lambda ways: learnt.append((overload, ways))

    experimental = SimpleNamespace(register_sharding=register)
    there = {dtensor: PLACEMENTS, f"{dtensor}.experimental": experimental}
    with patch.object(slot, "sharded", None), patch.dict(sys.modules):
        sys.modules.pop(dtensor, None)
        one.overload(*negated)
        if slot.sharded is not None:
            raise Wrong("DTensor is imported for a call without one")
    fakes = one.mapped(FakeTensorMode().from_tensor)
    plain, inference = nullcontext, torch.inference_mode
    for given, around in ((negated, plain), (fakes, plain), (fakes, inference)):
        with patch.object(slot, "sharded", None), patch.dict(sys.modules, there):
            learnt.clear()
            for _ in range(2):
                with around():
                    one.overload(*given)
            ways = [*sharding.ways(slot.operator.axes, one.inputs)]
            found = [(name, own(*one.inputs)) for name, own in learnt]
        if found != [(one.overload, ways)]:
            raise Wrong(f"DTensor learns {found}")


def _told(one: Entered) -> None:
    """Modes are told of it, once, and of nothing else."""
    for mode in (Told(), ToldOfFunctions()):
        with mode:
            returned = one.launcher(*one.inputs)
        if mode.seen != [one.overload]:
            raise Wrong(f"a mode was told of {mode.seen}")
        one.same("under a mode", returned)
    with Told() as told:  # whole numbers are numbers too
        one.launcher(*(2 if isinstance(x, float) else x for x in one.inputs))
    if told.seen != [one.overload]:
        raise Wrong(f"of a call with integers a mode was told {told.seen}")
    out = [torch.zeros_like(want) for want in one.wanted]
    with Told() as told:
        returned = one.launcher(*one.inputs, out=out if len(out) > 1 else out[0])
    if one.overload not in told.seen:
        raise Wrong("a mode was not told of a call with out")
    one.same("given results under a mode", out)
    pairs = zip(several(returned), out, strict=True)
    kind = tuple if len(out) > 1 else Tensor
    if not isinstance(returned, kind) or not all(got is own for got, own in pairs):
        raise Wrong("a call with out under a mode returns other tensors")
    with FlopCounterMode(display=False) as counter:
        one.launcher(*one.inputs)
    if counter.get_total_flops() != one.flops:
        raise Wrong(f"{counter.get_total_flops()} operations, not {one.flops}")


def _given(one: Entered) -> None:
    """Under a mode too, what cannot be `out` is refused, and what must learn."""
    for position, want in enumerate(one.wanted):
        name = f"out[{position}]" if len(one.wanted) > 1 else "out"
        learned = want.clone().requires_grad_() * 1  # which torch would copy into
        flaws = ("int32", want.int()), ("shape", want[:1]), ("gradient", learned)
        for what, wrong in flaws:
            out = [torch.zeros_like(other) for other in one.wanted]
            out[position] = wrong
            one.refused(what, name, lambda out=out: _into(one, one.inputs, out))  # type: ignore[misc]
            if any(bool(other.any()) for at, other in enumerate(out) if at != position):
                raise Wrong(f"{what} of {name} is refused after another was written")
    if len(one.wanted) > 1:
        one.refused("too few", "out", lambda: _into(one, one.inputs, out[:1]))
    for place, name in enumerate(one.names):
        for wrong in ("word", True, 10**400):
            given = one.with_other(place, wrong)
            one.refused("a word", name, lambda given=given: _into(one, given, out))  # type: ignore[misc]
    _says_what_is_missing(one)
    place, name, given = next(one.tensors())
    learning = one.with_other(place, given.detach().requires_grad_())
    out = [torch.zeros_like(other) for other in one.wanted]
    who = "an input" if one.grad else name
    one.refused("gradient into out", who, lambda: _into(one, learning, out))


def _says_what_is_missing(one: Entered) -> None:
    """A call without its last argument is what it is without a mode."""
    told = []
    for mode in (nullcontext(), Told()):
        try:
            with mode:
                one.launcher(*one.inputs[:-1])
        except TypeError as error:
            told.append(str(error))
    if len(told) != len({*told}) + 1:
        raise Wrong(f"a call without {one.names[-1]}: {told}")


def _into(one: Entered, inputs: Sequence[Any], out: Sequence[Tensor]) -> None:
    """A call into given results that a mode is told of."""
    with Told():
        one.launcher(*inputs, out=tuple(out) if len(one.wanted) > 1 else out[0])


def _without_memory(one: Entered) -> None:
    """Its fake results are like real ones, and mistakes are refused."""
    with FakeTensorMode() as mode:
        fakes = one.mapped(mode.from_tensor)
        returned = several(one.launcher(*fakes))
        for got, want in zip(returned, one.wanted, strict=True):
            found = got.shape, got.stride(), got.dtype, got.device
            if found != (want.shape, want.stride(), want.dtype, want.device):
                raise Wrong(f"fake results are {found}")
        for place, name, _ in one.tensors():
            given = list(fakes)
            given[place] = fakes[place].to(torch.int32)
            one.refused("fake int32", name, lambda given=given: one.overload(*given))  # type: ignore[misc]
        there = [
            (
                torch.empty_like(given, device=_NO_GPU)
                if isinstance(given, Tensor)
                else given
            )
            for given in fakes
        ]
        _, name, _ = next(one.tensors())
        one.refused(f"fake on {_NO_GPU}", name, lambda: one.overload(*there))
    _on_meta(one)


def _on_meta(one: Entered) -> None:
    """As an operator it has results of the same sizes and types on the meta device."""
    metas = one.mapped(lambda given: given.to("meta"))
    for got, want in zip(several(one.overload(*metas)), one.wanted, strict=True):
        found = got.is_meta, got.shape, got.stride(), got.dtype
        if found != (True, want.shape, want.stride(), want.dtype):
            raise Wrong(f"results without memory are {found}")


def _mapped(one: Entered) -> None:
    """`torch.vmap` over arguments, alone and together, does what calls of items do."""
    places = [place for place, *_ in one.tensors()]
    with_rows = [at for at in places if one.names[at] in one.launcher.by_row]
    for mapped in (*([at] for at in places), with_rows, places):
        for first in range(_AXES if mapped else 0):
            _along(one, {place: (first + i) % _AXES for i, place in enumerate(mapped)})


def _along(one: Entered, axes: dict[int, int]) -> None:
    """The same over the arguments at some places, each along an axis; items differ.

    The operator's own rule is asked, not torch's for operators without one.
    """
    items = [
        [given + i if at in axes else given for at, given in enumerate(one.inputs)]
        for i in range(_ITEMS)
    ]
    stacked = [
        torch.stack(each, axes[at]) if at in axes else each[0]
        for at, each in enumerate(zip(*items, strict=True))
    ]
    dims = tuple(map(axes.get, range(len(stacked))))
    operator = one.launcher.operator
    with patch.object(operator, "batched", wraps=operator.batched) as rule:
        returned = several(torch.vmap(one.launcher, dims)(*stacked))
    if not rule.called:
        raise Wrong("torch.vmap does not ask the operator")
    for i, item in enumerate(items):
        wanted = several(one.launcher(*item))
        one.same("under vmap", tuple(each[i] for each in returned), wanted)


def _cast(one: Entered) -> None:
    """Autocast to A's type casts each tensor to its own, but fp64; to another, none."""
    kind, dtype = one.device.type, one.inputs[0].dtype
    for to in (torch.float16, torch.bfloat16):
        with torch.autocast(kind, to):
            one.same("under autocast", one.launcher(*one.inputs))
            if to == dtype:
                wide = one.mapped(Tensor.float)
                one.same("cast by autocast", one.launcher(*wide))
                _not_cast(one)
            else:
                other = one.with_other(0, one.inputs[0].to(to))
                name = one.names[0]
                one.refused("autocast", name, lambda a=other: one.launcher(*a))  # type: ignore[misc]


def _not_cast(one: Entered) -> None:
    """A tensor in fp64, or of integers, is refused: autocast casts neither."""
    for place, name, given in one.tensors():
        for dtype in {torch.float64, torch.int32} - {given.dtype}:
            other = one.with_other(place, given.to(dtype))
            one.refused("autocast", name, lambda a=other: one.launcher(*a))  # type: ignore[misc]
