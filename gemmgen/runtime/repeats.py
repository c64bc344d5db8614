"""What repeats a call: whether it may for other tensors, and which did last.

Signatures met last are told by one comparison in C, torch's own, by which compiled
functions guard their inputs. It is no public part of torch: where it is missing, or
fails a trial, launchers compare in Python.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .checks import extent

MOST_LATEST = 8  # signatures that a call is held against in turn
ALIGNED = 16  # bytes, on which the allocator puts whatever is no view

Alike = Callable[..., bool]


class Overlap(NamedTuple):
    """Two arguments, by position, and how far apart they may begin.

    `second` may begin `behind` bytes after `first` or more, `before` bytes before it or
    more, or just as far from it as when the launcher looked at both.
    """

    first: int
    second: int
    before: int
    behind: int
    known: int


class Repeat(NamedTuple):
    """What repeats a call where its device is the current one.

    `launch` takes the addresses of the inputs, and of `out` if there is one, which must
    lie as `overlaps` allows. Others have the signature of its inputs if they are
    `alike`, where that is known, aligned, and gradients are off if one is `learning`.
    """

    device: int | None
    launch: Callable[..., Any]
    alike: Alike | None
    learning: bool = False
    overlaps: Sequence[Overlap] = ()


class Latest:
    """What repeats calls of the signatures met last, the newest first."""

    def __init__(self) -> None:
        """Know none yet."""
        self.repeats: tuple[Repeat, ...] = ()

    def found(self, inputs: Sequence[Any]) -> tuple[Repeat | None, list[Any]]:
        """Return what repeats a call of such inputs, or None, and `addresses_of`."""
        for repeat in self.repeats:
            if repeat.alike(*inputs):  # type: ignore[misc]
                addresses, bits = [], 0
                for one in inputs:
                    address = one.data_ptr()
                    bits |= address
                    addresses.append(address)
                if bits % ALIGNED or (repeat.learning and torch.is_grad_enabled()):
                    break
                return repeat, addresses
        return None, []

    def keep(self, repeat: Repeat) -> None:
        """Remember what has repeated a call, unless its inputs cannot be compared."""
        if repeat.alike and repeat not in self.repeats:
            self.repeats = (repeat, *self.repeats[: MOST_LATEST - 1])


def alike(inputs: Sequence[Any]) -> Alike | None:
    """Return what tells whether others have the signature of these.

    But for alignment, and whether gradients are on. None if torch has no such
    comparison, or these are not aligned tensors: aligned ones are launched otherwise.
    """
    if not discerning():
        return None
    try:
        if any(one.data_ptr() % ALIGNED for one in inputs):
            return None
        return compared(*inputs)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None


def compared(*inputs: Any) -> Alike:
    """Return torch's comparison, of all but the data and its address."""
    guards = torch._C._dynamo.guards.TensorGuards
    made = guards(*inputs, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return made.check


@functools.cache
def discerning() -> bool:
    """Return whether torch's comparison tells what it must, tried once."""
    plain = torch.zeros(4, 4)[:, :2]
    others = (
        plain.half(),
        plain[:2],
        torch.zeros(4, 2),
        torch.zeros(4, 4, device="meta")[:, :2],
        torch.zeros(4, 4, requires_grad=True)[:, :2],
        torch.nn.Parameter(plain, requires_grad=False),
        torch._neg_view(plain),
        0.0,
    )
    try:
        same = compared(plain)
        told = not any(same(one) for one in others)
        return told and bool(same(torch.ones(4, 4)[:, :2]))
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False


def overlaps(inputs: Sequence[Any], results: Sequence[torch.Tensor]) -> list[Overlap]:
    """Return what must hold of the addresses for results to spoil no other argument."""
    passed = [*inputs, *results]
    return [
        Overlap(i, j, -extent(result), extent(one), result.data_ptr() - one.data_ptr())
        for j, result in enumerate(passed)
        for i, one in enumerate(passed[:j])
        if j >= len(inputs) and isinstance(one, torch.Tensor)
    ]


def harmless(pairs: Sequence[Overlap], addresses: Sequence[int | float]) -> bool:
    """Return whether arguments at these addresses are known to be apart."""
    for first, second, before, behind, known in pairs:
        distance = addresses[second] - addresses[first]
        if before < distance < behind and distance != known:
            return False
    return True
