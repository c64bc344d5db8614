"""What torch's dispatcher calls of an operator, whatever that computes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..checks import check_gradient
from ..support import DUAL, is_wrapped, moded, transformed
from .registry import Slot
from .sharding import Axes, shard


class Entry:
    """An operator without derivatives; `launch` and `fake` are to be defined."""

    launch: Callable[..., Any]
    """Compute the results."""
    fake: Callable[..., Any]
    """Return them without memory."""

    def __init__(self, slot: Slot, kernel: str, axes: Axes) -> None:
        """Speak for what is called `kernel`."""
        self.slot, self.overload, self.kernel = slot, slot.overload, kernel
        self.axes = axes
        self.names = [one.name for one in self.overload._schema.arguments]

    def graded(self, keys: Any, *inputs: Any) -> Any:
        """Compute what gradients are asked of, or refuse; else launch."""
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if DUAL._current_level >= 0:
            self.refuse_tangents(inputs)
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            return self.differentiated(keys, *inputs)
        away = moded() or transformed() or tensors[0].is_meta
        if not (away or any(is_wrapped(one) or one.is_neg() for one in tensors)):
            return self.launch(*inputs)  # another turn would cost as much again
        return self.below(keys, *inputs)

    def below(self, keys: Any, *inputs: Any) -> Any:
        """Call what comes after autograd: the next mode or level, or the launch."""
        shard(self.slot)
        with torch._C._AutoDispatchBelowAutograd():
            after = keys & torch._C._after_autograd_keyset
            return self.overload.redispatch(after, *inputs)

    def differentiated(self, keys: Any, *inputs: Any) -> Any:
        """Raise ValueError for an input that requires a gradient."""
        for name, one in self.tensors(inputs):
            check_gradient(self.kernel, name, one)

    def refuse_tangents(self, inputs: Sequence[Any]) -> None:
        """Raise ValueError for an input that has a forward derivative."""
        for name, one in self.tensors(inputs):
            if DUAL.unpack_dual(one).tangent is not None:
                raise ValueError(
                    f"{self.kernel}: {name} must have no tangent, for {self.kernel} "
                    "computes no forward derivative"
                )

    def tensors(self, inputs: Sequence[Any]) -> Iterator[tuple[str, torch.Tensor]]:
        """Return those of the inputs, with their names."""
        for name, one in zip(self.names, inputs, strict=True):
            if isinstance(one, torch.Tensor):
                yield name, one

    def batched(self, info: Any, dims: Sequence[Any], *inputs: Any) -> Any:
        """Compute item by item for torch.vmap; results are stacked in front."""
        each = list(zip(inputs, dims, strict=True))
        every = [
            self.overload(*(item(one, dim, at) for one, dim in each))
            for at in range(info.batch_size)
        ]
        if isinstance(every[0], torch.Tensor):
            return torch.stack(every), 0
        kind = type(every[0])
        made = kind(map(torch.stack, zip(*every, strict=True)))
        return made, kind([0] * len(made))


def item(one: Any, dim: Any, at: int) -> Any:
    """Return one item of what torch.vmap was given, which may be the same for all."""
    mapped = isinstance(one, torch.Tensor) and dim is not None
    return one.select(dim, at) if mapped else one


def define(slot: Slot) -> Callable[[str], Callable[..., Any]]:
    """Tell torch what a new operator does, whichever `Entry` it will have.

    Returns what makes a function that calls a method of that.
    """
    name, library = slot.name, slot.library

    def call(what: str) -> Callable[..., Any]:
        return lambda *inputs: getattr(slot.operator, what)(*inputs)

    def fake(*inputs: Any) -> Any:
        shard(slot)  # in inference mode DTensor asks for results before all else
        return slot.operator.fake(*inputs)

    library.impl(name, call("launch"), "CompositeExplicitAutograd")
    library.impl(name, call("graded"), "Autograd", with_keyset=True)
    torch.library.register_fake(name, fake, lib=library)
    torch.library.register_vmap(name, call("batched"), lib=library)
    return call
