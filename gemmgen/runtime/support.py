"""What launchers ask of a GPU, of torch and of tensors."""

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

# Each tells whether torch has something switched on that has to see a call.
has_override = torch.overrides.has_torch_function
in_mode = torch._C._len_torch_dispatch_stack
in_autocast = torch._C._is_any_autocast_enabled
in_transform = torch._C._are_functorch_transforms_active
in_trace = torch._C._is_tracing  # of torch.jit
profiling = getattr(torch.autograd, "_profiler_enabled", bool)
tracing = torch.compiler.is_dynamo_compiling
# `DUAL._current_level` is the level of forward derivatives, -1 outside of any.
DUAL: Any = torch.autograd.forward_ad
if not hasattr(DUAL, "_current_level"):
    DUAL = SimpleNamespace(_current_level=-1)

# What torch.cuda.current_device calls after it has checked that CUDA is initialized.
current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


class Bounded(dict):
    """A dict that is cleared before it has more than `most` entries."""

    def __init__(self, most: int) -> None:
        """Start empty."""
        super().__init__()
        self.most = most

    def __setitem__(self, key: Any, value: Any) -> None:
        if len(self) >= self.most:
            self.clear()
        super().__setitem__(key, value)


class DryRun(threading.local):
    """Whether launchers that this thread calls launch nothing.

    When `on`, they only check arguments and make results. If `requested` is a dict they
    check nothing either, but note in it the shape and dtype that each tensor must have.
    """

    on = False
    requested: dict[str, tuple[Sequence, torch.dtype]] | None = None


DRY_RUN = DryRun()


@contextlib.contextmanager
def dry_run(requested: dict[str, Any] | None = None) -> Iterator[None]:
    """Have launchers launch nothing, and fill `requested` if it is given."""
    before = DRY_RUN.on, DRY_RUN.requested
    DRY_RUN.on, DRY_RUN.requested = True, requested
    try:
        yield
    finally:
        DRY_RUN.on, DRY_RUN.requested = before


def must_dispatch(arguments: Sequence[Any]) -> bool:
    """Return whether torch has to see a call: `intercepted`, or for a gradient."""
    return intercepted(arguments) or needs_gradient(arguments)


def needs_gradient(arguments: Sequence[Any]) -> bool:
    """Return whether gradients are on, and one of these tensors requires one."""
    return torch.is_grad_enabled() and any(map(requires_grad, arguments))


def requires_grad(value: Any) -> bool:
    """Return whether a value is a tensor that requires a gradient."""
    return isinstance(value, torch.Tensor) and value.requires_grad


def intercepted(arguments: Sequence[Any]) -> bool:
    """Return whether torch has to see a call, whatever gradients it needs.

    It has to where torch is `watching`, under forward derivatives, and with a subclass
    of Tensor.
    """
    if has_override(arguments) or DUAL._current_level >= 0 or watching():
        return True
    return any(is_wrapped(one) for one in arguments if isinstance(one, torch.Tensor))


def watching() -> bool:
    """Return whether a mode, autocast, torch.func or torch.jit's trace is on."""
    return bool(in_mode() or in_autocast() or in_transform() or in_trace())


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's class has its own dispatch, or it is torch.func's.

    Or one of the batches that `torch.autograd.grad` makes by `is_grads_batched`.
    """
    kind = type(tensor)
    if kind is not torch.Tensor:
        own = kind.__torch_dispatch__
        if own is not torch.Tensor.__torch_dispatch__:
            return True
    functorch = torch._C._functorch
    return bool(
        functorch.is_functorch_wrapped_tensor(tensor)
        or functorch.is_legacy_batchedtensor(tensor)
    )


@functools.cache
def num_sms(device: torch.device) -> int:
    """Return the number of SMs, 2 in the interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def compute_capability(device: torch.device) -> int:
    """Return 10 * major + minor of the compute capability; no bound if interpreted."""
    if device.type != "cuda":
        return sys.maxsize
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that a thread block may have."""
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

    Releases up to 3.9 multiply the bits as if they were integers.
    """
    # 16 a^2 lies 0.63 of the way between two bf16 numbers, so it must be rounded up.
    a = torch.full((16, 16), 1 + 9 * 2**-7, dtype=torch.bfloat16)
    c = torch.empty_like(a)
    product_of_ones[(1,)](a, c, 16)
    return torch.equal(c, (a.double() @ a.double()).to(torch.bfloat16))


def config(
    m: int, n: int, k: int, *, group_m: int, stages: int, warps: int
) -> triton.Config:
    """Return a tile as a configuration of Triton's autotuner."""
    sides = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group_m}
    return triton.Config(sides, num_stages=stages, num_warps=warps)


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make a device current, since Triton launches on the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)


def bind_context() -> None:
    """Bind the current device's CUDA context to a new thread.

    Any call of CUDA's runtime does so, this one even during a capture. Triton encodes
    tensor maps without.
    """
    torch.cuda.is_current_stream_capturing()


def index_dtype(*tensors: torch.Tensor) -> tl.dtype:
    """Return the integer type that holds all element offsets of the tensors."""
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
    """Return the largest divisor of 16 of all row lengths and row strides."""
    lengths = ((matrix.stride(0), matrix.shape[1]) for matrix in matrices)
    return math.gcd(16, *itertools.chain.from_iterable(lengths))


def rows(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """View tensors [..., columns] of the same leading sizes as matrices.

    The last leading axes are flattened as far as every tensor's strides allow; each
    index of the others yields a group of matrices. A dry run yields none.
    """
    if DRY_RUN.on:
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


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    found = [1]
    for size in reversed(shape[1:]):
        found.append(found[-1] * max(size, 1))
    return tuple(reversed(found))


def new_on_gpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return an uninitialized tensor on the current GPU."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


# The allocator's entry for compiled graphs takes half the time of the public one.
GUARDS = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
empty = getattr(GUARDS, "_empty_strided_cuda", new_on_gpu)
