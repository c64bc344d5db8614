"""A kernel with its grid and arguments, launched through Triton's public entry."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import triton.language as tl
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from .support import INTERPRETED
from .tile import TYPE_NAMES, Tile, cdiv

# Triton 3.6 has no descriptors that round, see `Launch.round`.
ROUNDS = "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 of CUDA's driver

# Fused multiply-add, which Triton uses by default up to 3.9 only.
FUSED = {"enable_fp_fusion": True}

TRITON_TYPES = dict(TYPE_NAMES.values())  # by torch's names

UNCHANGED = (float, int, type(None))  # types that kernels are passed as they are

# By device index and stream.
WORKSPACES: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


@functools.cache
def shared_layout(
    rows: int, columns: int, dtype: torch.dtype, halves: tuple[int, ...]
) -> NVMMASharedLayout:
    """Return the layout in shared memory of a block that TMA moves."""
    name = str(dtype).removeprefix("torch.")
    element = getattr(tl, TRITON_TYPES.get(name, name))
    cluster = [list(halves)] if halves else []
    return NVMMASharedLayout.get_default_for(
        [rows, columns], element, cga_layout=cluster
    )


class TmaArg(NamedTuple):
    """A matrix that a kernel takes as tensor descriptors, one for each size of box.

    `boxes` are rows and columns; None stands for a descriptor that this tile does not
    need. With `to_tf32` fp32 elements are rounded to tf32 as they are read, which the
    tensor core would truncate. Of a cluster, `halves` has 1 for the axis of which each
    CTA has a half, or 0 for both if each has the whole box.
    """

    matrix: torch.Tensor
    boxes: tuple[tuple[int, ...] | None, ...]
    to_tf32: bool = False
    halves: tuple[int, ...] = ()

    def descriptors(self, in_gluon: bool) -> list[Any]:
        """Return the descriptors of all boxes."""
        return [box and self.descriptor(box, in_gluon) for box in self.boxes]

    def descriptor(self, box: tuple[int, ...], in_gluon: bool) -> Any:
        """Return the descriptor of a box, whose sides are in elements."""
        shape = list(box)
        rounding = {"round_f32_to_tf32": True} if self.to_tf32 and ROUNDS else {}
        if not in_gluon:
            return TensorDescriptor.from_tensor(self.matrix, shape, **rounding)
        layout = shared_layout(*shape, self.matrix.dtype, self.halves)
        return GluonDescriptor.from_tensor(self.matrix, shape, layout, **rounding)


@dataclass
class Launch:
    """A kernel with its grid and arguments.

    `tensors` are the launcher's arguments and results in order, numbers included; then
    come `sizes` and `values`. A kernel that `splits` K takes a workspace before the
    sizes and the number of splits after them; `tiles_and_splits` counts both. An
    autotuned kernel has no tile, and its grid is a function that Triton calls.
    """

    kernel: Any
    tile: Any
    device: torch.device
    sizes: tuple[int, ...]
    grid: Any
    tensors: tuple[Any, ...]
    values: tuple[Any, ...]
    splits: bool = False
    programs: Any = field(init=False)
    tiles_and_splits: tuple[int, int] = field(init=False)
    scalars: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Derive the number of programs, and the arguments that follow tensors."""
        self.programs, self.tiles_and_splits = self.grid, (0, 1)
        if self.tile is not None:
            self.programs = self.grid(self.tile, self.sizes, self.device)
        if self.splits:
            tiles = self.tile.tiles(*self.sizes[:2])
            self.tiles_and_splits = tiles, self.programs[1]
        self.scalars = (*self.sizes, *self.split_k, *self.values)

    def of_rows(self, M: int) -> "Launch":
        """Return the launch of the same tile for M rows, without its tensors."""
        what, sizes = (self.kernel, self.tile, self.device), (M, *self.sizes[1:])
        return Launch(*what, sizes, self.grid, (), self.values, self.splits)

    @property
    def in_gluon(self) -> bool:
        """Whether the kernel is in Gluon, which has descriptors of its own."""
        return self.tile is not None and self.tile.schedule == "warp_specialized"

    @property
    def options(self) -> dict[str, int]:
        """Triton's options; an autotuned kernel has those of its tile by itself."""
        return FUSED | (self.tile.options if self.tile else {})

    @property
    def tma_args(self) -> list[TmaArg]:
        """The tensors that the kernel takes as descriptors."""
        return [one for one in self.tensors if isinstance(one, TmaArg)]

    @property
    def split_k(self) -> tuple[int, ...]:
        """The number of splits of K, if the kernel takes it."""
        return self.tiles_and_splits[1:] if self.splits else ()

    @property
    def addresses(self) -> list[int | float]:
        """The addresses of tensors; numbers as they are."""
        plain = [one.matrix if isinstance(one, TmaArg) else one for one in self.tensors]
        return addresses_of(plain)

    def enter(self) -> Any:
        """Launch through Triton's public entry, and return what it compiled.

        The tensors' device must be the current one.
        """
        tensors: list[Any] = []
        for one in self.tensors:
            via_tma = isinstance(one, TmaArg)
            tensors += one.descriptors(self.in_gluon) if via_tma else [one]
        scratch = self.workspace() if self.splits else ()
        arguments = (*tensors, *scratch, *self.scalars)
        if not ROUNDS and any(one.to_tf32 for one in self.tma_args):
            self.round(arguments)
        return self.kernel[self.programs](*arguments, **self.options)

    def workspace(self) -> tuple[torch.Tensor, ...]:
        """Return the partial sums and the counters of split K."""
        return workspace(self.device, self.tile, *self.tiles_and_splits)

    def round(self, arguments: Sequence[Any]) -> None:
        """Make Triton 3.6 encode tensor maps that round, where that is `to_tf32`.

        It encodes them with the element type in the compiled kernel's metadata.
        """
        if INTERPRETED:
            return
        compiled = self.kernel.warmup(*arguments, grid=self.programs, **self.options)
        boxes = [arg for arg in self.tma_args for box in arg.boxes if box]
        for arg, meta in zip(boxes, compiled.metadata.tensordesc_meta, strict=True):
            if arg.to_tf32:
                meta["elem_type"] = TF32


def addresses_of(arguments: Sequence[Any]) -> list[int | float]:
    """Return the addresses of tensors; numbers and None as they are."""
    return [one if type(one) in UNCHANGED else one.data_ptr() for one in arguments]


def workspace(
    device: torch.device, tile: Tile, tiles: int, splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return fp32 memory for the partial sums of all tiles, and zeroed counters.

    Each warpgroup of a tile may have a counter. The launches of a stream run one after
    the other and share a workspace; each leaves the counters at zero. A CUDA graph has
    a workspace of its own, zeroed at every replay. Memory of a pool is not kept.
    """
    words = tiles * splits * tile.m * tile.n if splits > 1 else 1
    counts = tiles * cdiv(tile.warps, 4) if splits > 1 else 1
    if INTERPRETED or torch.cuda.is_current_stream_capturing():
        return new_workspace(device, words, counts)
    stream = torch.cuda.current_stream(device)
    found = WORKSPACES.get((device.index, stream.cuda_stream))
    if found is None or found[0].numel() < words or found[1].numel() < counts:
        found = new_workspace(device, words, max(counts, 1024))
        if not pooled(found[0]):  # nor are the counters, allocated right after it
            WORKSPACES[device.index, stream.cuda_stream] = found
    return found


def pooled(tensor: torch.Tensor) -> bool:
    """Return whether memory comes from a private pool, which takes it back.

    torch.compile has one while it warms up for a CUDA graph.
    """
    if torch.cuda.get_allocator_backend() != "native":
        return False  # other allocators do not report pools
    address = tensor.data_ptr()
    return any(
        segment["segment_pool_id"] != (0, 0)
        for segment in torch.cuda.memory_snapshot()
        if 0 <= address - segment["address"] < segment["total_size"]
    )


def new_workspace(
    device: torch.device, words: int, counts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return uninitialized partial sums and zeroed counters."""
    partials = torch.empty(words, dtype=torch.float32, device=device)
    return partials, torch.zeros(counts, dtype=torch.int32, device=device)
