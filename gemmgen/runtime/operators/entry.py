"""What torch's dispatcher calls of any operator."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..checks import check_gradient
from ..support import DUAL, in_mode, is_wrapped, needs_gradient
from .registry import Slot
from .sharding import Axes, shard


class Entry:
    """An operator without derivatives; subclasses define `launch` and `fake`."""

    launch: Callable[..., Any]
    """Return the results."""
    fake: Callable[..., Any]
    """Return results without memory."""

    def __init__(self, slot: Slot, kernel: str, axes: Axes) -> None:
        """Take over a slot; errors begin with the name `kernel`."""
        self.slot, self.overload, self.kernel = slot, slot.overload, kernel
        self.axes = axes
        self.names = [one.name for one in self.overload._schema.arguments]

    def autograd(self, keys: Any, *inputs: Any) -> Any:
        """Launch, or differentiate; this is the operator's kernel for autograd."""
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if DUAL._current_level >= 0:
            self.refuse_tangents(inputs)
        if needs_gradient(tensors):
            return self.differentiate(keys, *inputs)
        redirected = in_mode() or tensors[0].is_meta
        if not (redirected or any(is_wrapped(t) or t.is_neg() for t in tensors)):
            return self.launch(*inputs)  # dispatching again would cost as much again
        return self.below_autograd(keys, *inputs)

    def below_autograd(self, keys: Any, *inputs: Any) -> Any:
        """Dispatch below autograd: to the next mode or level, or to the launch."""
        shard(self.slot)
        with torch._C._AutoDispatchBelowAutograd():
            after = keys & torch._C._after_autograd_keyset
            return self.overload.redispatch(after, *inputs)

    def differentiate(self, keys: Any, *inputs: Any) -> Any:
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
        """Yield the names and values of tensors among the inputs."""
        for name, one in zip(self.names, inputs, strict=True):
            if isinstance(one, torch.Tensor):
                yield name, one

    def batched(self, info: Any, dims: Sequence[Any], *inputs: Any) -> Any:
        """Compute item by item for torch.vmap; stack results along a first axis."""
        each = list(zip(inputs, dims, strict=True))
        count = info.batch_size
        results = [
            self.overload(*(item(one, dim, i) for one, dim in each))
            for i in range(max(count, 1))
        ]
        if isinstance(results[0], torch.Tensor):
            return torch.stack(results)[:count], 0
        kind = type(results[0])
        stacked = kind(torch.stack(one)[:count] for one in zip(*results, strict=True))
        return stacked, kind([0] * len(stacked))


def item(value: Any, dim: Any, i: int) -> Any:
    """Return item i of an argument of torch.vmap, which may be the same for all.

    Of no items it is one of zeros, which tells what results would be like.
    """
    if dim is None:
        return value
    if not value.shape[dim]:
        return value.sum(dim)
    return value.select(dim, i)


def define(slot: Slot) -> Callable[[str], Callable[..., Any]]:
    """Implement a new operator in torch by the methods of its slot's `Entry`.

    Returns a function that makes a function of a method's name.
    """
    name, library = slot.name, slot.library

    def call(method: str) -> Callable[..., Any]:
        return lambda *inputs: getattr(slot.operator, method)(*inputs)

    def fake(*inputs: Any) -> Any:
        shard(slot)  # in inference mode DTensor asks for results first
        return slot.operator.fake(*inputs)

    library.impl(name, call("launch"), "CompositeExplicitAutograd")
    library.impl(name, call("autograd"), "Autograd", with_keyset=True)
    torch.library.register_fake(name, fake, lib=library)
    torch.library.register_vmap(name, call("batched"), lib=library)
    return call
