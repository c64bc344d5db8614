"""Elementwise kernels of a backward, with sums over rows and columns.

They are operators of torch, for calls that torch has to see.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..dispatch import function_of, parameters
from ..launch import Launch, addresses_of
from ..launch_cache import MOST_CALLS
from ..operators.entry import Entry, define
from ..operators.registry import returned, slot_of
from ..operators.sharding import Axes
from ..packed import tma_templates
from ..repeats import NO_KEY, call_key, several
from ..replay import Replay, hooked, replay_of, run
from ..support import (
    Bounded,
    current_device,
    index_dtype,
    intercepted,
    num_sms,
    profiling,
    tracing,
)
from ..tile import ANY, Tile, cdiv, stride_name

# On an H100 the gradients of gelu and a bias at 8192x14336 take 249 us with 8 programs
# an SM, torch.add of as many bytes 235. Other tiles, pipelined loads and cache hints
# change that by 2 % at most.
TILE = Tile("pass", 80, ANY, ANY, ANY, 16, 128, 1, 1, 1, 4)
PROGRAMS = 16  # per SM, which holds up to 9 at a time


class Elementwise(Entry):
    """An elementwise kernel over matrices [M, N], and how to launch it.

    `axes` names its inputs, then its results, each with the axes that it is stored
    along: none for a number. `dtypes` are those of the results. A result [N] or [M] is
    a sum along the other axis, in a fixed order: each program stores a row of partial
    sums, of the type `sums`, which torch then adds. The first inputs, so many as are
    `optional`, may be None, but not all at once.
    """

    def __init__(
        self,
        kernel: Any,
        axes: Mapping[str, str],
        dtypes: Mapping[str, str],
        sums: str = "float32",
        optional: int = 0,
    ) -> None:
        self.inputs = {name: axes[name] for name in axes if name not in dtypes}
        self.results = {name: axes[name] for name in dtypes}
        self.dtypes = {name: getattr(torch, dtype) for name, dtype in dtypes.items()}
        self.sums, self.optional = getattr(torch, sums), optional
        assert parameters(kernel) == self.order(axes), f"not {self.order(axes)}"
        arguments = [
            f"{'Tensor' if along else 'Scalar'}{'?' * (i < optional)} {name}"
            for i, (name, along) in enumerate(self.inputs.items())
        ]
        function = function_of(kernel)
        name = function.__name__.removesuffix("_kernel")
        # `wanted` has a bit for each result: DTensor caches calls by int arguments.
        schema = f"({', '.join(arguments)}, int wanted) -> {returned(len(dtypes))}"
        every = Axes({**self.inputs, "wanted": ""}, [*self.results.values()], ())
        slot, new = slot_of(function, name, schema, every)
        super().__init__(slot, name, every)
        self.triton_kernel = kernel
        self.replays: dict[tuple, tuple[int | None, Replay]] = Bounded(MOST_CALLS)
        slot.keep(self)
        if new:
            define(slot)

    def order(self, axes: Mapping[str, str]) -> list[str]:
        """Return the kernel's parameters in the order in which they are passed."""
        passed = [f"{name}_ptr" if along else name for name, along in axes.items()]
        strides = [
            stride_name(name, axis)
            for name, along in self.inputs.items()
            for axis in along
        ]
        return [*passed, "M", "N", *strides, "INDEX", "BLOCK_M", "BLOCK_N"]

    def run(
        self, given: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Return the results that are wanted, None for others.

        The inputs are given in order, a matrix first of those that are not None.
        """
        if not any(wanted):
            return [None for _ in wanted]
        if not (tracing() or intercepted(given) or profiling()):
            return self.compute(given, wanted)
        bits = sum(want << i for i, want in enumerate(wanted))
        results = several(self.overload(*given, bits))
        return [
            result if want else None
            for result, want in zip(results, wanted, strict=True)
        ]

    def compute(
        self, given: Sequence[Any], wanted: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """Launch, and return the results that are wanted, None for others."""
        first = first_of(given)
        M, N = sizes = tuple(first.shape)
        device = first.device
        columns, ranges = grid(TILE, sizes, device)
        shapes = {"mn": sizes, "n": (ranges, N), "m": (columns, M)}
        stored: list[torch.Tensor | None] = [None] * len(wanted)
        for i, (name, along) in enumerate(self.results.items()):
            if wanted[i]:
                dtype = self.dtypes[name] if along == "mn" else self.sums
                stored[i] = torch.empty(shapes[along], dtype=dtype, device=device)
        if M and N:
            self.start(sizes, given, stored)
        return [
            None if one is None else self.result(name, one)
            for name, one in zip(self.results, stored, strict=True)
        ]

    def launch(self, *inputs: Any) -> Any:
        """Return the results that the bits of the last input want, empty ones else."""
        *given, bits = inputs
        return self.filled(given, self.compute(given, self.wanted(bits)))

    def fake(self, *inputs: Any) -> Any:
        """Return results without memory, of the same sizes."""
        *given, bits = inputs
        sizes = dict(zip("mn", first_of(given).shape, strict=True))
        results = [
            self.empty(name, [sizes[axis] for axis in along], given) if want else None
            for (name, along), want in zip(
                self.results.items(), self.wanted(bits), strict=True
            )
        ]
        return self.filled(given, results)

    def wanted(self, bits: int) -> list[bool]:
        """Return which results are wanted."""
        return [bool(bits >> i & 1) for i in range(len(self.results))]

    def filled(self, given: Sequence[Any], some: Sequence[torch.Tensor | None]) -> Any:
        """Return results with empty tensors for None, which operators cannot return."""
        every = tuple(
            self.empty(name, [0] * len(along), given) if one is None else one
            for (name, along), one in zip(self.results.items(), some, strict=True)
        )
        return every if len(every) > 1 else every[0]

    def empty(
        self, name: str, shape: Sequence[int], given: Sequence[Any]
    ) -> torch.Tensor:
        """Return an uninitialized tensor of a result's dtype."""
        return first_of(given).new_empty(shape, dtype=self.dtypes[name])

    def result(self, name: str, stored: torch.Tensor) -> torch.Tensor:
        """Return a result; add partial sums."""
        if self.results[name] == "mn":
            return stored
        return stored.sum(0).to(self.dtypes[name])

    def start(
        self,
        sizes: tuple[int, int],
        given: Sequence[Any],
        stored: Sequence[torch.Tensor | None],
    ) -> None:
        """Launch the kernel; repeat the launch for arguments of a known signature."""
        missing = [i for i in range(self.optional) if given[i] is None]
        present = [one for one in given if one is not None] if missing else given
        try:
            key, addresses = call_key(present)
        except NO_KEY:
            run(self.planned(sizes, given, stored))
            return
        key = (*key, *missing, *(one if one is None else one.shape for one in stored))
        device, replay = self.replays.get(key, (None, None))
        if replay and device == current_device() and not hooked():
            passed: list[Any] = [*addresses, *addresses_of(stored)]
            for i in missing:
                passed.insert(i, None)
            replay(passed)
            return
        launch = self.planned(sizes, given, stored)
        found = run(launch)
        if found:
            replay = replay_of(launch, found, tma_templates(launch, found))
            self.replays[key] = launch.device.index, replay

    def planned(
        self,
        sizes: tuple[int, int],
        given: Sequence[Any],
        stored: Sequence[torch.Tensor | None],
    ) -> Launch:
        """Return the launch for such matrices."""
        read = [one for one in given if isinstance(one, torch.Tensor)]
        plain = (torch.Tensor, type(None))
        numbers = [one if isinstance(one, plain) else float(one) for one in given]
        index = index_dtype(*read, *(one for one in stored if one is not None))
        strides = [stride for one in given for stride in strides_of(one)]
        values = (*strides, index, TILE.m, TILE.n)
        passed = (*numbers, *stored)
        return Launch(
            self.triton_kernel, TILE, read[0].device, sizes, grid, passed, values
        )


def first_of(given: Sequence[Any]) -> torch.Tensor:
    """Return the first input that is not None, a matrix."""
    first: torch.Tensor = next(one for one in given if one is not None)
    return first


def strides_of(one: Any) -> Sequence[int]:
    """Return the strides of an input that a kernel takes; any for a missing matrix."""
    if one is None:
        return 0, 0
    return one.stride() if isinstance(one, torch.Tensor) else ()


def grid(tile: Tile, sizes: tuple[int, ...], device: torch.device) -> tuple[int, int]:
    """Return the numbers of programs along columns and along rows of a matrix [M, N].

    About as many as the GPU holds at a time, so that there are few partial sums.
    """
    M, N = sizes
    columns = cdiv(N, tile.n)
    return columns, min(cdiv(M, tile.m), cdiv(PROGRAMS * num_sms(device), columns or 1))
