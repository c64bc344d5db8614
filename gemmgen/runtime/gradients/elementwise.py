"""A pass over matrices: gradients element by element, and sums of them on the way."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..support import index_dtype, on_device
from ..tile import cdiv, stride_name

BLOCK_M, BLOCK_N = 64, 128  # 32 elements a thread, in runs of 16 bytes
WARPS = 8


class Elementwise:
    """A kernel with a program for every tile of matrices [M, N], and how to launch it.

    `axes` names what it reads, then its results, each with the axes that it is stored
    along: none for a number. A result [N] or [M] is a sum along the other axis, in two
    steps of fixed order: a row of `sums` for each tile, then those. `dtypes` are the
    results' own.
    """

    def __init__(
        self,
        kernel: Any,
        axes: Mapping[str, str],
        dtypes: Mapping[str, str],
        sums: str = "float32",
    ) -> None:
        self.kernel = kernel
        self.read = {name: own for name, own in axes.items() if name not in dtypes}
        self.made = {name: axes[name] for name in dtypes}
        self.dtypes = {name: getattr(torch, own) for name, own in dtypes.items()}
        self.sums = getattr(torch, sums)
        function = kernel.fn if hasattr(kernel, "fn") else kernel
        self.parameters = list(inspect.signature(function).parameters)

    def run(
        self, given: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Return the results that are wanted, None for others.

        What is read is given in order, a matrix first.
        """
        if not any(wanted):
            return [None for _ in wanted]
        M, N = given[0].shape
        tiles = {"n": cdiv(M, BLOCK_M), "m": cdiv(N, BLOCK_N)}
        sizes = {"m": M, "n": N}
        stored: dict[str, torch.Tensor | None] = {}
        for (name, own), want in zip(self.made.items(), wanted, strict=True):
            shape = (M, N) if own == "mn" else (tiles[own], sizes[own])
            dtype = self.dtypes[name] if own == "mn" else self.sums
            made = torch.empty(shape, dtype=dtype, device=given[0].device)
            stored[name] = made if want else None
        if M and N:
            self.launch((tiles["n"], tiles["m"]), (M, N), given, stored)
        return [self.result(name, made) for name, made in stored.items()]

    def result(self, name: str, made: torch.Tensor | None) -> torch.Tensor | None:
        """Return a result, its sums added."""
        if made is None or self.made[name] == "mn":
            return made
        return made.sum(0).to(self.dtypes[name])

    def launch(
        self,
        grid: tuple[int, int],
        sizes: tuple[int, int],
        given: Sequence[Any],
        stored: Mapping[str, torch.Tensor | None],
    ) -> None:
        """Launch the kernel, whose parameters' names tell what they are."""
        values: dict[str, Any] = dict(zip("MN", sizes, strict=True))
        tensors = [one for one in stored.values() if one is not None]
        for (name, own), value in zip(self.read.items(), given, strict=True):
            values[f"{name}_ptr" if own else name] = value
            for axis, stride in zip(own, value.stride() if own else (), strict=True):
                values[stride_name(name, axis)] = stride
            tensors += [value] if own else []
        values |= {f"{name}_ptr": one for name, one in stored.items()}
        values |= {"INDEX": index_dtype(*tensors)}
        values |= {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
        with on_device(given[0].device):
            passed = {name: values[name] for name in self.parameters}
            self.kernel[grid](**passed, num_warps=WARPS)
