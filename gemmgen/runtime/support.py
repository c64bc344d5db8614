"""What launchers ask of a GPU and of tensors, and tensors as rows.

Needs torch and triton alone, so the folder can be copied into any project.
"""

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret


@functools.cache
def num_sms(device: torch.device) -> int:
    """Return the number of SMs; the interpreter makes do with two."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def compute_capability(device: torch.device) -> int:
    """Return the compute capability as 10 * major + minor; the interpreter has any."""
    if device.type != "cuda":
        return sys.maxsize
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a block may have."""
    if device.type != "cuda":
        return sys.maxsize
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make the tensors' device current, since Triton launches on the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def index_dtype(*tensors: torch.Tensor) -> tl.dtype:
    """Return the integer type that can count the elements from each tensor's start."""
    for tensor in tensors:
        if tensor.is_contiguous() and tensor.numel() <= 2**31:
            continue
        last = sum(
            (n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)
        )
        if last >= 2**31:
            return tl.int64
    return tl.int32


def row_divisibility(*matrices: torch.Tensor) -> int:
    """Return of how many elements all rows, and steps between them, are multiples."""
    lengths = ((matrix.stride(0), matrix.shape[1]) for matrix in matrices)
    return math.gcd(16, *itertools.chain.from_iterable(lengths))


def rows(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cut tensors [..., columns] of the same leading sizes into matrices, uncopied.

    The last leading axes are flattened as far as every tensor's strides allow; one
    group of matrices is given for each index of the others.
    """
    leading = tensors[0].shape[:-1]
    if len(leading) == 1:
        yield tensors
        return
    for kept in range(len(leading) + 1):
        flat = (*leading[:kept], math.prod(leading[kept:]))
        try:
            matrices = [tensor.view(*flat, tensor.shape[-1]) for tensor in tensors]
        except RuntimeError:
            continue
        for index in itertools.product(*map(range, leading[:kept])):
            yield tuple(matrix[index] for matrix in matrices)
        return


def steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a new tensor."""
    found = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * max(size, 1))
    return tuple(reversed(found))


def new_on_gpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return an uninitialized tensor on the current GPU."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


# The entry of compiled graphs into the allocator, in half the time of the public one.
GUARDS = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
empty = getattr(GUARDS, "_empty_strided_cuda", new_on_gpu)
