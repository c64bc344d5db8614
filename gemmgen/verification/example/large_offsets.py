"""Calls in which the offsets of one tensor pass 2^31, by an axis or by their sum.

The tensors are small; their storage is large, but for the elements it is never touched.
"""

import fcntl
import mmap
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.example.edge_cases import numbered
from gemmgen.verification.example.one_example import (
    Call,
    framed_inputs,
    framed_outputs,
    input_shapes,
)
from gemmgen.verification.oracle.comparison import Block

_LIMIT = 2**31
_SPARE = 2**20
"""Elements beyond that, for the last rows."""
_PATIENCE, _PAUSE = 60.0, 0.2
"""Seconds: as long as a handful of other processes take over theirs; between looks."""
_RESERVE = 0.125
"""Of a GPU's memory: left to the small tensors of all processes."""
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # the name is Python 3.11's


@dataclass(frozen=True)
class Far:
    """One call: its sizes, and the tensor that is spread out along some of its axes.

    Along two, neither takes it beyond 2^31 alone. `step` is that of its other axis.
    """

    name: str
    axes: tuple[int, ...]
    case: Case
    step: int

    def __str__(self) -> str:
        axes = " and ".join(map(str, self.axes))
        return (
            f"M={self.case.m} N={self.case.n} K={self.case.k}, elements beyond 2^31 "
            f"along axis {axes} of {self.name}"
        )


def far_places(
    plan: Plan, block: Block, described: Collection[str] = ()
) -> Iterator[Far]:
    """Each axis of each tensor within one tile, both, then K from block to block.

    Tensors of `described` roles stay as descriptors can describe them, contiguous along
    their last axis and of such sizes. All others lie apart along both axes, near ones
    too: on a GPU, one kernel serves all these calls.
    """
    side = 16 if described else 3
    held = [one.role in described for one in plan.passed]
    views = tuple("contiguous" if one else "sliced" for one in held)
    near = replace(numbered(plan, Case((side,), side, side)), views=views)
    long = replace(near, k=block.k + (16 if described else 1))
    for position, (name, shape) in enumerate(_shapes(plan, near).items()):
        axes = range(1 if held[position] else len(shape))
        step = 1 if held[position] else 2
        yield from (Far(name, (axis,), near, step) for axis in axes)
        if len(axes) == 2:
            yield Far(name, (0, 1), near, step)
        size = _shapes(plan, long)[name]
        yield from (Far(name, (i,), long, step) for i in axes if size[i] == long.k)


def _shapes(plan: Plan, case: Case) -> dict[str, tuple[int, ...]]:
    """Every tensor and its shape."""
    results = {one.name: (*case.rows, case.n) for one in plan.results}
    return input_shapes(plan, case) | results


def far_call(plan: Plan, far: Far, device: torch.device) -> Call:
    """The call's arguments; raises `torch.OutOfMemoryError` where they cannot fit."""
    inputs = framed_inputs(plan, far.case, device)
    outputs = framed_outputs(plan, far.case, device)
    names = [result.name for result in plan.results]
    tensors = {key: framed.view for key, framed in inputs.items()}
    tensors |= {key: framed.view for key, framed in zip(names, outputs, strict=True)}
    size = (_LIMIT + _SPARE) * tensors[far.name].element_size()
    storage = _storage(size, device)
    tensors[far.name] = _spread(tensors[far.name], far, storage)
    named = dict(zip(numbers(plan), far.case.numbers, strict=True))
    results = [tensors.pop(name) for name in names]
    return Call(tensors, named, results)


def _spread(tensor: Tensor, far: Far, storage: Tensor) -> Tensor:
    """The same values, the last of the axes over 2^31 elements from the first.

    Of two axes the second goes little of the way: a row ends before the next begins.
    """
    strides = [far.step] * tensor.dim()
    little = 1 / (2 * tensor.shape[0])
    parts = (1.0,) if len(far.axes) == 1 else (1 - little, little)
    for axis, part in zip(far.axes, parts, strict=True):
        strides[axis] = int(part * _LIMIT) // (tensor.shape[axis] - 1) + 8
    spread = storage.view(tensor.dtype).as_strided(tensor.shape, strides)
    return spread.copy_(tensor)


def _storage(size: int, device: torch.device) -> Tensor:
    """So many bytes."""
    if device.type == "cuda":
        return _shared_gpus(size, device)
    return torch.frombuffer(unreserved(size), dtype=torch.int8)


def unreserved(size: int) -> mmap.mmap:
    """So many bytes, of which pages take memory when they are first written."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    return mmap.mmap(-1, size, flags=private)


def _shared_gpus(size: int, device: torch.device) -> Tensor:
    """Bytes of a GPU; waits until other processes leave these and a reserve.

    They take turns to look and take, so that two do not count on the same bytes; none
    waits while it keeps bytes of calls that are done, for which another may wait.
    """
    give_back(device)
    _, whole = torch.cuda.mem_get_info(device)
    needed = size + int(_RESERVE * whole)
    until = time.monotonic() + _PATIENCE
    while needed <= whole and time.monotonic() < until:
        with open(__file__, "rb") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if torch.cuda.mem_get_info(device)[0] >= needed:
                return torch.empty(size, dtype=torch.int8, device=device)
        time.sleep(_PAUSE)
    raise torch.OutOfMemoryError


def give_back(device: torch.device) -> None:
    """Let other processes have the memory of calls that are done and dropped."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
