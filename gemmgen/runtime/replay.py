"""Launches that skip Triton's public entry.

That binds, types and hashes all arguments at every call: over 20 us of CPU (host of an
H200). Here it compiles a kernel once for each `compile_key`; from then on Triton's C
launcher is called directly.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import driver

from .launch import Launch, TmaArg, addresses_of, workspace
from .packed import (
    Compiled,
    MapSource,
    TensorMaps,
    TmaTemplate,
    compile_key,
    compiled,
    encoder,
    kernel_args,
    launcher_args,
    tensor_map,
    tma_templates,
)
from .support import (
    INTERPRETED,
    Bounded,
    bind_context,
    compute_capability,
    on_device,
)
from .table import RECORD

HOOKS = triton.knobs.runtime
UNUSED = 0, 0  # addresses in place of a workspace, if K is not split
MOST_ARGUMENTS = 64  # calls whose arguments a launch keeps

Replay = Callable[[list[int | float]], None]

COMPILED: dict[tuple, Compiled] = {}  # by `compile_key`


def run(launch: Launch) -> Compiled | None:
    """Launch a kernel: directly if it is compiled, else through Triton's entry.

    Returns the compiled kernel if it may be launched directly.
    """
    found = None
    with on_device(launch.device):
        if INTERPRETED or launch.tile is None:
            launch.enter()
        else:
            found = direct(launch)
    if RECORD.launches is not None:
        RECORD.launches.append((launch, found))
    return found


def direct(launch: Launch) -> Compiled | None:
    """Launch by Triton's C launcher if it may be used; return the kernel if it may."""
    key = compile_key(launch)
    found = COMPILED.get(key)
    if found is None or hooked():
        if launch.tma_args:
            bind_context()
        kernel = launch.enter()
        if kernel.metadata.global_scratch_size or kernel.metadata.profile_scratch_size:
            return None  # only Triton's entry allocates scratch
        if torch.cuda.is_current_stream_capturing() or not replays_work(launch.device):
            return None
        found = COMPILED[key] = compiled(kernel, bool(launch.tma_args))
    else:
        send(launch, found, kernel_args(tma_templates(launch, found), launch.addresses))
    return found


def send(launch: Launch, found: Compiled, tensors: Sequence[Any]) -> None:
    """Launch a compiled kernel on the current stream."""
    stream = driver.active.get_current_stream(launch.device.index)
    scratch = split_workspace(launch, launch.tiles_and_splits)
    passed = (*tensors, *addresses_of(scratch), *launch.scalars)
    found.launcher(*launcher_args(found, launch.programs, stream, passed))


def split_workspace(launch: Launch, counts: tuple[int, int]) -> Sequence[Any]:
    """Return the workspace of a launch of so many tiles and splits.

    The caller holds it until the launch: another thread may replace it by a larger one.
    """
    if not launch.splits:
        return ()
    if counts[1] == 1:
        return UNUSED
    return workspace(launch.device, launch.tile, *counts)


class LaunchTemplate:
    """A launch of a compiled kernel for any number of rows.

    `maps` encode the tensor maps of descriptors: templates for arguments whose rows
    vary, which are not kept. No tensor is held, which would keep its memory alive.
    """

    def __init__(
        self,
        launch: Launch,
        found: Compiled,
        maps: Sequence[MapSource],
    ) -> None:
        self.launch, self.found, self.maps = launch.of_rows(0), found, maps
        self.index = launch.device.index
        self.stream = driver.active.get_current_stream
        self.fill: Any = encoder()[0] if found.notes else None

    def replay_of(self, M: int) -> Replay:
        """Return the replay for M rows."""
        maps = [
            TensorMaps(one.of_rows(M)) if isinstance(one, TmaTemplate) else one
            for one in self.maps
        ]
        return replay_of(self.launch.of_rows(M), self.found, maps)


class SizedLaunch(NamedTuple):
    """A launch for M rows; `scalars` are the kernel's arguments after tensors."""

    template: LaunchTemplate
    M: int
    programs: tuple[int, ...]
    tiles_and_splits: tuple[int, int]
    scalars: tuple[Any, ...]

    def launch(self, addresses: Sequence[Any]) -> None:
        """Launch it on the current stream."""
        template, M, programs, counts, scalars = self
        passed: list[Any] = []
        for source, address in zip(template.maps, addresses, strict=True):
            if source is None:
                passed.append(address)
            elif type(source) is TensorMaps:
                passed += source[address]
            else:
                fixed, (_, columns), strides = source
                shape = M, columns
                for numbers in fixed:  # `encode` inlined, which saves 0.4 us
                    if numbers is None:
                        passed.append(None)
                    else:
                        try:
                            made = template.fill(address, *numbers, shape, strides, 0)
                        except RuntimeError:
                            made = tensor_map(address, *numbers, shape, strides)
                        passed += (made, M, columns, *strides)
        if template.launch.splits:
            scratch = split_workspace(template.launch, counts)
            passed += addresses_of(scratch)
        passed += scalars
        stream = template.stream(template.index)
        found = template.found
        found.launcher(*launcher_args(found, programs, stream, passed))


def replay_of(launch: Launch, found: Compiled, maps: Sequence[MapSource]) -> Replay:
    """Return a function of addresses that repeats a launch on the current stream.

    It is a closure, since looking up attributes would show in a call's time.
    """
    index, device, tile = launch.device.index, launch.device, launch.tile
    tiles, splits = launch.tiles_and_splits
    stream, launcher = driver.active.get_current_stream, found.launcher
    known = PackedArgs(launch, found, maps)

    def replay(addresses: list[int | float]) -> None:
        if splits > 1:
            scratch = workspace(device, tile, tiles, splits)
            addresses = [*addresses, *(one.data_ptr() for one in scratch)]
        key = (stream(index), *addresses)
        launcher(*known[key])

    return replay


class PackedArgs(Bounded):
    """The C launcher's arguments by stream and addresses, made when first asked for.

    Finding a tuple in a dict costs a call less than building it.
    """

    def __init__(
        self,
        launch: Launch,
        found: Compiled,
        maps: Sequence[MapSource],
    ) -> None:
        """Start empty; hold no tensor, which would keep its memory alive."""
        super().__init__(MOST_ARGUMENTS)
        self.programs, self.scalars = launch.programs, launch.scalars
        self.unused = UNUSED if launch.split_k == (1,) else ()
        self.found, self.maps = found, maps

    def __missing__(self, key: tuple) -> tuple:
        """Make the arguments, and keep them."""
        stream, *addresses = key
        count = len(self.maps)
        tensors = kernel_args(self.maps, addresses[:count])
        passed = (*tensors, *addresses[count:], *self.unused, *self.scalars)
        self[key] = made = launcher_args(self.found, self.programs, stream, passed)
        return made


@triton.jit
def mark(target_ptr, value):
    """Write a value."""
    tl.store(target_ptr, value)


@triton.jit
def copy_block(source_desc, target_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy the first block of a matrix from its descriptor."""
    block = source_desc.load([0, 0])
    offs = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(target_ptr + offs, block)


@functools.cache
def replays_work(device: torch.device) -> bool:
    """Return whether replays do on a device what Triton's entry does, tried once."""
    ones, twos = (torch.full((8, 16), one, device=device).half() for one in (1, 2))
    marks = (torch.zeros_like(ones), 2.0)
    once = Launch(mark, None, device, (), (1,), marks, ())
    trials: list[tuple] = [(once, twos[0, 0], ())]
    if compute_capability(device) >= 90:
        blocks = (TmaArg(ones, ((8, 16),)), torch.zeros_like(ones))
        once = Launch(copy_block, None, device, (), (1,), blocks, (8, 16))
        trials.append((once, twos, (twos,)))
    try:
        return all(replays_correctly(*trial) for trial in trials)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError):
        return False


def replays_correctly(
    launch: Launch, wanted: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> bool:
    """Return whether a launch, replayed for other inputs, writes what is wanted."""
    found = compiled(launch.enter(), bool(launch.tma_args))
    *_, target = (one for one in launch.tensors if isinstance(one, torch.Tensor))
    written = torch.zeros_like(target)
    numbers = [one for one in launch.tensors if type(one) is float]
    replay = replay_of(launch, found, tma_templates(launch, found))
    replay([*addresses_of(inputs), written.data_ptr(), *numbers])
    return torch.equal(written.flatten()[: wanted.numel()], wanted.flatten())


def hooked() -> bool:
    """Return whether somebody, such as a profiler, hooks into launches."""
    return bool(HOOKS.launch_enter_hook.calls or HOOKS.launch_exit_hook.calls)
