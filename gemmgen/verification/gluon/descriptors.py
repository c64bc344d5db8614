"""Boxes of tensors in global memory, as tensor maps describe them.

Loads beyond an edge give zeros, stores there write nothing.
"""

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as triton_interpreter

from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.memory.misuse import misused

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LINE = 16
"""Bytes that a store fills up at the end of a row."""
_MOST = 2**31
"""Coordinates are 32 bits wide."""
_ELEMENTS = {
    getattr(torch, row.torch): getattr(tl, row.triton) for row in DTYPES.values()
}
"""What Triton calls torch's types."""


def storage(dtype: Any) -> Any:
    """NumPy's type for the elements of one of Triton's; bf16 is kept as its bits."""
    return np.dtype(triton_interpreter._get_np_dtype(dtype))


class Descriptor:
    """A tensor as a kernel has it that got a descriptor."""

    def __init__(self, host: Any) -> None:
        self.tensor = host.base
        self.dtype = _ELEMENTS[host.base.dtype]
        self.block_shape = list(host.block_shape)
        self.layout = host.layout
        self.rounds = bool(getattr(host, "round_f32_to_tf32", False))
        bits = host.base.detach().view(_BITS[host.base.element_size()])
        self.data: Any = bits.numpy().view(storage(self.dtype))

    def load(self, corner: list[int], shape: tuple[int, ...]) -> Any:
        """A box or a CTA's part of one, with zeros beyond the edges."""
        box = np.zeros(shape, self.data.dtype)
        inside, within = self._overlap(corner, shape)
        box[within] = self.data[inside]
        return _to_tf32(box) if self.rounds else box

    def store(self, corner: list[int], box: Any) -> None:
        """Write what of a box, or of a CTA's part of one, lies within the edges."""
        if self.data.shape[-1] * self.data.itemsize % _LINE:
            raise misused(
                f"a store through a descriptor fills up {_LINE} bytes, and rows of "
                f"{self.data.shape[-1]} elements end within them"
            )
        inside, within = self._overlap(corner, box.shape)
        self.data[inside] = box[within]

    def _overlap(self, corner: list[int], shape: tuple[int, ...]) -> tuple[Any, Any]:
        """What of the tensor a box covers, and where in the box that lies."""
        inside, within = [], []
        for first, size, most in zip(corner, shape, self.data.shape, strict=True):
            if not -_MOST <= first < _MOST:
                raise misused(f"the coordinate {first} does not fit 32 bits")
            low, high = max(first, 0), max(min(first + size, most), max(first, 0))
            low, high = min(low, most), min(high, most)
            inside.append(slice(low, high))
            within.append(slice(low - first, high - first))
        return tuple(inside), tuple(within)


def _to_tf32(values: Any) -> Any:
    """fp32 rounded to the 10 bits of tf32, ties to even."""
    bits = values.view(np.uint32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & np.uint32(0xFFFFE000)
    return (
        np.where(np.isfinite(values), rounded, bits).astype(np.uint32).view(np.float32)
    )
