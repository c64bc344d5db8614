"""A launcher as an operator of torch: what torch asks of one, and when it is entered.

What the operator returns is what the launcher says: its shapes and types come from the
launcher itself, which goes through its checks and launches nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from numbers import Real
from typing import Any, TypeVar

import torch
from torch.utils.flop_counter import register_flop_formula

from ..checks import Checks, check_gradient, fits
from ..dispatch import Launches
from ..launch_cache import tracing
from ..repeats import several
from ..support import DUAL, dry, is_wrapped, moded, profiled, transformed, watched
from .registry import Slot, slot_of

T = TypeVar("T", bound=Callable[..., Any])

# What an operator is called with; symbols are numbers that torch traces.
PASSED = (torch.Tensor, Real, torch.SymFloat, torch.SymInt)
AUTOCAST = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def torch_operator(launches: Launches) -> Callable[[T], T]:
    """Return what makes a launcher `torch.ops.<package>.<name>` too, and returns it.

    The launcher goes on to launch by itself; calls that torch has to see, as of
    compilation, it hands to the operator. A gradient is refused unless the launcher has
    one, and its tensors are plain.
    """

    def registered(launcher: Any) -> Any:
        slot, new = slot_of(launcher)
        launcher.operator = operator = Operator(slot, launcher, launches)
        launcher.memory.handed = operator.enter
        slot.keep(operator)
        if new:
            define(slot)
        return launcher

    return registered


class Operator:
    """What torch's dispatcher calls, for one launcher."""

    def __init__(self, slot: Slot, launcher: Any, launches: Launches) -> None:
        self.overload, self.launches = slot.overload, launches
        self.launcher, self.gradient = launcher, launcher.gradient
        self.kernel, self.by_row = launcher.__name__, launcher.by_row
        self.launch, self.checked = launcher.unseen, launcher.__wrapped__
        self.names = [one.name for one in self.overload._schema.arguments]

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
            target.copy_(one)
        return targets if several_asked else out

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory, of the sizes that the launcher makes."""
        with dry():
            return self.checked(*inputs)

    def graded(self, keys: Any, *inputs: Any) -> Any:
        """Compute what gradients are asked of, or refuse; else launch.

        A kernel's own backward is entered for plain tensors alone: what it does between
        its products is no operator.
        """
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        away = moded() or transformed() or tensors[0].is_meta
        away = away or any(map(is_wrapped, tensors))
        if DUAL._current_level >= 0:
            self.refuse_tangents(inputs)
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            if self.gradient is not None and not away:
                return self.gradient.call(self.launcher, self.names, inputs, None)
            self.refuse_gradients(inputs)
        if not away:
            return self.launch(*inputs)  # another turn would cost as much again
        with torch._C._AutoDispatchBelowAutograd():
            below = keys & torch._C._after_autograd_keyset
            return self.overload.redispatch(below, *inputs)

    def refuse_gradients(self, inputs: Sequence[Any]) -> None:
        """Raise ValueError for an input that requires a gradient."""
        for name, one in zip(self.names, inputs, strict=True):
            if not isinstance(one, torch.Tensor):
                continue
            if self.gradient is not None and one.requires_grad:
                raise ValueError(
                    f"{self.kernel}: {name} must not require a gradient under "
                    "torch.compile, a mode, torch.func or as a subclass: call "
                    f"{self.kernel} outside of them, or under torch.no_grad()"
                )
            check_gradient(self.kernel, name, one)

    def refuse_tangents(self, inputs: Sequence[Any]) -> None:
        """Raise ValueError for an input that has a forward derivative."""
        for name, one in zip(self.names, inputs, strict=True):
            if not isinstance(one, torch.Tensor):
                continue
            if DUAL.unpack_dual(one).tangent is not None:
                raise ValueError(
                    f"{self.kernel}: {name} must have no tangent, for {self.kernel} "
                    "computes no forward derivative"
                )

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
        else:
            every = [
                several(self.overload(*(item(one, dim, at) for _, one, dim in each)))
                for at in range(count)
            ]
            made = list(map(torch.stack, zip(*every, strict=True)))
        return (made[0], 0) if len(made) == 1 else (tuple(made), (0,) * len(made))

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


def item(one: Any, dim: int | None, at: int) -> Any:
    """Return one item of what torch.vmap was given, which may be the same for all."""
    return one if dim is None else one.select(dim, at)


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


def define(slot: Slot) -> None:
    """Tell torch what a new operator does, whichever launcher it will have."""
    name, library = slot.name, slot.library

    def call(what: str) -> Callable[..., Any]:
        return lambda *inputs: getattr(slot.operator, what)(*inputs)

    library.impl(name, call("launch"), "CompositeExplicitAutograd")
    library.impl(name, call("graded"), "Autograd", with_keyset=True)
    for kind, key in AUTOCAST.items():
        library.impl(name, partial(call("cast"), kind), key)
    torch.library.register_fake(name, call("fake"), lib=library)
    torch.library.register_vmap(name, call("batched"), lib=library)
    register_flop_formula(slot.packet)(
        lambda *shapes, **named: slot.operator.flops(*shapes, **named)
    )
