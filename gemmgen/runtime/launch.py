"""A launch: a kernel, its grid, all that it is called with; by Triton's own entry."""

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

# Whether descriptors can be asked to round, as those of newer Tritons can.
ROUNDS = "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 of CUDA's driver: what rounds, otherwise

# Product and sum as one instruction, rounded once: the default of Triton up to 3.9, and
# no longer from 3.10 on.
FUSED = {"enable_fp_fusion": True}

# By torch's names of types.
IN_TRITON = dict(TYPE_NAMES.values())

PLAIN = (float, int, type(None))  # that kernels are passed as they are

WORKSPACES: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}


@functools.cache
def shared_layout(rows: int, columns: int, dtype: torch.dtype) -> NVMMASharedLayout:
    """Return how a block lies in shared memory, for tensor core and tensor map."""
    name = str(dtype).removeprefix("torch.")
    element = getattr(tl, IN_TRITON.get(name, name))
    return NVMMASharedLayout.get_default_for([rows, columns], element)


class Block(NamedTuple):
    """A matrix that a kernel reads or writes in boxes, through tensor descriptors.

    The kernel has a parameter for each of the `boxes`, rows and columns; there is None
    where this tile needs none. With `to_tf32` fp32 elements are rounded to tf32 as they
    are read, where the tensor core would cut them.
    """

    matrix: torch.Tensor
    boxes: tuple[tuple[int, ...] | None, ...]
    to_tf32: bool = False

    def descriptors(self, in_gluon: bool) -> list[Any]:
        """Return the descriptors that Triton passes to a kernel, in Gluon or not."""
        return [box and self.descriptor(box, in_gluon) for box in self.boxes]

    def descriptor(self, box: tuple[int, ...], in_gluon: bool) -> Any:
        """Return the descriptor of one box: its rows and columns, in elements."""
        shape = list(box)
        rounding = {"round_f32_to_tf32": True} if self.to_tf32 and ROUNDS else {}
        if not in_gluon:
            return TensorDescriptor.from_tensor(self.matrix, shape, **rounding)
        layout = shared_layout(*shape, self.matrix.dtype)
        return GluonDescriptor.from_tensor(self.matrix, shape, layout, **rounding)


@dataclass
class Launch:
    """A kernel with all that it is called with.

    `tensors` are the launcher's arguments and results in their order, floats among
    them; then come `sizes` and `values`. With `splits` a workspace comes between, in
    which the parts of K meet, and their number after the sizes; `meeting` counts tiles,
    and parts of each. An autotuned kernel has no tile, and a grid that Triton calls.
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
    meeting: tuple[int, int] = field(init=False)
    scalars: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Count the programs along each axis; put what follows tensors in order."""
        self.programs, self.meeting = self.grid, (0, 1)
        if self.tile is not None:
            self.programs = self.grid(self.tile, self.sizes, self.device)
        if self.splits:
            self.meeting = self.tile.tiles(*self.sizes[:2]), self.programs[1]
        self.scalars = (*self.sizes, *self.parts, *self.values)

    def of_rows(self, M: int) -> "Launch":
        """Return the same of other tensors, which are left out, of M rows."""
        what, sizes = (self.kernel, self.tile, self.device), (M, *self.sizes[1:])
        return Launch(*what, sizes, self.grid, (), self.values, self.splits)

    @property
    def in_gluon(self) -> bool:
        """Whether the kernel is written in Gluon, which has its own descriptors."""
        return self.tile is not None and self.tile.schedule == "warp_specialized"

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told; an autotuned kernel knows its tile by itself."""
        return FUSED | (self.tile.options if self.tile else {})

    @property
    def described(self) -> list[Block]:
        """The tensors that come through descriptors."""
        return [one for one in self.tensors if isinstance(one, Block)]

    @property
    def parts(self) -> tuple[int, ...]:
        """In how many parts K comes, if it may come in several."""
        return self.meeting[1:] if self.splits else ()

    @property
    def addresses(self) -> list[int | float]:
        """Where the tensors are; numbers as they are."""
        plain = [one.matrix if isinstance(one, Block) else one for one in self.tensors]
        return addresses_of(plain)

    def enter(self) -> Any:
        """Launch through Triton's public entry, and return what it compiled.

        The tensors' device is the current one.
        """
        tensors: list[Any] = []
        for one in self.tensors:
            block = isinstance(one, Block)
            tensors += one.descriptors(self.in_gluon) if block else [one]
        scratch = self.workspace() if self.splits else ()
        arguments = (*tensors, *scratch, *self.scalars)
        if not ROUNDS and any(one.to_tf32 for one in self.described):
            self.round(arguments)
        return self.kernel[self.programs](*arguments, **self.options)

    def workspace(self) -> tuple[torch.Tensor, ...]:
        """Return the room in which the parts of K meet."""
        return workspace(self.device, self.tile, *self.meeting)

    def round(self, arguments: Sequence[Any]) -> None:
        """Make the compiled kernel's tensor maps round what is `to_tf32`.

        Triton 3.6 makes them of the type that it notes for every descriptor.
        """
        if INTERPRETED:
            return
        compiled = self.kernel.warmup(*arguments, grid=self.programs, **self.options)
        blocks = [block for block in self.described for box in block.boxes if box]
        notes = compiled.metadata.tensordesc_meta
        for block, note in zip(blocks, notes, strict=True):
            if block.to_tf32:
                note["elem_type"] = TF32


def addresses_of(arguments: Sequence[Any]) -> list[int | float]:
    """Return where tensors are; numbers, and None, as they are."""
    return [one if type(one) in PLAIN else one.data_ptr() for one in arguments]


def workspace(
    device: torch.device, tile: Tile, tiles: int, parts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return fp32 room for the parts of every tile, and zeroed counts of them.

    Groups of warps may each have a count of a tile. Launches of one stream follow each
    other and share them; each leaves the counts at zero. A CUDA graph has its own,
    which every replay zeroes first; what comes from a pool is not kept either.
    """
    words = tiles * parts * tile.m * tile.n if parts > 1 else 1
    counts = tiles * cdiv(tile.warps, 4) if parts > 1 else 1
    if INTERPRETED or torch.cuda.is_current_stream_capturing():
        return new_workspace(device, words, counts)
    stream = torch.cuda.current_stream(device)
    found = WORKSPACES.get((device.index, stream.cuda_stream))
    if found is None or found[0].numel() < words or found[1].numel() < counts:
        found = new_workspace(device, words, max(counts, 1024))
        if not pooled(found[0]):  # nor is the other, made right after it
            WORKSPACES[device.index, stream.cuda_stream] = found
    return found


def pooled(tensor: torch.Tensor) -> bool:
    """Return whether memory is of a pool that torch was told to take it from.

    As while torch.compile warms up for a CUDA graph, which has to get it back.
    """
    if torch.cuda.get_allocator_backend() != "native":
        return False  # others tell of no pools
    address = tensor.data_ptr()
    return any(
        one["segment_pool_id"] != (0, 0)
        for one in torch.cuda.memory_snapshot()
        if one["address"] <= address < one["address"] + one["total_size"]
    )


def new_workspace(
    device: torch.device, words: int, counts: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return uninitialized parts and zeroed counts."""
    parts = torch.empty(words, dtype=torch.float32, device=device)
    return parts, torch.zeros(counts, dtype=torch.int32, device=device)
