"""Kernels as if compiled for a GPU that is not there, with no code."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel

from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.oracle.reference import torch_dtype

ARCHITECTURE = 90
_BYTES = 0
_TYPES = {"fp16": 6, "fp32": 7, "fp64": 9, "bf16": 10}
"""Of elements, as Triton 3.6 to 3.9 note them for tensor maps; others are bytes."""
HOST_TYPES, TF32 = {_BYTES: _BYTES, 6: 6, 7: 7, 9: 8, 10: 9}, 11
"""The same as CUDA's driver is told, and what makes it round to tf32."""
ELEMENTS = {
    str(getattr(tl, row.triton)): torch_dtype(row.name) for row in DTYPES.values()
}
"""torch's types by what Triton calls them in the types of a kernel's parameters."""


def host_type(dtype: torch.dtype) -> int:
    """What CUDA's driver is told of elements."""
    (name,) = (name for name, own in ELEMENTS.items() if own == dtype)
    return HOST_TYPES[_TYPES.get(name, _BYTES)]


def element_of(kind: str) -> str:
    """`bf16` of `tensordesc<bf16[64, 64]>`."""
    return kind.removeprefix("tensordesc<").partition("[")[0]


@dataclass(frozen=True)
class TensorMap:
    """What a tensor map was encoded from."""

    address: int
    element: int
    block: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: int


@dataclass(frozen=True)
class Function:
    """A kernel that was loaded on a device."""

    compiled: "Compiled"
    device: int


class Compiled(CompiledKernel):  # type: ignore[misc]
    """A kernel as if compiled: what launching one needs, and no code."""

    def __init__(
        self, source: Any, options: Mapping[str, Any], scratch: tuple[int, int]
    ) -> None:
        self.src, self.name, self.hash = source, source.fn.__name__, ""
        check_descriptors(source, options.get("num_ctas", 1))
        self.kernel = self  # in the place of its machine code: what the driver loads
        self.options = dict(options)
        self.metadata = SimpleNamespace(
            name=self.name, shared=0, warp_size=32, tmem_size=None,
            num_ctas=options.get("num_ctas", 1),
            num_warps=options.get("num_warps", 4), launch_pdl=False,
            launch_cooperative_grid=False, global_scratch_size=scratch[0],
            global_scratch_align=16, profile_scratch_size=scratch[1],
            profile_scratch_align=16,
            tensordesc_meta=[_note(kind) for kind in _descriptors(source.signature)],
            target=GPUTarget("cuda", ARCHITECTURE, 32),
        )  # fmt: skip
        known = self.metadata
        self.packed_metadata = (known.num_warps, known.num_ctas, 0)
        self.metadata_group: dict[str, str] = {}
        self.module = self.function = self._run = None


def _descriptors(signature: Mapping[Any, str]) -> list[str]:
    return [kind for kind in signature.values() if kind.startswith("tensordesc")]


def check_descriptors(source: Any, ctas: int) -> None:
    """Raise `RuntimeError`, for what Triton does not compile.

    Gluon's descriptors have a layout, which tells CTAs their halves in a cluster alone.
    """
    in_gluon = source.fn.is_gluon()
    for kind in _descriptors(source.signature):
        halved = "cga_layout=[[" in kind
        if ("Layout" in kind) != in_gluon or halved != (in_gluon and ctas > 1):
            raise RuntimeError(
                f"{source.fn.__name__} of {ctas} CTAs takes other descriptors: {kind}"
            )


def _note(kind: str) -> dict[str, Any]:
    """What Triton notes of a descriptor's type, such as `tensordesc<bf16[64, 64]>`."""
    rest = kind.partition("[")[2]
    block = [int(side) for side in rest.partition("]")[0].split(",")]
    return {
        "swizzle": 3, "elem_size": 0, "elem_type": _TYPES.get(element_of(kind), _BYTES),
        "block_size": block, "fp4_padded": False,
    }  # fmt: skip
