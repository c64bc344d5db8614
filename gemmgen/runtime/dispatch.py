"""Which kernel a call launches, and with which arguments.

The names of a kernel's parameters say what it takes: `x_ptr` the tensor x, `x_desc` a
descriptor of it, `stride_xm` its stride along m, `BLOCK_M` a side of the tile.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .launch import Launch, TmaArg
from .replay import run
from .support import (
    DRY_RUN,
    compute_capability,
    index_dtype,
    row_divisibility,
    shared_memory,
)
from .table import GRIDS, Grid, one_an_autotuned_tile, row_starts, select
from .tile import CONSTANTS, KERNELS, Tile, stride_name


class KernelArguments:
    """The arguments of a kernel's launches: what its parameters are made from.

    `axes`, `shared` and `to_tf32` are those of `Launches`.
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
        tensors = [name for name, along in axes.items() if along]
        places = {
            stride_name(tensor, axis): (at, dim)
            for at, tensor in enumerate(tensors)
            for dim, axis in enumerate(axes[tensor])
        }
        self.kernel, self.grid, self.to_tf32 = kernel, grid, to_tf32
        self.shared, self.cuts = shared, "NUM_WGS" in names
        self.via_tma = [
            (at, along, f"{tensor}_rest_desc" in names)
            for at, (tensor, along) in enumerate(axes.items())
            if f"{tensor}_desc" in names
        ]
        self.tensors = [at for at, along in enumerate(axes.values()) if along]
        self.row_axes = [along[-1] for along in list(axes.values())[:2]]
        self.splits = "SPLIT_K" in names
        self.strides = [places[name] for name in names if name.startswith("stride_")]
        self.indexes = "INDEX" in names
        self.aligns = "ALIGN" in names
        self.constants = [CONSTANTS[name] for name in names if name in CONSTANTS]
        passed = self.order(names, axes)
        assert names == passed, f"{names} are passed as {passed}"

    def order(self, names: Sequence[str], axes: Mapping[str, str]) -> list[str]:
        """Return a kernel's parameters in the order in which they are passed."""
        passed: list[str] = []
        for tensor, along in axes.items():
            both = (f"{tensor}_desc", f"{tensor}_rest_desc")
            descs = [name for name in both if name in names]
            passed += descs or [f"{tensor}_ptr" if along else tensor]
        passed += ["partials_ptr", "counters_ptr"] * self.splits
        passed += ["M", "N", "K", *["SPLIT_K"] * self.splits]
        passed += [name for name in names if name.startswith("stride_")]
        passed += ["INDEX"] * self.indexes + ["ALIGN"] * self.aligns
        return passed + [name for name in names if name in CONSTANTS]

    def launch(
        self, tile: Tile | None, sizes: tuple[int, int, int], given: Sequence[Any]
    ) -> Launch:
        """Return the launch of a tile, or of an autotuned kernel, which has None."""
        device, grid = given[0].device, self.grid
        tensors = [given[at] for at in self.tensors]
        strides = [tensor.stride() for tensor in tensors]
        values: list[Any] = [strides[at][dim] for at, dim in self.strides]
        if self.indexes:
            values.append(index_dtype(*tensors))
        if self.aligns:
            values.append(row_divisibility(*self.wide(tile, given)))
        if tile is None:
            grid = grid(tile, sizes, device)
        else:
            values += [getattr(tile, name) for name in self.constants]
        passed = list(given)
        for at, along, rest in self.via_tma:
            boxes, halves = self.moved(tile, along, at > 1) if tile else ((), ())
            missing = (None,) * (1 + rest - len(boxes))
            to_tf32 = self.to_tf32 and at < 2
            passed[at] = TmaArg(given[at], boxes + missing, to_tf32, halves)
        arguments = tuple(passed), tuple(values), self.splits
        return Launch(self.kernel, tile, device, sizes, grid, *arguments)

    def moved(self, tile: Tile, along: str, beside: bool) -> tuple[tuple, tuple]:
        """Return the boxes in which a tensor is moved, and the CTAs' parts of them."""
        cut = self.cut_axis(tile)
        halves = tuple(int(axis == cut) for axis in along) if tile.ctas > 1 else ()
        return tile.boxes(along, cut, beside), halves

    def cut_axis(self, tile: Tile) -> str:
        """Return the axis along which warpgroups have slices of a tile, if they do."""
        return (self.shared or tile.cut_axis) if self.cuts else ""

    def wide(self, tile: Tile | None, given: Sequence[Any]) -> Iterator[torch.Tensor]:
        """Return A and B, but for what a tile loads one element of a row of."""
        for one, axis in zip(given, self.row_axes, strict=False):
            if tile is None or getattr(tile, axis) > 1:
                yield one


def function_of(kernel: Any) -> Any:
    """Return the Python function of a kernel."""
    while hasattr(kernel, "fn"):  # of an autotuner, then of a JITFunction
        kernel = kernel.fn
    return kernel


def parameters(kernel: Any) -> list[str]:
    """Return the names of a kernel's parameters, in its order."""
    return list(inspect.signature(function_of(kernel)).parameters)


class Launches:
    """The tiles that calls choose from, and the kernels that compute them.

    `axes` names the launcher's arguments and results in order, A and B first, each with
    the axes that it is stored along: none for a number. `kernels` are by schedule.
    Without tiles there is one kernel, which is autotuned.

    Warpgroups that share a tile each have a slice of it along the axis `shared`, or
    along the one that its sides say, and descriptors move slices. With `to_tf32` those
    of A and B round what they read.
    """

    def __init__(
        self,
        axes: Mapping[str, str],
        tiles: Sequence[Tile],
        *,
        shared: str = "",
        to_tf32: bool = False,
        **kernels: Any,
    ) -> None:
        first = next(iter(kernels.values()))
        self.name = function_of(first).__name__.removesuffix("_kernel")
        inputs = list(axes.values())[:2]
        self.axes, self.tiles = axes, tiles
        self.sizes = [
            next((at, ax.index(axis)) for at, ax in enumerate(inputs) if axis in ax)
            for axis in "mnk"
        ]
        also = {name: kernels[of] for name, of in KERNELS.items() if of in kernels}
        self.arguments = {
            name: KernelArguments(kernel, self.grid(name), axes, shared, to_tf32)
            for name, kernel in {**kernels, **also}.items()
        }

    def grid(self, schedule: str) -> Grid:
        """Return the function that counts the programs of a schedule's launch."""
        return GRIDS[schedule] if self.tiles else one_an_autotuned_tile

    def launch(self, *given: Any) -> Launch:
        """Return the launch for arguments that were checked."""
        shapes = given[0].shape, given[1].shape
        M, N, K = [shapes[at][dim] for at, dim in self.sizes]
        sizes = M, N, K
        if not self.tiles:
            return next(iter(self.arguments.values())).launch(None, sizes, given)
        via_tma = functools.partial(self.via_tma, given)
        device = given[0].device
        starts = row_starts(given[0], given[1])
        tile = select(self.tiles, device, sizes, starts, via_tma)
        if tile is None:
            sm, room = compute_capability(device), shared_memory(device)
            raise RuntimeError(
                f"{self.name}: no tile runs on sm_{sm} with {room} bytes of shared "
                "memory a block; build it from a spec that has this GPU's target"
            )
        return self.arguments[tile.schedule].launch(tile, sizes, given)

    def via_tma(self, given: Sequence[Any], schedule: str) -> Iterator[torch.Tensor]:
        """Return the tensors that a schedule takes as descriptors."""
        return (given[at] for at, *_ in self.arguments[schedule].via_tma)

    def run(self, *given: Any) -> None:
        """Launch the kernel for arguments that were checked; not in a dry run."""
        if not DRY_RUN.on:
            run(self.launch(*given))
