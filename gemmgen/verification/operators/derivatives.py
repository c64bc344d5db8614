"""A kernel under autograd: its own gradients alone, none left out in silence.

And what else of torch differentiates, compiles, profiles or cuts finds the same.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

from gemmgen.verification.example.one_example import Wrong, bits, several
from gemmgen.verification.operators.entered import Entered
from gemmgen.verification.operators.passes import pass_of
from gemmgen.verification.operators.told import Told

_FACTORS = 2
"""A and B, the first tensors of a call."""


def _learned(one: Entered, returned: Any) -> None:
    """Results whose gradient is asked for are in autograd's graph."""
    if not any(result.requires_grad for result in several(returned)):
        raise Wrong("no result requires a gradient, though an input does")


def _unlearned(what: str, returned: Any) -> None:
    """Others are not."""
    if any(result.requires_grad for result in several(returned)):
        raise Wrong(f"a result requires a gradient {what}")


def _derivatives(one: Entered) -> None:
    """None is computed but a kernel's own gradient, or left out in silence."""
    calls: tuple[Any, ...] = (one.launcher, one.by_name, one.overload)
    for call in calls:
        _unlearned("though no input does", call(*one.inputs))
    for place, name, tensor in one.tensors():
        learning = one.with_other(place, tensor.detach().requires_grad_())
        for call in calls:
            if one.grad:  # whose values `Trial.gradients` holds to float64
                _learned(one, call(*learning))
            else:
                one.refused("gradient", name, lambda c=call, a=learning: c(*a))  # type: ignore[misc]
            with torch.no_grad():
                returned = call(*learning)
            one.same("without gradients", returned)
            _unlearned("without gradients", returned)
        with forward_ad.dual_level():
            dual = one.with_other(place, forward_ad.make_dual(tensor, tensor))
            for call in calls:
                one.refused("tangent", name, lambda c=call, a=dual: c(*a))  # type: ignore[misc]


def _tangent_below(one: Entered) -> None:
    """A tangent is refused below a level of torch.func that asks for a gradient."""
    a, b, *more = [tensor.detach() for _, _, tensor in one.tensors()]

    def value(b: Tensor) -> Any:
        def call(a: Tensor) -> Any:
            return tuple(several(one.called_with(a, b, *more)))

        return torch.func.vjp(call, a)[0]

    try:
        torch.func.jvp(value, (b,), (b,))
    except ValueError as error:
        if "must have no tangent" not in str(error):
            raise Wrong(f"a tangent below torch.func.vjp: {error}") from error
    else:
        raise Wrong("a tangent below torch.func.vjp is lost")


def _wrong(one: Entered) -> None:
    """A wrong argument is refused by the kernel's name, where others learn too."""
    learning, _ = all_learning(one)
    for place, name, tensor in one.tensors():
        wrong = [*learning[:place], tensor.int(), *learning[place + 1 :]]
        for call in (one.launcher, one.overload):
            one.refused("int32 beside what learns", name, partial(call, *wrong))


def _once(one: Entered) -> None:
    """There is no second derivative: it is refused by the kernel's name."""
    learning, tensors = all_learning(one)
    results = several(one.launcher(*learning))
    given = [result.detach().requires_grad_() for result in results]
    _refused_twice(
        one, lambda: torch.autograd.grad(results, tensors, given, create_graph=True)
    )
    if one.launcher.gradient.forward is not None:
        return  # refuses tensors that learn beyond torch.func
    for at in (*range(_FACTORS), len(tensors)):  # of A, B and the results' gradients
        own = [x.detach().requires_grad_(i == at) for i, x in enumerate(tensors)]
        given = [x.detach().requires_grad_(at == len(tensors)) for x in results]
        _, pulled = torch.func.vjp(
            lambda *some: tuple(several(one.called_with(*some))), *own
        )
        found = sum(grad.double().sum() for grad in pulled(tuple(given)))
        if not found.requires_grad:
            raise Wrong("a second derivative is left out in silence")
        _refused_twice(one, found.backward)


def _refused_twice(one: Entered, call: Callable[[], object]) -> None:
    wanted = f"{one.launcher.__name__} has no second derivative"
    try:
        call()
    except RuntimeError as error:
        if not str(error).startswith(wanted):
            raise Wrong(f"a second derivative: not '{wanted}…': {error}") from error
    else:
        raise Wrong("a second derivative: accepted")


def _on_meta(one: Entered) -> None:
    """What learns on the meta device is refused by its name."""
    for place, name, _ in one.tensors():
        metas = one.mapped(lambda given: given.to("meta"))
        metas[place].requires_grad_()
        one.refused("meta", name, lambda metas=metas: one.overload(*metas))  # type: ignore[misc]


def _none_given(one: Entered) -> None:
    """Where no result has a gradient, no input gets one."""
    learning, tensors = all_learning(one)
    results = [_Silent.apply(result) for result in several(one.launcher(*learning))]
    given = [torch.ones_like(result) for result in results]
    found = torch.autograd.grad(results, tensors, given, allow_unused=True)
    if any(grad is not None for grad in found):
        raise Wrong("a gradient of results that got none")


class _Silent(torch.autograd.Function):  # type: ignore[misc]
    """What has a value and passes no gradient on."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        """The value."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        """None."""


def _seen(one: Entered) -> None:
    """Modes and profilers are told of what its backward launches."""
    learning, _ = all_learning(one)
    with Told() as told:
        gradients(one.launcher, learning)
    own = one.overload.namespace  # begins those of its folder too
    names = {str(func.name()) for func in told.seen if hasattr(func, "name")}
    seen = {name for name in names if name.startswith(own)}
    with torch.profiler.profile() as profile:
        gradients(one.launcher, learning)
    profiled = {event.name for event in profile.events()}
    passed = pass_of(one)
    launched = {passed.overload.name()} if passed else set()
    for who, found in (("a mode", seen), ("a profiler", profiled)):
        if len(seen) < 2 or not launched | seen <= found:
            raise Wrong(f"{who} is told of {sorted(found & (seen | launched))}")


def _lets_go(one: Entered) -> None:
    """What only a backward needs has gone once it is read, before any product."""
    learning, tensors = all_learning(one)
    results = several(one.launcher(*learning))
    given = {tensor.data_ptr() for tensor in (*tensors, *results)}

    def backward(saved: Iterable[Any], grads: Any, needs: Sequence[bool]) -> Any:
        places = [
            StorageWeakRef(x.untyped_storage())
            for x in saved
            if isinstance(x, Tensor) and x.data_ptr() not in given
        ]
        if not all(place.expired() for place in places):
            raise Wrong("what a backward has read is kept")
        return [None] * len(needs)

    with patch.object(one.launcher.gradient, "backward", backward):
        torch.autograd.grad(
            results, tensors, [*map(torch.ones_like, results)], allow_unused=True
        )


def _keeps_no_more(one: Entered) -> None:
    """A is saved for the gradient of B alone, and B for that of A."""
    for place, name, tensor in list(one.tensors())[:_FACTORS]:
        alone = one.with_other(place, tensor.detach().requires_grad_())
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda _: None):
            one.launcher(*alone)
        if any(kept.data_ptr() == tensor.data_ptr() for kept in saved):
            raise Wrong(f"{name} is saved, though nothing else learns")


def _trained(one: Entered) -> None:
    """Its gradients are the same compiled; torch checks their graph."""
    learning, _ = all_learning(one)
    torch._dynamo.reset()
    compiled = torch.compile(one.launcher, backend="aot_eager", fullgraph=True)
    plain, traced = (gradients(call, learning) for call in (one.launcher, compiled))
    same_gradients("compiled", traced, plain)
    try:
        with CrossRefFakeMode():  # every operator beside what it is without memory
            gradients(one.launcher, learning)
            for place, _, tensor in one.tensors():
                alone = one.with_other(place, tensor.detach().requires_grad_())
                gradients(one.launcher, alone)
        one.check_by_torch(True, partial(_found, one.launcher))
    except Exception as error:
        raise Wrong(f"traced with gradients: {error}") from error


def same_gradients(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Raise `Wrong` unless gradients are alike bit by bit."""
    for got, want in zip(found, wanted, strict=True):
        if not torch.equal(bits(got), bits(want)):
            raise Wrong(f"{what}: other gradients than a plain call's")


def all_learning(one: Entered) -> tuple[list[Any], list[Tensor]]:
    """The arguments, of which every tensor learns, and these tensors."""
    every = one.mapped(lambda given: given.detach().requires_grad_())
    return every, [given for given in every if isinstance(given, Tensor)]


def gradients(call: Callable[..., Any], inputs: Sequence[Any]) -> Sequence[Tensor]:
    """The gradients from results as those of results; zeros where there is none."""
    learning = [one for one in inputs if isinstance(one, Tensor) and one.requires_grad]
    results = several(call(*inputs))
    given = [one.detach() for one in results]
    found = torch.autograd.grad(results, learning, given, allow_unused=True)
    return [
        torch.zeros_like(one) if made is None else made
        for one, made in zip(learning, found, strict=True)
    ]


def _found(call: Callable[..., Any], inputs: Sequence[Any]) -> Sequence[Tensor]:
    """Results, and the gradients of inputs from them."""
    return [*several(call(*inputs)), *gradients(call, inputs)]


_OF_KERNELS_THAT_LEARN = (
    _trained,
    _tangent_below,
    _wrong,
    _once,
    _on_meta,
    _none_given,
    _seen,
    _lets_go,
    _keeps_no_more,
)


def check_derivatives(one: Entered) -> None:
    """Raise `Wrong` for what is not as it must be."""
    _derivatives(one)
    for check in _OF_KERNELS_THAT_LEARN if one.grad else ():
        check(one)
