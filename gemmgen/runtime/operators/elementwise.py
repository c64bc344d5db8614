"""A pass over matrices: gradients element by element, and sums of them on the way.

It is an operator of torch, as which it is called where torch has to see it.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..launch_cache import tracing
from ..repeats import several
from ..support import index_dtype, on_device, profiled, special
from ..tile import cdiv, stride_name
from .entry import Entry, define
from .registry import returned, slot_of
from .sharding import Axes

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
        # An int: of all that is no tensor, DTensor tells calls apart by this alone.
        schema = f"({', '.join(arguments)}, int wanted) -> {returned(len(self.made))}"
        own = Axes({**self.read, "wanted": ""}, [*self.made.values()], linear_in=())
        slot, new = slot_of(function, name, schema, own)
        super().__init__(slot, name, own)
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
        if not (tracing() or special(given) or profiled()):
            return self.compute(given, wanted)
        made = self.overload(*given, sum(want << at for at, want in enumerate(wanted)))
        return [
            one if want else None
            for one, want in zip(several(made), wanted, strict=True)
        ]

    def compute(
        self, given: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Launch, and return the results that are wanted, None for others."""
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
            None if one is None else self.result(name, one)
            for name, one in stored.items()
        ]

    def launch(self, *inputs: Any) -> Any:
        """Return the results that bits of the last input ask for, empty ones else."""
        *given, bits = inputs
        return self.filled(given, self.compute(given, self.wanted(bits)))

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory, of the sizes of those."""
        *given, bits = inputs
        sizes = dict(zip("mn", given[0].shape, strict=True))
        made = [
            (
                given[0].new_empty(
                    [sizes[axis] for axis in own], dtype=self.dtypes[name]
                )
                if want
                else None
            )
            for (name, own), want in zip(
                self.made.items(), self.wanted(bits), strict=True
            )
        ]
        return self.filled(given, made)

    def wanted(self, bits: int) -> list[bool]:
        """Return which results are asked for."""
        return [bool(bits >> at & 1) for at in range(len(self.made))]

    def filled(
        self, given: Sequence[Any], made: Sequence[torch.Tensor | None]
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Return results as an operator has to, with empty ones for None."""
        every = tuple(
            (
                given[0].new_empty([0] * len(own), dtype=self.dtypes[name])
                if one is None
                else one
            )
            for (name, own), one in zip(self.made.items(), made, strict=True)
        )
        return every if len(every) > 1 else every[0]

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
