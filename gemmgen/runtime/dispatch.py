"""Which kernel a call launches, and with what: its parameters' names tell.

A parameter `x_ptr` is the tensor x, `x_desc` a descriptor of its blocks, `stride_xm`
its stride along m, `BLOCK_M` a side of the tile.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .launch import Block, Launch
from .replay import run
from .support import index_dtype, row_divisibility
from .table import select
from .tile import CONSTANTS, Tile, stride_name

Grid = Callable[[Any, tuple[int, int, int], torch.device], Any]


@dataclass(frozen=True)
class Schedule:
    """A kernel, how many programs a launch of it has, and what tiles call it.

    Tiles that it serves `also` have another name for it. Groups of warps that share a
    tile have a slice of it along the axis `shared`, and descriptors are of that slice.
    With `to_tf32` those of A and B round what they read.
    """

    name: str
    kernel: Any
    grid: Grid
    also: str = ""
    shared: str = ""
    to_tf32: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of the kernel's parameters, in its order."""
        function = self.kernel
        while hasattr(function, "fn"):  # of an autotuner, then of what Triton made
            function = function.fn
        return list(inspect.signature(function).parameters)

    def side(self, axis: str) -> str:
        """Return the side of a tile that a descriptor's block has along an axis."""
        return {"m": "rows", "n": "columns"}[axis] if axis == self.shared else axis


class Arguments:
    """What every launch of a schedule passes, for tensors of such axes."""

    def __init__(self, schedule: Schedule, axes: Mapping[str, str]) -> None:
        names = schedule.parameters
        tensors = [name for name, own in axes.items() if own]
        places = {
            stride_name(tensor, axis): (at, dim)
            for at, tensor in enumerate(tensors)
            for dim, axis in enumerate(axes[tensor])
        }
        self.schedule = schedule
        self.blocks = [
            (at, schedule.side(own[0]), schedule.side(own[1]))
            for at, (tensor, own) in enumerate(axes.items())
            if f"{tensor}_desc" in names
        ]
        self.tensors = [at for at, own in enumerate(axes.values()) if own]
        self.splits = "SPLIT_K" in names
        self.strides = [places[name] for name in names if name.startswith("stride_")]
        self.indexes = "INDEX" in names
        self.aligns = "ALIGN" in names
        self.constants = [CONSTANTS[name] for name in names if name in CONSTANTS]

    def launch(
        self, tile: Tile | None, sizes: tuple[int, int, int], given: Sequence[Any]
    ) -> Launch:
        """Return the launch of a tile; of none, where configurations race."""
        device, grid = given[0].device, self.schedule.grid
        plain = [given[at] for at in self.tensors]
        strides = [tensor.stride() for tensor in plain]
        values: list[Any] = [strides[at][dim] for at, dim in self.strides]
        if self.indexes:
            values.append(index_dtype(*plain))
        if self.aligns:
            values.append(row_divisibility(given[0], given[1]))
        if tile is None:
            grid = grid(tile, sizes, device)
        else:
            values += [getattr(tile, name) for name in self.constants]
        tensors = list(given)
        for at, rows, columns in self.blocks:
            sides = getattr(tile, rows), getattr(tile, columns)
            tensors[at] = Block(given[at], *sides, self.schedule.to_tf32 and at < 2)
        kernel, splits = self.schedule.kernel, self.splits
        return Launch(
            kernel, tile, device, sizes, grid, tuple(tensors), tuple(values), splits
        )


class Launches:
    """The tiles that calls choose from, and what launches them.

    `axes` names the launcher's arguments and results in its order, A and B first, each
    with the axes that it is stored along: none for a number. Without tiles there is one
    schedule, whose kernel has configurations that race.
    """

    def __init__(
        self,
        axes: Mapping[str, str],
        tiles: Sequence[Tile],
        schedules: Sequence[Schedule],
    ) -> None:
        inputs = list(axes.values())[:2]
        self.tiles = tiles
        self.sizes = [
            next((at, own.index(axis)) for at, own in enumerate(inputs) if axis in own)
            for axis in "mnk"
        ]
        self.arguments = {
            name: Arguments(schedule, axes)
            for schedule in schedules
            for name in (schedule.name, schedule.also)
            if name
        }

    def launch(self, *given: Any) -> Launch:
        """Return the launch that serves matrices whose sizes and types were checked."""
        shapes = given[0].shape, given[1].shape
        M, N, K = [shapes[at][dim] for at, dim in self.sizes]
        sizes = M, N, K
        if not self.tiles:
            (only,) = self.arguments.values()
            return only.launch(None, sizes, given)
        described = functools.partial(self.described, given)
        tile = select(self.tiles, given[0].device, sizes, described)
        return self.arguments[tile.schedule].launch(tile, sizes, given)

    def described(self, given: Sequence[Any], schedule: str) -> Iterator[torch.Tensor]:
        """Return the tensors that a schedule takes through descriptors."""
        return (given[at] for at, *_ in self.arguments[schedule].blocks)

    def run(self, *given: Any) -> None:
        """Launch it."""
        run(self.launch(*given))
