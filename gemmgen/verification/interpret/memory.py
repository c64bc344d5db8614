"""Which bytes a kernel may touch: the elements of its arguments, not one beside them.

Finds every access out of bounds, and offsets that overflow, whatever lies there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

_LARGEST_MAP = 1 << 22
"""Elements from a view's first to its last for which a map of bits is kept."""


class OutOfBounds(Exception):
    """A lane that is not masked accesses what is no element of any argument."""


class Unclean(Exception):
    """A launch leaves a workspace as the next one cannot use it."""


class Region:
    """The elements of one argument, by address."""

    def __init__(self, tensor: Tensor) -> None:
        self.width = tensor.element_size()
        self.start = tensor.data_ptr()
        self.count = tensor.numel()
        self._map: Any = None
        self._sorted: Any = None
        if tensor.is_contiguous():
            return
        offsets = np.zeros(1, dtype=np.int64)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            steps = np.arange(size if stride else min(size, 1), dtype=np.int64)
            offsets = (offsets[:, None] + steps * stride).ravel()
        self.count = int(offsets.max()) + 1
        if self.count > _LARGEST_MAP:
            self._sorted = np.sort(offsets)
        else:
            self._map = np.zeros(self.count, dtype=bool)
            self._map[offsets] = True

    def holds(self, addresses: "np.ndarray[Any, Any]") -> bool:
        """Whether all addresses, as int64, are elements."""
        offsets = addresses - self.start
        if offsets.min() < 0 or offsets.max() >= self.count * self.width:
            return False
        if (offsets & (self.width - 1)).any():  # widths are powers of two
            return False
        if self._map is None and self._sorted is None:
            return True
        offsets //= self.width
        if self._map is not None:
            return bool(self._map[offsets].all())
        places = np.searchsorted(self._sorted, offsets)
        return bool((self._sorted[places] == offsets).all())


class Memory:
    """The arguments of one launch."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.regions = [Region(tensor) for tensor in tensors]

    def check(self, action: str, pointers: Any, mask: Any, width: int) -> None:
        """Raise `OutOfBounds` unless all active lanes are in one argument."""
        addresses = addressed(pointers, mask)
        if not addresses.size:
            return
        fitting = [region for region in self.regions if region.width == width]
        if not any(region.holds(addresses) for region in fitting):
            raise OutOfBounds(_described(action, addresses, fitting))


def addressed(pointers: Any, mask: Any) -> "np.ndarray[Any, Any]":
    """The addresses of active lanes; others hold any, those of other tensors too."""
    active = np.asarray(mask)
    if not active.all():
        pointers = pointers[np.broadcast_to(active, pointers.shape)]
    return np.ascontiguousarray(pointers).view(np.int64)


def _described(
    action: str, addresses: "np.ndarray[Any, Any]", regions: Sequence[Region]
) -> str:
    if not regions:
        return f"{action} of a width that no argument has"
    first = min(regions, key=lambda one: abs(int(addresses.min()) - one.start))
    reached = (addresses - first.start) // first.width
    return (
        f"{action} outside every argument: {addresses.size} lanes at elements "
        f"{reached.min()} to {reached.max()} of one that ends at {first.count - 1}"
    )
