"""Calls whose offsets pass 2^31: each axis of each tensor in turn.

The tensors are small; their storage is large, but for the elements it is never touched.
"""

import fcntl
import mmap
import time
from collections.abc import Iterator
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
_PATIENCE, _PAUSE = 60.0, 0.2
"""Seconds: as long as a handful of other processes take over theirs; between looks."""
_RESERVE = 0.125
"""Of a GPU's memory: left to the small tensors of all processes."""
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # the name is Python 3.11's


@dataclass(frozen=True)
class Far:
    """One call: its sizes, and which tensor is spread out along which axis."""

    name: str
    axis: int
    case: Case

    def __str__(self) -> str:
        return (
            f"M={self.case.m} N={self.case.n} K={self.case.k}, {self.name} with "
            f"elements beyond 2^31 along axis {self.axis}"
        )


def far_places(plan: Plan, block: Block, described: bool = False) -> Iterator[Far]:
    """Every axis within one tile, and K also from one block to the next.

    With `described`, of sizes that descriptors can describe.
    """
    values = (0.5,) * len(numbers(plan))
    side = 16 if described else 3
    near = Case((side,), side, side, numbers=values)
    for name, shape in _shapes(plan, near).items():
        yield from (Far(name, axis, near) for axis in range(len(shape)))
    long = replace(near, k=block.k + (16 if described else 1))
    for name, shape in _shapes(plan, long).items():
        if long.k in shape:
            yield Far(name, shape.index(long.k), long)


def _shapes(plan: Plan, case: Case) -> dict[str, tuple[int, ...]]:
    outputs = {result.name: (*case.rows, case.n) for result in plan.results}
    return input_shapes(plan, case) | outputs


def far_call(plan: Plan, far: Far, device: torch.device) -> Call:
    """The call's arguments; raises `torch.OutOfMemoryError` where they cannot fit."""
    inputs = framed_inputs(plan, far.case, device)
    tensors = {key: framed.view for key, framed in inputs.items()}
    outputs = {
        result.name: framed.view
        for result, framed in zip(
            plan.results, framed_outputs(plan, far.case, device), strict=True
        )
    }
    group = tensors if far.name in tensors else outputs
    group[far.name] = _spread(group[far.name], far.axis)
    named = dict(zip(numbers(plan), far.case.numbers, strict=True))
    return Call(tensors, named, list(outputs.values()))


def _spread(tensor: Tensor, axis: int) -> Tensor:
    """The same values, the last of an axis over 2^31 elements from the first."""
    stride = _LIMIT // (tensor.shape[axis] - 1) + 8
    storage = _storage(_LIMIT + _SPARE, tensor.dtype, tensor.device)
    strides = [1] * tensor.dim()
    strides[axis] = stride
    far = storage.as_strided(tensor.shape, strides)
    return far.copy_(tensor)


def _storage(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "cuda":
        return _shared_gpus(count * dtype.itemsize, device).view(dtype)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    pages = mmap.mmap(-1, count * dtype.itemsize, flags=private)
    return torch.frombuffer(pages, dtype=dtype)


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
