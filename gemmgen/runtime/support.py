"""What launchers ask of a GPU and of tensors, and tensors as rows.

Needs torch and triton alone, so the folder can be copied into any project.
"""

import contextlib
import functools
import itertools
import math
import sys
import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret


# What calls ask torch: whether it is told of functions that arguments are passed to, of
# operators, in C; whether autocast, torch.func or a profiler is on.
overridden = torch.overrides.has_torch_function
moded = torch._C._len_torch_dispatch_stack
autocast = torch._C._is_any_autocast_enabled
transformed = torch._C._are_functorch_transforms_active
profiled = getattr(torch.autograd, "_profiler_enabled", bool)
# Where the level of forward derivatives is, -1 outside of any.
DUAL: Any = torch.autograd.forward_ad
if not hasattr(DUAL, "_current_level"):
    DUAL = SimpleNamespace(_current_level=-1)


class Bounded(dict):
    """A dict of at most so many entries: one more, and it begins anew."""

    def __init__(self, most: int) -> None:
        """Have no entry yet."""
        super().__init__()
        self.most = most

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= self.most:
            self.clear()
        super().__setitem__(key, value)


class Pass(threading.local):
    """Whether this thread goes through launchers for what they say alone.

    When `dry`, they check their arguments and make their results, which may have no
    memory, and launch nothing. What is `asked` of tensors, shape and dtype by name, is
    noted, if that is a dict, and nothing is checked.
    """

    dry = False
    asked: dict[str, tuple[Sequence, torch.dtype]] | None = None


PASS = Pass()


@contextlib.contextmanager
def dry(asked: dict[str, Any] | None = None) -> Iterator[None]:
    """Launch nothing that this thread calls; note what is `asked` of its tensors."""
    before = PASS.dry, PASS.asked
    PASS.dry, PASS.asked = True, asked
    try:
        yield
    finally:
        PASS.dry, PASS.asked = before


def watched(arguments: Sequence[Any]) -> bool:
    """Return whether torch has to see a call, so that it must be an operator's.

    For what is `special`, or a gradient.
    """
    graded = torch.is_grad_enabled()
    return special(arguments) or any(
        graded and one.requires_grad
        for one in arguments
        if isinstance(one, torch.Tensor)
    )


def special(arguments: Sequence[Any]) -> bool:
    """Return whether torch has to see a call that no gradient is asked of.

    For a mode, a transform of torch.func, autocast, forward derivatives, a subclass.
    """
    if overridden(arguments) or DUAL._current_level >= 0:
        return True
    if moded() or autocast() or transformed():
        return True
    return any(is_wrapped(one) for one in arguments if isinstance(one, torch.Tensor))


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether it is one of torch.func's, or of a class that acts by itself."""
    kind = type(tensor)
    if kind is not torch.Tensor:
        own = kind.__torch_dispatch__
        if own is not torch.Tensor.__torch_dispatch__:
            return True
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


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


@triton.jit
def product_of_ones(a_ptr, c_ptr, SIDE: tl.constexpr):
    """Store A @ A in A's dtype, for A of SIDE x SIDE."""
    offs = tl.arange(0, SIDE)[:, None] * SIDE + tl.arange(0, SIDE)[None, :]
    a = tl.load(a_ptr + offs)
    tl.store(c_ptr + offs, tl.dot(a, a).to(c_ptr.dtype.element_ty))


@functools.cache
def interprets_bf16() -> bool:
    """Return whether Triton's interpreter multiplies bf16, and rounds to it.

    No release up to 3.9 does: it multiplies the bits as if they were whole numbers.
    """
    # 16 a^2 lies 0.63 of the way between two numbers of bf16: it is rounded up.
    a = torch.full((16, 16), 1 + 9 * 2**-7, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    product_of_ones[(1,)](a, c, 16)
    return torch.equal(c, (a.double() @ a.double()).to(torch.bfloat16))


def config(
    m: int, n: int, k: int, *, group_m: int, stages: int, warps: int
) -> triton.Config:
    """Return a tile as Triton's autotuner takes it."""
    sides = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group_m}
    return triton.Config(sides, num_stages=stages, num_warps=warps)


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make the tensors' device current, since Triton launches on the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def bind_context() -> None:
    """Give a thread that is new to CUDA the context of the current device.

    Whatever is first asked of CUDA's runtime does so, and this may be asked always.
    Triton makes tensor maps without one.
    """
    torch.cuda.is_current_stream_capturing()


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
    group of matrices is given for each index of the others. There are none where
    nothing is launched.
    """
    if PASS.dry:
        return
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
