"""A pass over matrices: gradients element by element, and sums of them on the way.

It is an operator of torch, as which it is called where torch has to see it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..dispatch import function_of, parameters
from ..launch import Launch, addresses_of
from ..launch_cache import MOST_CALLS, current_device, tracing
from ..operators.entry import Entry, define
from ..operators.registry import returned, slot_of
from ..operators.sharding import Axes
from ..packed import likenesses
from ..repeats import looked_at, several
from ..replay import Replay, hooked, replaying, run
from ..support import Bounded, index_dtype, num_sms, profiled, special
from ..tile import ANY, Tile, cdiv, stride_name

# On an H100 the gradients of gelu and a bias at 8192x14336 take 249 us with 8 programs
# an SM, torch.add of as many bytes 235; other tiles, loads in stages, hints to caches
# change that by 2 % at most.
TILE = Tile("pass", 80, ANY, ANY, ANY, 16, 128, 1, 1, 1, 1, 4)
PROGRAMS = 16  # for an SM, which holds 9 of them, fewer where more is read


class Elementwise(Entry):
    """A kernel that goes over matrices [M, N], and how to launch it.

    `axes` names what it reads, then its results, each with the axes that it is stored
    along: none for a number. A result [N] or [M] is a sum along the other axis, in two
    steps of fixed order: a row of `sums` for each program along that, then those.
    `dtypes` are the results' own.
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
        assert parameters(kernel) == self.order(axes), f"not {self.order(axes)}"
        arguments = [
            f"{'Tensor' if own else 'Scalar'} {name}" for name, own in self.read.items()
        ]
        function = function_of(kernel)
        name = function.__name__.removesuffix("_kernel")
        # An int: of all that is no tensor, DTensor tells calls apart by this alone.
        schema = f"({', '.join(arguments)}, int wanted) -> {returned(len(self.made))}"
        own = Axes({**self.read, "wanted": ""}, [*self.made.values()], linear_in=())
        slot, new = slot_of(function, name, schema, own)
        super().__init__(slot, name, own)
        self.triton_kernel = kernel
        self.replays: dict[tuple, tuple[int | None, Replay]] = Bounded(MOST_CALLS)
        slot.keep(self)
        if new:
            define(slot)

    def order(self, axes: Mapping[str, str]) -> list[str]:
        """Return the kernel's parameters in the order in which they are passed."""
        passed = [f"{name}_ptr" if own else name for name, own in axes.items()]
        strides = [
            stride_name(name, axis) for name, own in self.read.items() for axis in own
        ]
        return [*passed, "M", "N", *strides, "INDEX", "BLOCK_M", "BLOCK_N"]

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
        M, N = sizes = tuple(given[0].shape)
        columns, ranges = grid(TILE, sizes, given[0].device)
        shapes = {"mn": sizes, "n": (ranges, N), "m": (columns, M)}
        stored: list[torch.Tensor | None] = [None] * len(wanted)
        for at, (name, own) in enumerate(self.made.items()):
            if wanted[at]:
                dtype = self.dtypes[name] if own == "mn" else self.sums
                device = given[0].device
                stored[at] = torch.empty(shapes[own], dtype=dtype, device=device)
        if M and N:
            self.start(sizes, given, stored)
        return [
            None if one is None else self.result(name, one)
            for name, one in zip(self.made, stored, strict=True)
        ]

    def launch(self, *inputs: Any) -> Any:
        """Return the results that bits of the last input ask for, empty ones else."""
        *given, bits = inputs
        return self.filled(given, self.compute(given, self.wanted(bits)))

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory, of the sizes of those."""
        *given, bits = inputs
        sizes = dict(zip("mn", given[0].shape, strict=True))
        wanted = zip(self.made.items(), self.wanted(bits), strict=True)
        made = [
            self.empty(name, [sizes[axis] for axis in own], given) if want else None
            for (name, own), want in wanted
        ]
        return self.filled(given, made)

    def wanted(self, bits: int) -> list[bool]:
        """Return which results are asked for."""
        return [bool(bits >> at & 1) for at in range(len(self.made))]

    def filled(self, given: Sequence[Any], made: Sequence[torch.Tensor | None]) -> Any:
        """Return results as an operator has to, with empty ones for None."""
        every = tuple(
            self.empty(name, [0] * len(own), given) if one is None else one
            for (name, own), one in zip(self.made.items(), made, strict=True)
        )
        return every if len(every) > 1 else every[0]

    def empty(
        self, name: str, shape: Sequence[int], given: Sequence[Any]
    ) -> torch.Tensor:
        """Return memory for a result, where that is of what is given."""
        return given[0].new_empty(shape, dtype=self.dtypes[name])

    def result(self, name: str, made: torch.Tensor) -> torch.Tensor:
        """Return a result, its sums added."""
        if self.made[name] == "mn":
            return made
        return made.sum(0).to(self.dtypes[name])

    def start(
        self,
        sizes: tuple[int, int],
        given: Sequence[Any],
        stored: Sequence[torch.Tensor | None],
    ) -> None:
        """Launch the kernel; repeat what was launched for such arguments before."""
        try:
            key, addresses = looked_at(given)
        except (AttributeError, OverflowError, RuntimeError, TypeError):
            run(self.planned(sizes, given, stored))
            return
        key = (*key, *(one if one is None else one.shape for one in stored))
        device, replay = self.replays.get(key, (None, None))
        if replay and device == current_device() and not hooked():
            replay([*addresses, *addresses_of(stored)])
            return
        launch = self.planned(sizes, given, stored)
        found = run(launch)
        if found:
            replay = replaying(launch, found, likenesses(launch, found))
            self.replays[key] = launch.device.index, replay

    def planned(
        self,
        sizes: tuple[int, int],
        given: Sequence[Any],
        stored: Sequence[torch.Tensor | None],
    ) -> Launch:
        """Return the launch for such matrices."""
        read = [one for one in given if isinstance(one, torch.Tensor)]
        numbers = [
            one if isinstance(one, torch.Tensor) else float(one) for one in given
        ]
        index = index_dtype(*read, *(one for one in stored if one is not None))
        steps = [step for one in read for step in one.stride()]
        values = (*steps, index, TILE.m, TILE.n)
        passed = (*numbers, *stored)
        return Launch(
            self.triton_kernel, TILE, read[0].device, sizes, grid, passed, values
        )


def grid(tile: Tile, sizes: tuple[int, ...], device: torch.device) -> tuple[int, int]:
    """Return how many programs share the columns of a matrix [M, N], how many its rows.

    As many as the GPU holds at a time, so that there are few sums of rows to be added.
    """
    M, N = sizes
    columns = cdiv(N, tile.n)
    return columns, min(cdiv(M, tile.m), cdiv(PROGRAMS * num_sms(device), columns or 1))
