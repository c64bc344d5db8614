"""The checks of a launcher's arguments, and their errors."""

import contextlib
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch

from .support import DRY_RUN, INTERPRETED, interprets_bf16
from .tile import TYPE_NAMES

LARGEST = torch.finfo(torch.float32).max
SHORT_NAMES = {getattr(torch, full): name for name, (full, _) in TYPE_NAMES.items()}


@dataclass(frozen=True)
class Checks:
    """The checks of a launcher, whose name `kernel` begins each of their errors."""

    kernel: str

    def tensor(
        self,
        name: str,
        tensor: torch.Tensor,
        shape: tuple[int | str | EllipsisType, ...],
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> torch.Size:
        """Return the shape of a tensor that is as wanted, else raise ValueError.

        A text in `shape` names a size that may be any; `...` stands for leading sizes.
        Without a `device` it may be on any GPU or, where Triton interprets, the CPU.
        """
        if DRY_RUN.requested is not None:
            DRY_RUN.requested[name] = shape, dtype
            return torch.Size([1] * len(shape))
        if not isinstance(tensor, torch.Tensor):
            found = type(tensor).__name__
        elif not DRY_RUN.on and (flaw := unreadable(tensor)):
            raise ValueError(f"{self.kernel}: {name} must {flaw}")
        elif tensor.dtype != dtype or not fits(tensor.shape, shape):
            found = describe(tensor.shape, tensor.dtype)
        else:
            check_device(self.kernel, name, tensor, device)
            if not DRY_RUN.on:
                check_gradient(self.kernel, name, tensor)
            return tensor.shape
        wanted = describe(shape, dtype)
        raise ValueError(f"{self.kernel}: {name} must be {wanted}, got {found}")

    def number(
        self, name: str, value: float, dtype: torch.dtype = torch.float32
    ) -> float:
        """Return a number of Python or NumPy as a float, else raise ValueError.

        A finite one must be finite in `dtype`, in which the kernel uses it. A number
        that torch traces is returned as it is.
        """
        if DRY_RUN.on and isinstance(value, (torch.SymFloat, torch.SymInt)):
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            found = type(value).__name__
            raise ValueError(f"{self.kernel}: {name} must be a float, got {found}")
        with contextlib.suppress(OverflowError):  # by an integer beyond fp64
            number = float(value)
            if abs(number) <= torch.finfo(dtype).max or not math.isfinite(number):
                return number
        raise ValueError(f"{self.kernel}: {name} must fit {SHORT_NAMES[dtype]}")

    def output(
        self,
        name: str,
        out: torch.Tensor | None,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        apart_from: Sequence[torch.Tensor],
        in_place: Sequence[torch.Tensor] = (),
    ) -> torch.Tensor:
        """Return `out`, or a new tensor if it is None; raise ValueError if it is unfit.

        `out` may share no memory with the inputs `apart_from`, which other programs
        still read. It may be an operand of `in_place` itself, whose elements are each
        read by the program that writes there, but not overlap it otherwise.
        """
        if out is None:
            return torch.empty(shape, dtype=dtype, device=apart_from[0].device)
        self.writable(name, out, shape, dtype, apart_from, in_place)
        mark_written(out)
        return out

    def outputs(
        self,
        name: str,
        out: Sequence | None,
        shape: tuple[int, ...],
        dtypes: Sequence[torch.dtype],
        apart_from: Sequence[torch.Tensor],
        in_place: Sequence[torch.Tensor] = (),
    ) -> tuple[torch.Tensor, ...]:
        """Return the tensors in `out`, or new ones, as `output` does.

        They may not share memory with each other. None is marked as written before all
        are checked.
        """
        if out is None:
            device = apart_from[0].device
            return tuple(torch.empty(shape, dtype=one, device=device) for one in dtypes)
        self.several(name, out, len(dtypes))
        for i, (tensor, dtype) in enumerate(zip(out, dtypes, strict=True)):
            self.writable(f"{name}[{i}]", tensor, shape, dtype, apart_from, in_place)
            for j, earlier in enumerate(out[:i]):
                if not apart(tensor, earlier):
                    flaw = f"{name}[{i}] must not share memory with {name}[{j}]"
                    raise ValueError(f"{self.kernel}: {flaw}")
        for tensor in out:
            mark_written(tensor)
        return tuple(out)

    def several(self, name: str, out: Any, count: int) -> None:
        """Raise ValueError unless `out` is a tuple or list of `count`."""
        if not isinstance(out, (tuple, list)) or len(out) != count:
            raise ValueError(
                f"{self.kernel}: {name} must be a tuple of {count} tensors"
            )

    def writable(
        self,
        name: str,
        out: torch.Tensor,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        apart_from: Sequence[torch.Tensor],
        in_place: Sequence[torch.Tensor],
    ) -> None:
        """Raise ValueError unless a tensor can be an output."""
        self.tensor(name, out, shape, dtype, apart_from[0].device)
        if not distinct(out):
            flaw = "not have elements that share memory"
        elif not all(apart(out, tensor) for tensor in apart_from):
            flaw = "not share memory with an input"
        elif not all(same(out, tensor) or apart(out, tensor) for tensor in in_place):
            flaw = "be a matrix operand itself or share no memory with it"
        else:
            return
        raise ValueError(f"{self.kernel}: {name} must {flaw}")


def mark_written(out: torch.Tensor) -> None:
    """Tell autograd that a tensor is about to be written, as torch's `out=` does."""
    if not out.is_inference():  # inference tensors have no version
        torch.autograd.graph.increment_version(out)


def unreadable(tensor: torch.Tensor) -> str | None:
    """Return what a tensor must be for kernels to read it; None if it is."""
    if (
        type(tensor) is not torch.Tensor
        and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    ):
        return f"be a plain tensor, got {type(tensor).__name__}"
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout)
        return f"be dense and strided, got one that is {kind}"
    if tensor.is_neg() or tensor.is_conj():
        return "hold the values that it shows: call its resolve_neg() or resolve_conj()"
    try:
        tensor.data_ptr()
    except RuntimeError:  # a wrapper that torch.func passes
        return "have memory of its own, got a tensor of a torch.func transform"
    return None


def check_device(
    kernel: str, name: str, tensor: torch.Tensor, wanted: torch.device | None
) -> None:
    """Raise ValueError unless a tensor is on the wanted device, or on one that runs."""
    found = tensor.device
    if wanted is not None:
        if found != wanted:
            raise ValueError(f"{kernel}: {name} must be on {wanted}, got {found}")
    elif DRY_RUN.on and found.type in ("cpu", "meta"):
        return  # DTensor asks for shapes with stand-ins on the CPU
    elif not INTERPRETED and found.type != "cuda":
        raise ValueError(f"{kernel}: {name} must be on a GPU, got {found}")
    elif found.type not in ("cuda", "cpu"):
        raise ValueError(f"{kernel}: {name} must be on a GPU or CPU, got {found}")
    if DRY_RUN.on:
        return  # no kernel will run
    if INTERPRETED and tensor.dtype == torch.bfloat16 and not interprets_bf16():
        raise ValueError(
            f"{kernel}: {name} must not be bf16 in Triton's interpreter, which gets "
            "its products wrong: pass fp16 or fp32, or call it on a GPU"
        )


def check_gradient(kernel: str, name: str, tensor: torch.Tensor) -> None:
    """Raise ValueError for a tensor that requires a gradient, if gradients are on."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{kernel}: {name} must not require a gradient, which {kernel} does not "
            f"compute: call it under torch.no_grad(), or pass {name}.detach()"
        )


def refuse_out(kernel: str, name: str) -> None:
    """Raise ValueError for `out`, whose history autograd would not know."""
    raise ValueError(
        f"{kernel}: {name} must not require a gradient where out is given: leave that "
        "away, or call under torch.no_grad()"
    )


def fits(found: torch.Size, wanted: tuple) -> bool:
    """Return whether a shape has the wanted rank and sizes."""
    if found == wanted:
        return True
    if wanted and wanted[0] is ...:
        wanted = wanted[1:]
        found = found[max(0, len(found) - len(wanted)) :]
    return len(found) == len(wanted) and all(
        isinstance(size, str) or size == have
        for size, have in zip(wanted, found, strict=True)
    )


def describe(shape: Sequence, dtype: torch.dtype) -> str:
    """Return `[M, 64] bf16`."""
    sizes = ", ".join("..." if size is ... else str(size) for size in shape)
    return f"[{sizes}] {SHORT_NAMES.get(dtype, str(dtype).removeprefix('torch.'))}"


def steps(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return (stride in bytes, size - 1) of each axis longer than 1, sorted."""
    width = tensor.element_size()
    return sorted(
        (stride * width, size - 1)
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        if size > 1
    )


def extent(tensor: torch.Tensor) -> int:
    """Return the bytes from a tensor's first element to the end of its last."""
    if not tensor.numel():
        return 0
    return sum(step * count for step, count in steps(tensor)) + tensor.element_size()


def distinct(tensor: torch.Tensor) -> bool:
    """Return whether no two elements of a tensor share memory."""
    reached = tensor.element_size() - 1
    for step, count in steps(tensor):
        if step <= reached:
            return not tensor.numel()
        reached += step * count
    return True


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one shape lie in memory as the same elements."""
    if one.data_ptr() != other.data_ptr() or one.dtype != other.dtype:
        return False
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(left == right for size, left, right in strides if size > 1)


def apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are known to share no memory.

    They are if one ends before the other begins, or if both are column ranges of one
    wider matrix.
    """
    distance = other.data_ptr() - one.data_ptr()
    if not one.numel() or distance >= extent(one) or distance <= -extent(other):
        return True
    pitches = {step for tensor in (one, other) for step, _ in steps(tensor)} - {0}
    return any(apart_in_rows(one, other, pitch) for pitch in pitches)


def apart_in_rows(one: torch.Tensor, other: torch.Tensor, pitch: int) -> bool:
    """Return whether tensors lie in different columns of rows of `pitch` bytes."""
    widths = [
        sum(step * count for step, count in steps(tensor) if step % pitch)
        + tensor.element_size()
        for tensor in (one, other)
    ]
    distance = (other.data_ptr() - one.data_ptr()) % pitch
    return widths[0] <= distance and distance + widths[1] <= pitch
