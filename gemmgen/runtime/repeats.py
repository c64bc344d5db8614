"""Whether what is known of a call holds for another: its signature, its addresses.

Signatures are told by one comparison in C, torch's own, by which compiled functions
guard their inputs. It is no public part of torch: where it is missing, or fails a
trial, launchers compare in Python.
"""

import functools
import math
import numbers
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch

from .checks import LARGEST, extent, written
from .launch import Launch
from .packed import Compiled, likenesses
from .replay import replaying
from .support import steps

BEFORE_ALL = 2  # parts of a signature that are no argument's, as `looked_at` has it
OF_A_TENSOR = 7  # and those of a tensor: shape and strides first; a number has one

PLAIN = (torch.Tensor, torch.nn.Parameter)  # types whose memory is what it seems
ALIGNED = 16  # bytes, on which the allocator puts whatever is no view

Alike = Callable[..., bool]
Shape = tuple[int, ...]
Leading = int | Shape  # of the results: the rows, or several sizes


def looked_at(
    inputs: Sequence[Any], out: Any = None
) -> tuple[tuple, list[int | float]]:
    """Return all of the arguments that may change what is launched, and `addresses_of`.

    In one pass, for every call takes it. First come what `BEFORE_ALL` counts, then of
    each tensor what `OF_A_TENSOR` counts. Of a number the sign is enough: else
    `Arguments` would find 0.0 for -0.0. TypeError for what is no plain tensor, or for
    one whose gradient is asked for; OverflowError for a number beyond fp32, which is
    the launcher's to judge.
    """
    graded = torch.is_grad_enabled()
    key: list[Any] = [graded, type(out)]
    addresses: list[int | float] = []
    for one in inputs if out is None else (*inputs, *several(out)):
        if type(one) in PLAIN:
            address = one.data_ptr()
            key += (one.shape, one.stride(), one.dtype, one.get_device(), address & 15)
            learning = one.requires_grad
            if learning and graded:
                raise TypeError
            key += (learning, one.is_neg())
            addresses.append(address)
        elif type(one) in (float, int):
            number = float(one)
            if not -LARGEST <= number <= LARGEST:
                raise OverflowError
            key.append(math.copysign(1.0, number))
            addresses.append(number)
        else:
            raise TypeError
    return tuple(key), addresses


def in_order(
    names: Sequence[str], inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return all inputs by position; None unless those by name are what is missing."""
    ordered = [named[name] for name in names[len(inputs) :] if name in named]
    if len(inputs) + len(named) != len(names) or len(ordered) < len(named):
        return None
    return (*inputs, *ordered)


def plain(one: Any) -> Any:
    """Return a number of any type as a float, but for what launchers refuse."""
    number = isinstance(one, numbers.Real) and not isinstance(one, bool)
    return float(one) if number else one


def several(out: Any) -> Sequence[Any]:
    """Return the results as a sequence, also if there is one."""
    return out if isinstance(out, (tuple, list)) else (out,)


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


def repeating(
    launch: Launch,
    compiled: Compiled,
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
) -> Repeat:
    """Return what repeats a launch into other results."""
    replay = replaying(launch, compiled, likenesses(launch, compiled))
    one_alone = len(results) == 1

    def repeat(addresses: list[int | float], out: Any) -> Any:
        for one in several(out):
            written(one)
        replay(addresses)
        return out if one_alone else tuple(out)

    return Repeat(launch.device.index, repeat, overlaps(inputs, results))


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
