"""A pass over matrices: gradients element by element, and sums of them on the way.

It is an operator of torch, as which it is called where torch has to see it.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..launch_cache import tracing
from ..support import index_dtype, on_device, profiled, special
from ..tile import cdiv, stride_name
from .entry import Entry, define
from .registry import slot_of

BLOCK_M, BLOCK_N = 32, 128  # 32 elements a thread, in runs of 16 bytes
WARPS = 4


class Elementwise(Entry):
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
        self.read = {name: own for name, own in axes.items() if name not in dtypes}
        self.made = {name: axes[name] for name in dtypes}
        self.dtypes = {name: getattr(torch, own) for name, own in dtypes.items()}
        self.sums = getattr(torch, sums)
        function = kernel.fn if hasattr(kernel, "fn") else kernel
        self.parameters = list(inspect.signature(function).parameters)
        arguments = [
            f"{'Tensor' if own else 'Scalar'} {name}" for name, own in self.read.items()
        ]
        name = function.__name__.removesuffix("_kernel")
        schema = f"({', '.join(arguments)}, bool[] wanted) -> Tensor[]"
        slot, new = slot_of(function, name, schema)
        super().__init__(slot, name)
        self.triton_kernel = kernel
        slot.keep(self)
        if new:
            define(slot)

    def run(
        self, given: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Return the results that are wanted, None for others.

        What is read is given in order, a matrix first.
        """
        if not any(wanted):
            return [None for _ in wanted]
        seen = tracing() or special(given) or profiled()
        made = iter((self.overload if seen else self.launch)(*given, wanted))
        return [next(made) if want else None for want in wanted]

    def launch(self, *inputs: Any) -> list[torch.Tensor]:
        """Return the results that are wanted; that is the last input."""
        *given, wanted = inputs
        M, N = given[0].shape
        tiles = {"n": cdiv(M, BLOCK_M), "m": cdiv(N, BLOCK_N)}
        sizes = {"m": M, "n": N}
        stored: dict[str, torch.Tensor | None] = dict.fromkeys(self.made)
        for (name, own), want in zip(self.made.items(), wanted, strict=True):
            if want:
                shape = (M, N) if own == "mn" else (tiles[own], sizes[own])
                dtype = self.dtypes[name] if own == "mn" else self.sums
                stored[name] = torch.empty(shape, dtype=dtype, device=given[0].device)
        if M and N:
            self.start((tiles["n"], tiles["m"]), (M, N), given, stored)
        return [
            self.result(name, one) for name, one in stored.items() if one is not None
        ]

    def fake(self, *inputs: Any) -> list[torch.Tensor]:
        """Return results without memory, of the sizes of those."""
        *given, wanted = inputs
        sizes = dict(zip("mn", given[0].shape, strict=True))
        return [
            given[0].new_empty([sizes[axis] for axis in own], dtype=self.dtypes[name])
            for (name, own), want in zip(self.made.items(), wanted, strict=True)
            if want
        ]

    def result(self, name: str, made: torch.Tensor) -> torch.Tensor:
        """Return a result, its sums added."""
        if self.made[name] == "mn":
            return made
        return made.sum(0).to(self.dtypes[name])

    def start(
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
            self.triton_kernel[grid](**passed, num_warps=WARPS)
