"""Tensors as callers have them: padded, transposed, sliced, offset, broadcast.

Every view lies in a larger buffer whose other elements betray whoever touches them:
NaN around inputs, a canary around outputs, which themselves start as NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_CANARY = 1.25
"""Exact in every dtype, and no value that a kernel is likely to store."""
_MARGIN = 256
"""Elements around a view; a multiple of 16, so that it changes no alignment."""

Filler = Callable[[tuple[int, ...]], Tensor]
"""Makes the data of a shape."""


@dataclass(frozen=True)
class View:
    """How a tensor lies in memory.

    `order` names the axes from the innermost: "rows" (the last axis first, as torch
    does), "columns" (the first axis first) or "swapped" (the last axis, then the
    leading ones in order, which cannot be flattened). `shared` axes have stride 0. The
    step from row to row is a multiple of `align`; of what `overlaps`, half a row.
    """

    name: str
    order: str = "rows"
    pad: int = 0
    step: int = 1
    offset: int = 0
    shared: str = ""
    align: int = 1
    overlaps: bool = False

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The stride of each axis."""
        strides = [0] * len(shape)
        stride, shared = self.step, self._shared(len(shape))
        for position, axis in enumerate(self._axes(len(shape))):
            if axis not in shared:
                strides[axis] = stride
                stride = stride * max(1, shape[axis])
                stride = stride if position else self._next_row(stride)
        return tuple(strides)

    def _next_row(self, width: int) -> int:
        """From the start of a row to that of the next."""
        if self.overlaps:
            return max(1, width // 2)
        return -(-(width + self.pad) // self.align) * self.align

    def _axes(self, rank: int) -> tuple[int, ...]:
        if self.order == "columns":
            return tuple(range(rank))
        if self.order == "swapped":
            return (rank - 1, *range(rank - 1))[:rank]
        return tuple(reversed(range(rank)))

    def _shared(self, rank: int) -> tuple[int, ...]:
        if self.shared == "rows":
            return tuple(range(rank - 1))
        return (rank - 1,)[:rank] if self.shared == "columns" else ()


VIEWS: dict[str, View] = {
    row.name: row
    for row in (
        View("contiguous"),
        View("padded", pad=16),
        View("transposed", order="columns"),
        View("padded transposed", order="columns", pad=16),
        View("misaligned", pad=3, offset=1),
        View("misaligned transposed", order="columns", pad=3, offset=1),
        View("sliced", pad=1, step=2),
        View("swapped", order="swapped", pad=16),
        View("rows shared", shared="rows"),
        View("columns shared", shared="columns"),
        View("start misaligned", pad=16, offset=1),
        View("rows misaligned", pad=1),
        View("columns apart", step=2),
        View("rows overlapping", overlaps=True),
        View("rows rounded up", align=16),
    )
}
ALIGNED = ("contiguous", "padded", "transposed", "padded transposed")
DESCRIBABLE = ("contiguous", "padded")
"""Views of matrices that tensor descriptors can describe, if the sizes allow it."""
INDESCRIBABLE = (
    "start misaligned",
    "rows misaligned",
    "columns apart",
    "rows overlapping",
)
"""Views that fail one condition of that each, where rows are multiples of 32."""
FOR_OUTPUTS = tuple(
    name for name, view in VIEWS.items() if not (view.shared or view.overlaps)
)


@dataclass(frozen=True)
class Framed:
    """A view and the buffer around it."""

    buffer: Tensor
    view: Tensor

    def frame_is_intact(self) -> bool:
        """Whether nothing but the view was written; for outputs."""
        rest = Framed(self.buffer.clone(), self.view)
        rest._same_view().fill_(_CANARY)
        return bool((rest.buffer == _CANARY).all())

    def _same_view(self) -> Tensor:
        view = self.view
        return self.buffer.as_strided(view.shape, view.stride(), view.storage_offset())


def framed_input(
    view: View, shape: tuple[int, ...], dtype: torch.dtype, fill: Filler
) -> Framed:
    """A filled view framed in NaN; `fill` is asked once for what axes share."""
    if view.overlaps:
        return _overlapping(view, shape, dtype, fill)
    strides = view.strides(shape)
    stored = tuple(
        min(1, size) if stride == 0 else size
        for size, stride in zip(shape, strides, strict=True)
    )
    data = fill(stored).to(dtype)
    framed = _framed(view, shape, dtype, torch.nan, data.device)
    offset = framed.view.storage_offset()
    framed.buffer.as_strided(stored, strides, offset).copy_(data)
    return framed


def _overlapping(
    view: View, shape: tuple[int, ...], dtype: torch.dtype, fill: Filler
) -> Framed:
    """The same where rows share elements: filled from the first to the last."""
    last = _last(shape, view.strides(shape))
    data = fill((0 if 0 in shape else last + 1,)).to(dtype)
    framed = _framed(view, shape, dtype, torch.nan, data.device)
    framed.buffer[framed.view.storage_offset() :][: len(data)] = data
    return framed


def framed_output(
    view: View, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Framed:
    """A view full of NaN, framed in canaries."""
    framed = _framed(view, shape, dtype, _CANARY, device)
    framed.view.fill_(torch.nan)
    return framed


def _framed(
    view: View,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    around: float,
    device: torch.device,
) -> Framed:
    strides = view.strides(shape)
    size = 2 * _MARGIN + view.offset + _last(shape, strides) + 1
    buffer = torch.full((size,), around, dtype=dtype, device=device)
    return Framed(buffer, buffer.as_strided(shape, strides, _MARGIN + view.offset))


def _last(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The offset of the last element."""
    return sum(
        max(0, size - 1) * stride for size, stride in zip(shape, strides, strict=True)
    )
