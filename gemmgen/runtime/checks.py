"""What a launcher asks of its arguments, and what it says of one that is wrong."""

import contextlib
import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import torch

from .support import INTERPRETED, PASS, interprets_bf16
from .tile import TYPE_NAMES

LARGEST = torch.finfo(torch.float32).max
SHORT_NAMES = {getattr(torch, own): name for name, (own, _) in TYPE_NAMES.items()}


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
        """Return the shape of a tensor that is as it should be, else raise ValueError.

        A text in `shape` names a size that may be any; `...` stands for leading sizes.
        The first tensor decides the device, which must be a GPU unless Triton
        interprets.
        """
        if PASS.asked is not None:
            PASS.asked[name] = shape, dtype
            return torch.Size([1] * len(shape))
        if not isinstance(tensor, torch.Tensor):
            found = type(tensor).__name__
        elif not PASS.dry and (flaw := unreadable(tensor)):
            raise ValueError(f"{self.kernel}: {name} must {flaw}")
        elif tensor.dtype != dtype or not fits(tensor.shape, shape):
            found = describe(tensor.shape, tensor.dtype)
        else:
            check_device(self.kernel, name, tensor, device)
            if not PASS.dry:
                check_gradient(self.kernel, name, tensor)
            return tensor.shape
        wanted = describe(shape, dtype)
        raise ValueError(f"{self.kernel}: {name} must be {wanted}, got {found}")

    def number(
        self, name: str, value: float, dtype: torch.dtype = torch.float32
    ) -> float:
        """Return a number of Python or NumPy as a float, else raise ValueError.

        A finite one must be finite in `dtype`, as which the kernel uses it. One that
        torch traces is no number yet.
        """
        if PASS.dry and isinstance(value, torch.SymFloat):
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            found = type(value).__name__
            raise ValueError(f"{self.kernel}: {name} must be a float, got {found}")
        with contextlib.suppress(OverflowError):  # an integer beyond fp64
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
        """Return a new tensor, or `out` if it can be the output, else raise ValueError.

        `out` may share no memory with the inputs `apart_from`, which other programs
        still read. An operand `in_place`, of which each element is read where it is
        written, may be `out` itself, and no other part of its memory.
        """
        if out is None:
            return torch.empty(shape, dtype=dtype, device=apart_from[0].device)
        self.writable(name, out, shape, dtype, apart_from, in_place)
        written(out)
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
        """Return new tensors, one for each dtype, or those of a tuple or list `out`.

        As `output`; nor may they share memory with each other. None is marked as
        written before all are known to be right.
        """
        if out is None:
            device = apart_from[0].device
            return tuple(torch.empty(shape, dtype=one, device=device) for one in dtypes)
        self.several(name, out, len(dtypes))
        for place, (one, dtype) in enumerate(zip(out, dtypes, strict=True)):
            own = f"{name}[{place}]"
            self.writable(own, one, shape, dtype, apart_from, in_place)
            for other, earlier in enumerate(out[:place]):
                if not apart(one, earlier):
                    flaw = f"not share memory with {name}[{other}]"
                    raise ValueError(f"{self.kernel}: {own} must {flaw}")
        for one in out:
            written(one)
        return tuple(out)

    def several(self, name: str, out: Any, many: int) -> None:
        """Raise ValueError unless `out` is a tuple or list of so many."""
        if not isinstance(out, (tuple, list)) or len(out) != many:
            raise ValueError(f"{self.kernel}: {name} must be a tuple of {many} tensors")

    def writable(
        self,
        name: str,
        out: torch.Tensor,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        apart_from: Sequence[torch.Tensor],
        in_place: Sequence[torch.Tensor],
    ) -> None:
        """Raise ValueError unless a tensor that was passed can be an output."""
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


def written(out: torch.Tensor) -> None:
    """Let autograd know that a tensor is about to be written, as torch's own `out=`."""
    if not out.is_inference():  # which has no version
        torch.autograd.graph.increment_version(out)


def unreadable(tensor: torch.Tensor) -> str | None:
    """Return what a tensor must do for a kernel to read its memory, or None."""
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
    except RuntimeError:  # what a transform of torch.func passes
        return "have memory of its own, got a tensor of a torch.func transform"
    return None


def check_device(
    kernel: str, name: str, tensor: torch.Tensor, wanted: torch.device | None
) -> None:
    """Raise ValueError unless a tensor is on the wanted device, or any that can run."""
    found = tensor.device
    if wanted is not None:
        if found != wanted:
            raise ValueError(f"{kernel}: {name} must be on {wanted}, got {found}")
    elif PASS.dry and found.type in ("cpu", "meta"):
        return  # DTensor asks for shapes with tensors of the CPU that stand for others
    elif not INTERPRETED and found.type != "cuda":
        raise ValueError(f"{kernel}: {name} must be on a GPU, got {found}")
    elif found.type not in ("cuda", "cpu"):
        raise ValueError(f"{kernel}: {name} must be on a GPU or CPU, got {found}")
    if PASS.dry:
        return  # nothing will be multiplied
    if INTERPRETED and tensor.dtype == torch.bfloat16 and not interprets_bf16():
        raise ValueError(
            f"{kernel}: {name} must not be bf16 in Triton's interpreter, which gets "
            "its products wrong: pass fp16 or fp32, or call it on a GPU"
        )


def check_gradient(kernel: str, name: str, tensor: torch.Tensor) -> None:
    """Raise ValueError for a tensor whose gradient somebody counts on."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{kernel}: {name} must not require a gradient, which {kernel} does not "
            f"compute: call it under torch.no_grad(), or pass {name}.detach()"
        )


def refuse_out(kernel: str, name: str) -> None:
    """Raise ValueError for given memory, whose history autograd would not know."""
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
    """Return (bytes, count) of a tensor's steps along axes that have any, sorted."""
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
    """Return whether two tensors of one shape are the same elements in memory."""
    if one.data_ptr() != other.data_ptr() or one.dtype != other.dtype:
        return False
    strides = zip(one.shape, one.stride(), other.stride(), strict=True)
    return all(mine == theirs for size, mine, theirs in strides if size > 1)


def apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors are known to share no memory.

    Either one ends before the other begins, or both are columns of one wider matrix.
    """
    distance = other.data_ptr() - one.data_ptr()
    if not one.numel() or distance >= extent(one) or distance <= -extent(other):
        return True
    pitches = {step for tensor in (one, other) for step, _ in steps(tensor)} - {0}
    return any(apart_in_rows(one, other, pitch) for pitch in pitches)


def apart_in_rows(one: torch.Tensor, other: torch.Tensor, pitch: int) -> bool:
    """Return whether tensors lie in other columns of rows of `pitch` bytes."""
    widths = [
        sum(step * count for step, count in steps(tensor) if step % pitch)
        + tensor.element_size()
        for tensor in (one, other)
    ]
    distance = (other.data_ptr() - one.data_ptr()) % pitch
    return widths[0] <= distance and distance + widths[1] <= pitch
