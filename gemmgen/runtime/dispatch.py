"""Which kernel a call launches, and with what: its parameters' names tell.

A parameter `x_ptr` is the tensor x, `x_desc` a descriptor of its blocks, `stride_xm`
its stride along m, `BLOCK_M` a side of the tile. They are passed by position, tensors
and numbers first, in the order of `Arguments.order`.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .launch import Block, Launch
from .replay import run
from .support import (
    PASS,
    compute_capability,
    index_dtype,
    row_divisibility,
    shared_memory,
)
from .table import GRIDS, Grid, one_a_raced_tile, one_a_tile, select
from .tile import CONSTANTS, KERNELS, Tile, stride_name


class Arguments:
    """What every launch of a kernel passes, for tensors of such axes.

    `shared` and `to_tf32` are as in `Launches`.
    """

    def __init__(
        self,
        kernel: Any,
        grid: Grid,
        axes: Mapping[str, str],
        shared: str,
        to_tf32: bool,
    ) -> None:
        names = parameters(kernel)
        tensors = [name for name, own in axes.items() if own]
        places = {
            stride_name(tensor, axis): (at, dim)
            for at, tensor in enumerate(tensors)
            for dim, axis in enumerate(axes[tensor])
        }
        self.kernel, self.grid, self.to_tf32 = kernel, grid, to_tf32
        self.shared = shared if "NUM_WGS" in names else ""
        self.blocks = [
            (at, own, f"{tensor}_rest_desc" in names)
            for at, (tensor, own) in enumerate(axes.items())
            if f"{tensor}_desc" in names
        ]
        self.tensors = [at for at, own in enumerate(axes.values()) if own]
        self.along = [own[-1] for own in list(axes.values())[:2]]
        self.splits = "SPLIT_K" in names
        self.strides = [places[name] for name in names if name.startswith("stride_")]
        self.indexes = "INDEX" in names
        self.aligns = "ALIGN" in names
        self.constants = [CONSTANTS[name] for name in names if name in CONSTANTS]
        wanted = self.order(names, axes)
        assert names == wanted, f"{names} are passed as {wanted}"

    def order(self, names: Sequence[str], axes: Mapping[str, str]) -> list[str]:
        """Return a kernel's parameters in the order in which they are passed."""
        passed: list[str] = []
        for tensor, own in axes.items():
            ways = (f"{tensor}_desc", f"{tensor}_rest_desc")
            moved = [name for name in ways if name in names]
            passed += moved or [f"{tensor}_ptr" if own else tensor]
        passed += ["partials_ptr", "counters_ptr"] * self.splits
        passed += ["M", "N", "K", *["SPLIT_K"] * self.splits]
        passed += [name for name in names if name.startswith("stride_")]
        passed += ["INDEX"] * self.indexes + ["ALIGN"] * self.aligns
        return passed + [name for name in names if name in CONSTANTS]

    def launch(
        self, tile: Tile | None, sizes: tuple[int, int, int], given: Sequence[Any]
    ) -> Launch:
        """Return the launch of a tile; of none, where configurations race."""
        device, grid = given[0].device, self.grid
        plain = [given[at] for at in self.tensors]
        strides = [tensor.stride() for tensor in plain]
        values: list[Any] = [strides[at][dim] for at, dim in self.strides]
        if self.indexes:
            values.append(index_dtype(*plain))
        if self.aligns:
            values.append(row_divisibility(*self.wide(tile, given)))
        if tile is None:
            grid = grid(tile, sizes, device)
        else:
            values += [getattr(tile, name) for name in self.constants]
        tensors = list(given)
        for at, own, rest in self.blocks:
            moved = tile.boxes(own, self.shared, at > 1) if tile else ()
            missing = (None,) * (1 + rest - len(moved))
            tensors[at] = Block(given[at], moved + missing, self.to_tf32 and at < 2)
        passed = tuple(tensors), tuple(values), self.splits
        return Launch(self.kernel, tile, device, sizes, grid, *passed)

    def wide(self, tile: Tile | None, given: Sequence[Any]) -> Iterator[torch.Tensor]:
        """Return A and B, but for what a tile loads one element of a row of."""
        for one, axis in zip(given, self.along, strict=False):
            if tile is None or getattr(tile, axis) > 1:
                yield one


def function_of(kernel: Any) -> Any:
    """Return the Python function of a kernel."""
    while hasattr(kernel, "fn"):  # of an autotuner, then of what Triton made
        kernel = kernel.fn
    return kernel


def parameters(kernel: Any) -> list[str]:
    """Return the names of a kernel's parameters, in its order."""
    return list(inspect.signature(function_of(kernel)).parameters)


class Launches:
    """The tiles that calls choose from, and the kernels that compute them.

    `axes` names the launcher's arguments and results in its order, A and B first, each
    with the axes that it is stored along: none for a number. Kernels are called by
    their schedules. Without tiles there is one, whose configurations race.

    Groups of warps that share a tile have a slice of it along the axis `shared`, and
    descriptors are of that slice. With `to_tf32` those of A and B round what they read.
    """

    def __init__(
        self,
        axes: Mapping[str, str],
        tiles: Sequence[Tile],
        *,
        shared: str = "n",
        to_tf32: bool = False,
        **kernels: Any,
    ) -> None:
        first = next(iter(kernels.values()))
        self.name = function_of(first).__name__.removesuffix("_kernel")
        inputs = list(axes.values())[:2]
        self.axes, self.tiles = axes, tiles
        self.sizes = [
            next((at, own.index(axis)) for at, own in enumerate(inputs) if axis in own)
            for axis in "mnk"
        ]
        also = {name: kernels[own] for name, own in KERNELS.items() if own in kernels}
        self.arguments = {
            name: Arguments(kernel, self.grid(name), axes, shared, to_tf32)
            for name, kernel in {**kernels, **also}.items()
        }

    def grid(self, schedule: str) -> Grid:
        """Return what tells how many programs a schedule's launch has."""
        return GRIDS.get(schedule, one_a_tile) if self.tiles else one_a_raced_tile

    def launch(self, *given: Any) -> Launch:
        """Return the launch that serves matrices whose sizes and types were checked."""
        shapes = given[0].shape, given[1].shape
        M, N, K = [shapes[at][dim] for at, dim in self.sizes]
        sizes = M, N, K
        if not self.tiles:
            return next(iter(self.arguments.values())).launch(None, sizes, given)
        described = functools.partial(self.described, given)
        device = given[0].device
        tile = select(self.tiles, device, sizes, described)
        if tile is None:
            sm, room = compute_capability(device), shared_memory(device)
            raise RuntimeError(
                f"{self.name}: no tile runs on sm_{sm} with {room} bytes of shared "
                "memory a block; build it from a spec that has this GPU's target"
            )
        return self.arguments[tile.schedule].launch(tile, sizes, given)

    def described(self, given: Sequence[Any], schedule: str) -> Iterator[torch.Tensor]:
        """Return the tensors that a schedule takes through descriptors."""
        return (given[at] for at, *_ in self.arguments[schedule].blocks)

    def run(self, *given: Any) -> None:
        """Launch the kernel that serves inputs and results, which were checked.

        Nothing, where a launcher is called for what it says alone.
        """
        if not PASS.dry:
            run(self.launch(*given))
