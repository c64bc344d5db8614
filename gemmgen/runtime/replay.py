"""Launches without what Triton's public entry does at every call.

It binds, types and hashes all arguments anew, over 20 us of CPU (host of an H200).
Here it is asked once for each kind of arguments; from then on its C launcher is called
with what it would have been given.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.runtime import driver

from .launch import Block, Launch, addresses_of, workspace
from .packed import (
    Compiled,
    Likeness,
    Maps,
    arguments,
    compiled,
    described,
    encoder,
    kind,
    likenesses,
    tensor_map,
)
from .support import (
    INTERPRETED,
    Bounded,
    bind_context,
    compute_capability,
    on_device,
)
from .table import RECORD

HOOKS = triton.knobs.runtime  # which has them
UNUSED = 0, 0  # in place of a workspace, where K comes in one part
MOST_ARGUMENTS = 64  # streams and addresses whose arguments a launch keeps

Replay = Callable[[list[int | float]], None]

COMPILED: dict[tuple, Compiled] = {}  # by `kind`


def run(launch: Launch) -> Compiled | None:
    """Launch a kernel: directly if it is compiled, else through Triton's entry.

    Returns what does so again, if that may be.
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
    """Launch by Triton's C launcher if that may be; what does so again, if it may."""
    key = kind(launch)
    found = COMPILED.get(key)
    if found is None or hooked():
        if launch.described:
            bind_context()
        made = launch.enter()
        if made.metadata.global_scratch_size or made.metadata.profile_scratch_size:
            return None  # Triton's entry allocates it; what is tried would lack it too
        if torch.cuda.is_current_stream_capturing() or not trusted(launch.device):
            return None
        found = COMPILED[key] = compiled(made, bool(launch.described))
    else:
        send(launch, found, described(likenesses(launch, found), launch.addresses))
    return found


def send(launch: Launch, found: Compiled, tensors: Sequence[Any]) -> None:
    """Launch a compiled kernel on the current stream."""
    stream = driver.active.get_current_stream(launch.device.index)
    scratch = scratch_of(launch, launch.meeting)
    passed = (*tensors, *addresses_of(scratch), *launch.scalars)
    found.launcher(*arguments(found, launch.programs, stream, passed))


def scratch_of(launch: Launch, meeting: tuple[int, int]) -> Sequence[Any]:
    """Return where the parts of K meet, in a launch of so many tiles and parts.

    To be held until it is launched: another thread may take a larger workspace, and so
    let go of this one.
    """
    if not launch.splits:
        return ()
    if meeting[1] == 1:
        return UNUSED
    return workspace(launch.device, launch.tile, *meeting)


class Ready:
    """A launch of a compiled kernel, for any rows of the kind that it was compiled for.

    `maps` make the tensor maps of what comes by descriptors, one by one for what has
    other rows each time. No tensor is kept, for it would stay alive.
    """

    def __init__(
        self, launch: Launch, found: Compiled, maps: Sequence[Likeness | Maps | None]
    ) -> None:
        self.alike, self.found, self.maps = launch.of_rows(0), found, maps
        self.index = launch.device.index
        self.stream = driver.active.get_current_stream
        self.fill: Any = encoder()[0] if found.notes else None

    def replaying(self, M: int) -> Replay:
        """Return a function of addresses that launches it for M rows."""
        maps = [
            Maps(one.of_rows(M)) if isinstance(one, Likeness) else one
            for one in self.maps
        ]
        return replaying(self.alike.of_rows(M), self.found, maps)


class Sized(NamedTuple):
    """A launch for M rows, of so many programs, that takes `scalars` after tensors."""

    ready: Ready
    M: int
    programs: tuple[int, ...]
    meeting: tuple[int, int]
    scalars: tuple[Any, ...]

    def launch(self, addresses: Sequence[Any]) -> None:
        """Launch it on the current stream."""
        ready, M, programs, meeting, scalars = self
        passed: list[Any] = []
        for like, address in zip(ready.maps, addresses, strict=True):
            if like is None:
                passed.append(address)
            elif type(like) is Maps:
                passed += like[address]
            else:
                fixed, (_, columns), strides = like
                shape = M, columns
                for numbers in fixed:  # as `encoded`, 0.4 us sooner
                    if numbers is None:
                        passed.append(None)
                    else:
                        try:
                            made = ready.fill(address, *numbers, shape, strides, 0)
                        except RuntimeError:
                            made = tensor_map(address, *numbers, shape, strides)
                        passed += (made, M, columns, *strides)
        if ready.alike.splits:
            scratch = scratch_of(ready.alike, meeting)
            passed += addresses_of(scratch)
        passed += scalars
        stream = ready.stream(ready.index)
        ready.found.launcher(*arguments(ready.found, programs, stream, passed))


def replaying(
    launch: Launch, found: Compiled, maps: Sequence[Likeness | Maps | None]
) -> Replay:
    """Return a function of addresses that launches the same on the current stream.

    A closure, for every attribute looked up would show in a call's time.
    """
    index, where, tile = launch.device.index, launch.device, launch.tile
    tiles, parts = launch.meeting
    stream, launcher = driver.active.get_current_stream, found.launcher
    known = Arguments(launch, found, maps)

    def replay(addresses: list[int | float]) -> None:
        if parts > 1:
            scratch = workspace(where, tile, tiles, parts)
            addresses = [*addresses, *(one.data_ptr() for one in scratch)]
        key = (stream(index), *addresses)
        launcher(*known[key])

    return replay


class Arguments(Bounded):
    """By stream and addresses, all that Triton's C launcher takes, made when missed.

    A dict, for a tuple that is found in one costs a call less than one that is built.
    """

    def __init__(
        self, launch: Launch, found: Compiled, maps: Sequence[Likeness | Maps | None]
    ) -> None:
        """Keep what is the same at every address; no tensor, which would stay alive."""
        super().__init__(MOST_ARGUMENTS)
        self.programs, self.scalars = launch.programs, launch.scalars
        self.unused = UNUSED if launch.parts == (1,) else ()
        self.found, self.maps = found, maps

    def __missing__(self, key: tuple) -> tuple:
        """Return the arguments, and keep them."""
        stream, *addresses = key
        count = len(self.maps)
        tensors = described(self.maps, addresses[:count])
        passed = (*tensors, *addresses[count:], *self.unused, *self.scalars)
        self[key] = made = arguments(self.found, self.programs, stream, passed)
        return made


@triton.jit
def mark(target_ptr, value):
    """Write a value where it can be found."""
    tl.store(target_ptr, value)


@triton.jit
def copy_block(source_desc, target_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy the first block of a matrix, which comes by a descriptor."""
    block = source_desc.load([0, 0])
    offs = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(target_ptr + offs, block)


@functools.cache
def trusted(device: torch.device) -> bool:
    """Return whether a replay does on a device what Triton's entry does, tried once."""
    ones, twos = (torch.full((8, 16), one, device=device).half() for one in (1, 2))
    marks = (torch.zeros_like(ones), 2.0)
    once = Launch(mark, None, device, (), (1,), marks, ())
    trials: list[tuple] = [(once, twos[0, 0], ())]
    if compute_capability(device) >= 90:
        blocks = (Block(ones, ((8, 16),)), torch.zeros_like(ones))
        once = Launch(copy_block, None, device, (), (1,), blocks, (8, 16))
        trials.append((once, twos, (twos,)))
    try:
        return all(repeats(*trial) for trial in trials)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError):
        return False


def repeats(
    launch: Launch, wanted: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> bool:
    """Return whether a launch, repeated for other inputs, writes what is wanted."""
    found = compiled(launch.enter(), bool(launch.described))
    *_, target = (one for one in launch.tensors if isinstance(one, torch.Tensor))
    written = torch.zeros_like(target)
    numbers = [one for one in launch.tensors if type(one) is float]
    replay = replaying(launch, found, likenesses(launch, found))
    replay([*addresses_of(inputs), written.data_ptr(), *numbers])
    return torch.equal(written.flatten()[: wanted.numel()], wanted.flatten())


def hooked() -> bool:
    """Return whether somebody, such as a profiler, wants to know of launches."""
    return bool(HOOKS.launch_enter_hook.calls or HOOKS.launch_exit_hook.calls)
