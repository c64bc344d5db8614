"""Calls whose offsets pass 2^31, along each axis of tensors.

The tensors are small; their storage is large, but for the elements it is never touched.
"""

import fcntl
import mmap
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gemmgen.plan import Plan
from gemmgen.verification.cases import Case, numbers
from gemmgen.verification.comparison import Block
from gemmgen.verification.examples import (
    Call,
    framed_inputs,
    framed_outputs,
    input_shapes,
)

_LIMIT = 2**31
_SPARE = 2**20
"""Elements beyond that: where the tensors of one call begin, and their last rows."""
_APART = 2**16
"""Bytes from one tensor to the next; their rows are short and lie far apart."""
_PATIENCE, _PAUSE = 60.0, 0.2
"""Seconds: as long as a handful of other processes take over theirs; between looks."""
_RESERVE = 0.125
"""Of a GPU's memory: left to the small tensors of all processes."""
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # the name is Python 3.11's


@dataclass(frozen=True)
class Far:
    """One call: its sizes, and each tensor that is spread out with the axis of it."""

    axes: tuple[tuple[str, int], ...]
    case: Case

    def __str__(self) -> str:
        places = ", ".join(f"axis {axis} of {name}" for name, axis in self.axes)
        return (
            f"M={self.case.m} N={self.case.n} K={self.case.k}, elements beyond 2^31 "
            f"along {places}"
        )


def far_places(
    plan: Plan, block: Block, described: Collection[str] = ()
) -> Iterator[Far]:
    """Each axis of all tensors at once within one tile, then K from block to block.

    Tensors of `described` roles stay as descriptors can describe them, contiguous along
    their last axis and of such sizes.
    """
    values = (0.5,) * len(numbers(plan))
    side = 16 if described else 3
    near = Case((side,), side, side, numbers=values)
    long = replace(near, k=block.k + (16 if described else 1))
    for case, wanted in ((near, None), (long, long.k)):
        found = [
            (name, axis, role in described)
            for name, role, shape in _shapes(plan, case)
            for axis, size in enumerate(shape)
            if wanted in (None, size)
        ]
        rows = [(name, axis) for name, axis, _ in found if axis == 0]
        along = [(name, axis) for name, axis, held in found if axis and not held]
        together = [rows + along] if case is long else [rows, along]
        yield from (Far(tuple(axes), case) for axes in together if axes)


def _shapes(plan: Plan, case: Case) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Every tensor, its role as schedules call it, and its shape."""
    matrices = {one.name for one in plan.operands if one.is_matrix}
    for name, shape in input_shapes(plan, case).items():
        if name in (plan.a.name, plan.b.name):
            yield name, "inputs", shape
        else:
            yield name, "operands" if name in matrices else "vectors", shape
    for result in plan.results:
        yield result.name, "results", (*case.rows, case.n)


def far_call(plan: Plan, far: Far, device: torch.device) -> Call:
    """The call's arguments; raises `torch.OutOfMemoryError` where they cannot fit."""
    inputs = framed_inputs(plan, far.case, device)
    outputs = framed_outputs(plan, far.case, device)
    names = [result.name for result in plan.results]
    tensors = {key: framed.view for key, framed in inputs.items()}
    tensors |= {key: framed.view for key, framed in zip(names, outputs, strict=True)}
    widest = max(tensors[name].element_size() for name, _ in far.axes)
    storage = _storage((_LIMIT + _SPARE) * widest, device)
    for place, (name, axis) in enumerate(far.axes):
        tensors[name] = _spread(tensors[name], axis, storage[place * _APART :])
    named = dict(zip(numbers(plan), far.case.numbers, strict=True))
    results = [tensors.pop(name) for name in names]
    return Call(tensors, named, results)


def _spread(tensor: Tensor, axis: int, storage: Tensor) -> Tensor:
    """The same values, the last of an axis over 2^31 elements from the first."""
    strides = [1] * tensor.dim()
    strides[axis] = _LIMIT // (tensor.shape[axis] - 1) + 8
    far = storage.view(tensor.dtype).as_strided(tensor.shape, strides)
    return far.copy_(tensor)


def _storage(size: int, device: torch.device) -> Tensor:
    """So many bytes."""
    if device.type == "cuda":
        return _shared_gpus(size, device)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    pages = mmap.mmap(-1, size, flags=private)
    return torch.frombuffer(pages, dtype=torch.int8)


def _shared_gpus(size: int, device: torch.device) -> Tensor:
    """Bytes of a GPU; waits until other processes leave these and a reserve.

    They take turns to look and take, so that two do not count on the same bytes.
    """
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
