"""Whether a call may repeat the launch of another: signatures, overlaps in memory.

Signatures are compared in C by the guards of torch.compile. They are no public part of
torch: where they are missing, or fail a trial, launchers compare in Python.
"""

import contextlib
import functools
import math
import numbers
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import torch

from .checks import LARGEST, extent, mark_written
from .launch import Launch
from .packed import Compiled, tma_templates
from .replay import replay_of
from .support import contiguous_strides

KEY_HEAD = 1  # parts of a `call_key` before those of arguments
KEY_PER_TENSOR = 7  # parts of a tensor, shape and strides first; a number has one

TENSORS = (torch.Tensor, torch.nn.Parameter)  # types without a dispatch of their own
ALIGNED = 16  # bytes, to which the allocator aligns tensors

NO_KEY = AttributeError, OverflowError, RuntimeError, TypeError  # where none is made

Matcher = Callable[..., bool]
Shape = tuple[int, ...]
Leading = int | Shape  # of the results: the rows, or several sizes


def call_key(inputs: Sequence[Any], out: Any = None) -> tuple[tuple, list[int | float]]:
    """Return the signature of a call, and `addresses_of` its arguments.

    The signature has all that may change the launch; of a number its sign, since
    `PackedArgs` would find 0.0 for -0.0. Raises one of `NO_KEY` for what is no plain
    tensor or requires a gradient, and for a number beyond fp32: the launcher judges
    these. One pass does both, for speed.
    """
    grad_enabled = torch.is_grad_enabled()
    key: list[Any] = [type(out)]
    addresses: list[int | float] = []
    for one in inputs if out is None else (*inputs, *several(out)):
        if type(one) in TENSORS:
            address = one.data_ptr()
            key += (one.shape, one.stride(), one.dtype, one.get_device(), address & 15)
            requires_grad = one.requires_grad
            if requires_grad and grad_enabled:
                raise TypeError
            key += (requires_grad, one.is_neg())
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
    """Return all inputs by position; None if some are missing or unknown."""
    ordered = [named[name] for name in names[len(inputs) :] if name in named]
    if len(inputs) + len(named) != len(names) or len(ordered) < len(named):
        return None
    return (*inputs, *ordered)


def plain(value: Any) -> Any:
    """Return a number that launchers take as a float; anything else as it is."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # which launchers refuse
            return float(value)
    return value


def several(out: Any) -> Sequence[Any]:
    """Return one or several results as a sequence."""
    return out if isinstance(out, (tuple, list)) else (out,)


def without_rows(
    key: Sequence[Any], tensors: Sequence[Any], by_row: Collection[int]
) -> tuple[tuple, Leading | None]:
    """Return a `call_key` without rows, and the leading sizes.

    The arguments at the places `by_row` have a row, or number, for each row of the
    result; the first is a matrix. Returns the whole key and None if there are no rows,
    a single row with an odd stride, or several leading axes with gaps between them.
    """
    left, leading, at = list(key), None, KEY_HEAD
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
                left[at + 1] = contiguous_strides((2, *columns))
            elif leading[0] < 2 and strides != contiguous_strides(shape):
                return tuple(key), None
        at += KEY_PER_TENSOR
    if leading is None or math.prod(leading) < min(2, len(leading)):
        return tuple(key), None
    return tuple(left), compact(leading)


def compact(leading: Shape) -> Leading:
    """Return leading sizes, a single one as a number, which dicts find sooner."""
    return leading[0] if len(leading) == 1 else tuple(leading)


class Overlap(NamedTuple):
    """The distances in bytes at which two arguments, by position, share no memory.

    From the begin of `first` to that of `second` it is `behind` or more, `before`, a
    negative number, or less, or `known`, at which the launcher found them to be fit.
    """

    first: int
    second: int
    before: int
    behind: int
    known: int


class Repeat(NamedTuple):
    """A call into given results that can be repeated while its device is current.

    `launch` takes the addresses of inputs and results, which `overlaps` must allow, and
    the results.
    """

    device: int | None
    launch: Callable[[list, Any], Any]
    overlaps: Sequence[Overlap]


def repeat_of(
    launch: Launch,
    compiled: Compiled,
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
) -> Repeat:
    """Return the repeat of a launch into other results."""
    replay = replay_of(launch, compiled, tma_templates(launch, compiled))
    single = len(results) == 1

    def repeat(addresses: list[int | float], out: Any) -> Any:
        for one in several(out):
            mark_written(one)
        replay(addresses)
        return out if single else tuple(out)

    return Repeat(launch.device.index, repeat, overlaps(inputs, results))


def matcher(inputs: Sequence[Any], by_row: Sequence[int]) -> Matcher | None:
    """Return a function that tells whether inputs match these but for their rows.

    It does not look at alignment, gaps between leading axes, or whether gradients are
    on. None if torch has no such comparison, or if these are not aligned tensors.
    """
    if not comparison_works():
        return None
    try:
        if any(one.data_ptr() % ALIGNED for one in inputs):
            return None
        return tensor_comparison(inputs, by_row)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None


def tensor_comparison(inputs: Sequence[Any], by_row: Sequence[int] = ()) -> Matcher:
    """Return torch's comparison of everything but data and addresses.

    Of arguments `by_row` the leading sizes may be any and, if several, their strides.
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
def comparison_works() -> bool:
    """Return whether torch's comparison sees all differences, tried once."""
    usual, more_rows = torch.zeros(4, 4)[:, :2], torch.ones(5, 4)[:, :2]
    others = (
        usual.half(),
        usual[:, :1],
        torch.zeros(4, 2),
        torch.zeros(4, 4, device="meta")[:, :2],
        torch.zeros(4, 4, requires_grad=True)[:, :2],
        torch.nn.Parameter(usual, requires_grad=False),
        torch._neg_view(usual),
        0.0,
    )
    try:
        same, any_rows = tensor_comparison([usual]), tensor_comparison([usual], [0])
        differ = not any(same(other) or any_rows(other) for other in others)
        return differ and not same(more_rows)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False


def overlaps(inputs: Sequence[Any], results: Sequence[torch.Tensor]) -> list[Overlap]:
    """Return what must hold of addresses for results to overwrite no argument."""
    passed = [*inputs, *results]
    return [
        Overlap(i, j, -extent(result), extent(one), result.data_ptr() - one.data_ptr())
        for j, result in enumerate(passed)
        for i, one in enumerate(passed[:j])
        if j >= len(inputs) and isinstance(one, torch.Tensor)
    ]


def keep_apart(pairs: Sequence[Overlap], addresses: Sequence[int | float]) -> bool:
    """Return whether arguments at these addresses are known to share no memory."""
    for first, second, before, behind, known in pairs:
        distance = addresses[second] - addresses[first]
        if before < distance < behind and distance != known:
            return False
    return True
