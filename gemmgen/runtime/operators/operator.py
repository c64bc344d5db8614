"""A launcher as an operator of torch: what torch asks of one, and when it is entered.

What the operator returns is what the launcher says: its shapes and types come from the
launcher itself, which goes through its checks and launches nothing.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from numbers import Real
from typing import Any, TypeVar

import torch
from torch.utils.flop_counter import register_flop_formula

from ..checks import Checks, check_gradient, fits, refuse_out
from ..dispatch import Launches
from ..launch_cache import tracing
from ..repeats import several
from ..support import dry, profiled, transformed, watched
from .entry import Entry, define
from .registry import Slot, schema_of, slot_of
from .sharding import Axes

T = TypeVar("T", bound=Callable[..., Any])

# What an operator is called with; symbols are numbers that torch traces.
PASSED = (torch.Tensor, Real, torch.SymFloat, torch.SymInt)
AUTOCAST = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def torch_operator(
    launches: Launches, linear_in: Collection[str] | None = None
) -> Callable[[T], T]:
    """Return what makes a launcher `torch.ops.<package>.<name>` too, and returns it.

    The launcher goes on to launch by itself; calls that torch has to see, as of
    compilation, it hands to the operator. A gradient is refused unless the launcher has
    one. Results that are `linear_in` the sums and operands of these names may be
    computed in parts of K, which add up.
    """

    def registered(launcher: Any) -> Any:
        schema = schema_of(launcher)
        axes = axes_of(launcher, launches, linear_in)
        slot, new = slot_of(launcher, launcher.__name__, schema, axes)
        launcher.operator = operator = Operator(slot, launcher, launches, axes)
        launcher.memory.handed = operator.enter
        slot.keep(operator)
        if new:
            define_launcher(slot)
        return launcher

    return registered


class Operator(Entry):
    """What torch's dispatcher calls, for one launcher."""

    def __init__(
        self, slot: Slot, launcher: Any, launches: Launches, axes: Axes
    ) -> None:
        super().__init__(slot, launcher.__name__, axes)
        self.launches, self.by_row = launches, launcher.by_row
        self.launch, self.checked = launcher.unseen, launcher.__wrapped__
        self.gradient = launcher.gradient

    def enter(self, *inputs: Any, out: Any = None, **named: Any) -> Any:
        """Make a launcher's call, as an operator if torch has to see it.

        What is no tensor, or one that kernels cannot read, the launcher refuses.
        """
        if not tracing():
            every = (*inputs, *named.values())
            readable = all(isinstance(one, PASSED) for one in every)
            entered = watched(every) or (out is None and profiled())
            if not (readable and entered):
                return self.checked(*inputs, out=out, **named)
            inputs = tuple(map(number, inputs))
            named = {name: number(one) for name, one in named.items()}
        returned = self.overload(*inputs, **named)
        return returned if out is None else self.given(returned, out)

    def given(self, returned: Any, out: Any) -> Any:
        """Copy results into those that are given, of the same shapes and types."""
        results = several(returned)
        several_asked = len(results) > 1
        if several_asked:
            Checks(self.kernel).several("out", out, len(results))
        targets = tuple(out) if several_asked else (out,)
        for at, (one, target) in enumerate(zip(results, targets, strict=True)):
            name = f"out[{at}]" if several_asked else "out"
            if target.dtype != one.dtype or not fits(target.shape, tuple(one.shape)):
                what = "have the result's shape and dtype"  # no sizes, while traced
                raise ValueError(f"{self.kernel}: {name} must {what}")
            check_gradient(self.kernel, name, target)
            if one.requires_grad:
                refuse_out(self.kernel, "an input")
            target.copy_(one)
        return targets if several_asked else out

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory, of the sizes that the launcher makes."""
        with dry():
            return self.checked(*inputs)

    def differentiated(self, keys: Any, *inputs: Any) -> Any:
        """Return results for autograd to differentiate, if there is a gradient.

        The product and what its backward calls are operators, for what traces them.
        """
        if self.gradient is None:
            return super().differentiated(keys, *inputs)
        for name, one in self.tensors(inputs):
            if one.is_meta and one.requires_grad:
                raise ValueError(
                    f"{self.kernel}: {name} must not require a gradient on the meta "
                    "device: call it elsewhere, or under torch.no_grad()"
                )
        forward = self.gradient.forward
        entered = self if forward is None else forward.operator
        if not transformed():
            return self.gradient.apply(entered.overload, inputs)

        def lower(*inputs: Any) -> Any:
            with torch.enable_grad():  # which other levels may ask for
                return entered.below(keys, *inputs)

        return self.gradient.apply(lower, inputs)

    @cached_property
    def asked(self) -> Mapping[str, tuple[Sequence, torch.dtype]]:
        """The shape and dtype that the launcher asks of each tensor."""
        found: dict[str, tuple[Sequence, torch.dtype]] = {}
        with dry(found):
            self.checked(
                *(
                    torch.empty(0, device="meta") if str(one.type) == "Tensor" else 0.0
                    for one in self.overload._schema.arguments
                )
            )
        return found

    def cast(self, kind: str, *inputs: Any) -> Any:
        """Call under autocast: if that casts to A's dtype, to what each must have.

        As F.linear does: tensors of the device, of floats but fp64.
        """
        wanted = [self.asked.get(name) for name in self.names]
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, AUTOCAST[kind]))
        ):
            if wanted[0] and wanted[0][1] == torch.get_autocast_dtype(kind):
                inputs = tuple(
                    one.to(asked[1]) if asked and castable(one, kind) else one
                    for one, asked in zip(inputs, wanted, strict=True)
                )
            return self.overload(*inputs)

    def flops(self, *shapes: Any, **_: Any) -> int:
        """Return the operations of the product: 2 M N K."""
        at, dim = self.launches.sizes[1]
        return int(2 * shapes[0].numel() * shapes[at][dim])

    def batched(self, info: Any, dims: Sequence[int | None], *inputs: Any) -> Any:
        """Compute for torch.vmap: at once if rows alone differ, else item by item."""
        count = info.batch_size
        each = list(zip(self.names, inputs, dims, strict=True))
        if all(dim is None or name in self.by_row for name, _, dim in each):
            made = several(self.overload(*(self.stacked(*one, count) for one in each)))
            if not self.leading:
                sizes = count, made[0].shape[0] // count
                made = [one.unflatten(0, sizes) for one in made]
            return (made[0], 0) if len(made) == 1 else (tuple(made), (0,) * len(made))
        return super().batched(info, dims, *inputs)

    @property
    def leading(self) -> bool:
        """Whether A may have any leading sizes."""
        return ... in self.asked[self.names[0]][0]

    def stacked(self, name: str, one: Any, dim: int | None, count: int) -> Any:
        """Return an argument with the rows of all items, if it has rows.

        They are one item's after another's where there can be no leading sizes.
        """
        if name not in self.by_row:
            return one
        every = one.expand(count, *one.shape) if dim is None else one.movedim(dim, 0)
        return every if self.leading else every.flatten(0, 1)


def axes_of(
    launcher: Any, launches: Launches, linear_in: Collection[str] | None
) -> Axes:
    """Return the axes of a launcher's arguments and of its results."""
    *names, _ = inspect.signature(launcher).parameters
    own = launches.axes
    results = [axes for name, axes in own.items() if name not in names]
    return Axes({name: own[name] for name in names}, results, linear_in)


def number(one: Any) -> Any:
    """Return one of NumPy's as Python's, which torch asks for."""
    kept = not isinstance(one, Real) or isinstance(one, (float, int))
    return one if kept else float(one)


def castable(one: Any, kind: str) -> bool:
    """Return whether autocast of a kind of device may cast it."""
    return (
        isinstance(one, torch.Tensor)
        and one.is_floating_point()
        and one.device.type == kind
        and one.dtype != torch.float64
    )


def define_launcher(slot: Slot) -> None:
    """Tell torch what a new operator does, whichever launcher it will have."""
    call = define(slot)
    for kind, key in AUTOCAST.items():
        slot.library.impl(slot.name, partial(call("cast"), kind), key)
    register_flop_formula(slot.packet)(
        lambda *shapes, **named: slot.operator.flops(*shapes, **named)
    )
