"""Whether what is known of a call holds for another: its signature, its addresses.

Signatures are told by one comparison in C, torch's own, by which compiled functions
guard their inputs. It is no public part of torch: where it is missing, or fails a
trial, launchers compare in Python.
"""

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch

from .checks import extent
from .support import steps

BEFORE_ALL = 2  # parts of a signature that are no argument's, as `looked_at` has it
OF_A_TENSOR = 7  # and those of a tensor: shape and strides first; a number has one

ALIGNED = 16  # bytes, on which the allocator puts whatever is no view

Alike = Callable[..., bool]
Shape = tuple[int, ...]
Leading = int | Shape  # of the results: the rows, or several sizes


def but_for_rows(
    key: Sequence[Any], tensors: Sequence[Any], by_row: Collection[int]
) -> tuple[tuple, Leading | None]:
    """Return what is left of a call's `looked_at` without rows, and the leading sizes.

    The arguments at the places `by_row` have one row, or number, for each row of the
    result; the first is a matrix. All is left, and there are no leading sizes, if there
    are no rows, or one whose step is of no account, or if several leading axes do not
    follow each other without gaps.
    """
    left, leading, at = list(key), None, BEFORE_ALL
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            at += 1
            continue
        if place in by_row:
            shape, strides = key[at : at + 2]
            leading = shape[:-1] if leading is None else leading
            count = len(leading)
            left[at] = columns = shape[count:]
            if shape[:count] != leading or not count:
                return tuple(key), None
            if count > 1:
                if not tensor.is_contiguous() or strides[-1] != 1:
                    return tuple(key), None
                left[at + 1] = steps((2, *columns))
            elif leading[0] < 2 and strides != steps(shape):
                return tuple(key), None
        at += OF_A_TENSOR
    if leading is None or math.prod(leading) < min(2, len(leading)):
        return tuple(key), None
    return tuple(left), simple(leading)


def simple(leading: Shape) -> Leading:
    """Return leading sizes, one as a number: dicts find it sooner."""
    return leading[0] if len(leading) == 1 else tuple(leading)


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
    """What repeats a call into given results where its device is the current one.

    `launch` takes the addresses of inputs and results, which must lie as `overlaps`
    allows, and the results.
    """

    device: int | None
    launch: Callable[[list, Any], Any]
    overlaps: Sequence[Overlap]


def alike(inputs: Sequence[Any], by_row: Sequence[int]) -> Alike | None:
    """Return what tells whether others have the signature of these but for rows.

    But for alignment, for gaps between leading axes, and whether gradients are on. None
    if torch has no such comparison, or these are not aligned tensors: aligned ones are
    launched otherwise.
    """
    if not discerning():
        return None
    try:
        if any(one.data_ptr() % ALIGNED for one in inputs):
            return None
        return compared(inputs, by_row)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None


def compared(inputs: Sequence[Any], by_row: Sequence[int] = ()) -> Alike:
    """Return torch's comparison, of all but the data and its address.

    Leading sizes of what is `by_row` may be any, and if there are several, their steps.
    """
    sizes, strides = [], []
    leading = inputs[by_row[0]].dim() - 1 if by_row else 0
    for place, one in enumerate(inputs):
        free = leading if place in by_row else 0
        loose = free if free > 1 else 0
        sizes.append([*[None] * free, *one.shape[free:]])
        strides.append([*[None] * loose, *one.stride()[loose:]])
    guards = torch._C._dynamo.guards.TensorGuards
    made = guards(*inputs, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return made.check


@functools.cache
def discerning() -> bool:
    """Return whether torch's comparison tells what it must, tried once."""
    plain, more_rows = torch.zeros(4, 4)[:, :2], torch.ones(5, 4)[:, :2]
    others = (
        plain.half(),
        plain[:, :1],
        torch.zeros(4, 2),
        torch.zeros(4, 4, device="meta")[:, :2],
        torch.zeros(4, 4, requires_grad=True)[:, :2],
        torch.nn.Parameter(plain, requires_grad=False),
        torch._neg_view(plain),
        0.0,
    )
    try:
        same, same_but_for_rows = compared([plain]), compared([plain], [0])
        told = not any(same(one) or same_but_for_rows(one) for one in others)
        return told and not same(more_rows)
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
