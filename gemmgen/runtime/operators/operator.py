"""A launcher as an operator of torch.

Fake results have the shapes and types that the launcher itself makes, in a dry run.
"""

import contextlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.fx import Proxy
from torch.utils.flop_counter import register_flop_formula

from ..checks import Checks, check_gradient, fits, refuse_out
from ..dispatch import Launches
from ..repeats import in_order, plain, several
from ..support import dry_run, in_transform, must_dispatch, profiling, tracing
from .entry import Entry, define
from .registry import Slot, schema_of, slot_of
from .sharding import Axes

T = TypeVar("T", bound=Callable[..., Any])

# Besides their own type, arguments may be what stands for them where torch traces.
TENSORS = (torch.Tensor, Proxy)
NUMBERS = (float, torch.SymFloat, torch.SymInt, Proxy)
AUTOCAST = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def torch_operator(
    launches: Launches, linear_in: Collection[str] | None = None
) -> Callable[[T], T]:
    """Return a decorator that defines `torch.ops.<package>.<name>` for a launcher.

    The launcher makes calls that torch has to see by the operator. Results that are
    linear in the sums and operands named by `linear_in` may be computed in parts of K,
    which add up.
    """

    def registered(launcher: Any) -> Any:
        schema = schema_of(launcher)
        axes = axes_of(launcher, launches, linear_in)
        slot, new = slot_of(launcher, launcher.__name__, schema, axes)
        launcher.operator = operator = Operator(slot, launcher, launches, axes)
        launcher.cache.as_operator = operator.call
        slot.keep(operator)
        if new:
            define_launcher(slot)
        return launcher

    return registered


class Operator(Entry):
    """What torch's dispatcher calls of a launcher's operator."""

    def __init__(
        self, slot: Slot, launcher: Any, launches: Launches, axes: Axes
    ) -> None:
        super().__init__(slot, launcher.__name__, axes)
        self.launches, self.by_row = launches, launcher.by_row
        self.launch, self.unwrapped = launcher.untracked, launcher.__wrapped__
        self.gradient = launcher.gradient
        self.kinds = [
            TENSORS if str(one.type) == "Tensor" else NUMBERS
            for one in self.overload._schema.arguments
        ]

    def call(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Make a launcher's call, as an operator if torch has to see it.

        Arguments of other types go to the launcher, which refuses them.
        """
        if not tracing():
            given = self.typed(inputs, named)
            seen = must_dispatch(given) or (out is None and profiling())
            if not (given and seen):
                return self.unwrapped(*inputs, out=out, **named)
            inputs, named = given, {}
        results = self.overload(*inputs, **named)
        return results if out is None else self.copied(results, out)

    def typed(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return all inputs in order, numbers as floats; none if a type is wrong."""
        ordered = in_order(self.names, inputs, named) or ()
        with contextlib.suppress(OverflowError):  # by an integer beyond fp64
            given = tuple(map(plain, ordered))
            if all(map(isinstance, given, self.kinds)):
                return given
        return ()

    def copied(self, results: Any, out: Any) -> Any:
        """Copy results into `out`, which must have the same shapes and types."""
        results = several(results)
        several_asked = len(results) > 1
        if several_asked:
            Checks(self.kernel).several("out", out, len(results))
        targets = tuple(out) if several_asked else (out,)
        pairs = list(zip(results, targets, strict=True))
        for at, (one, target) in enumerate(pairs):
            name = f"out[{at}]" if several_asked else "out"
            if target.dtype != one.dtype or not fits(target.shape, tuple(one.shape)):
                what = "have the result's shape and dtype"  # no sizes, while traced
                raise ValueError(f"{self.kernel}: {name} must {what}")
            check_gradient(self.kernel, name, target)
            if one.requires_grad:
                refuse_out(self.kernel, "an input")
        for one, target in pairs:  # none before all have been looked at
            target.copy_(one)
        return targets if several_asked else out

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory."""
        with dry_run():
            return self.unwrapped(*inputs)

    def differentiate(self, keys: Any, *inputs: Any) -> Any:
        """Return results that autograd can differentiate, or refuse to.

        The forward is called as an operator, so that it can be traced.
        """
        if self.gradient is None:
            return super().differentiate(keys, *inputs)
        for name, one in self.tensors(inputs):
            if one.is_meta and one.requires_grad:
                raise ValueError(
                    f"{self.kernel}: {name} must not require a gradient on the meta "
                    "device: call it elsewhere, or under torch.no_grad()"
                )
        try:
            return self.through_autograd(keys, inputs)
        except ValueError:
            self.gradient.refuse(self.fake, inputs)
            raise

    def through_autograd(self, keys: Any, inputs: Sequence[Any]) -> Any:
        """Call the forward as a node of autograd's graph."""
        forward = self.gradient.forward
        operator = self if forward is None else forward.operator
        if not in_transform():
            return self.gradient.apply(operator.overload, inputs)

        def lower(*inputs: Any) -> Any:
            # Lower levels of torch.func may need gradients, and refuse tangents.
            with torch.enable_grad(), _set_fwd_grad_enabled(True):
                return operator.below_autograd(keys, *inputs)

        return self.gradient.apply(lower, inputs)

    @cached_property
    def requested(self) -> Mapping[str, tuple[Sequence, torch.dtype]]:
        """The shape and dtype that each tensor must have, by name."""
        found: dict[str, tuple[Sequence, torch.dtype]] = {}
        with dry_run(found):
            self.unwrapped(
                *(
                    torch.empty(0, device="meta") if kind is TENSORS else 0.0
                    for kind in self.kinds
                )
            )
        return found

    def cast(self, kind: str, *inputs: Any) -> Any:
        """Call under autocast, as F.linear does.

        If autocast is to A's dtype, each float tensor of the device but fp64 is cast to
        the dtype that it must have.
        """
        dtypes = {name: dtype for name, (_, dtype) in self.requested.items()}
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST[kind]))
        ):
            if dtypes[self.names[0]] == torch.get_autocast_dtype(kind):
                inputs = tuple(
                    one.to(dtypes[name]) if castable(one) else one
                    for name, one in zip(self.names, inputs, strict=True)
                )
            return self.overload(*inputs)

    def flops(self, *shapes: Any, **_: Any) -> int:
        """Return the operations of the product: 2 M N K."""
        at, dim = self.launches.sizes[1]
        return int(2 * shapes[0].numel() * shapes[at][dim])

    def batched(self, info: Any, dims: Sequence[int | None], *inputs: Any) -> Any:
        """Compute for torch.vmap: at once if only arguments with rows are mapped."""
        count = info.batch_size
        each = list(zip(self.names, inputs, dims, strict=True))
        if all(dim is None or name in self.by_row for name, _, dim in each):
            inputs = tuple(self.stacked(*one, count) for one in each)
            results = several(self.overload(*inputs))
            if not self.leading:
                sizes = count, results[0].shape[0] // count
                results = [one.unflatten(0, sizes) for one in results]
            if len(results) == 1:
                return results[0], 0
            return tuple(results), (0,) * len(results)
        return super().batched(info, dims, *inputs)

    @property
    def leading(self) -> bool:
        """Whether A may have any leading sizes."""
        return ... in self.requested[self.names[0]][0]

    def stacked(self, name: str, one: Any, dim: int | None, count: int) -> Any:
        """Return an argument with the rows of all items, if it has rows."""
        if name not in self.by_row:
            return one
        every = one.expand(count, *one.shape) if dim is None else one.movedim(dim, 0)
        return every if self.leading else every.flatten(0, 1)


def axes_of(
    launcher: Any, launches: Launches, linear_in: Collection[str] | None
) -> Axes:
    """Return the axes of a launcher's arguments and of its results."""
    *names, _ = inspect.signature(launcher).parameters
    every = launches.axes
    results = [axes for name, axes in every.items() if name not in names]
    return Axes({name: every[name] for name in names}, results, linear_in)


def castable(one: Any) -> bool:
    """Return whether autocast casts an argument."""
    of_floats = isinstance(one, torch.Tensor) and one.is_floating_point()
    return of_floats and one.dtype != torch.float64


def define_launcher(slot: Slot) -> None:
    """Implement a launcher's new operator in torch."""
    call = define(slot)
    for kind, key in AUTOCAST.items():
        slot.library.impl(slot.name, partial(call("cast"), kind), key)
    register_flop_formula(slot.packet)(
        lambda *shapes, **named: slot.operator.flops(*shapes, **named)
    )
