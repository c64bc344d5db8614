"""Launchers that remember their calls.

One that is called again with tensors of the same signature decides nothing anew: it
makes its results and repeats its launch for the new addresses. What it decides for
another number of rows comes from its family.
"""

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .families import Family, but_for_rows, empty
from .launch import Launch, addresses_of
from .repeats import Latest, Repeat, alike, harmless, overlaps
from .replay import Replay, hooked, replaying
from .support import INTERPRETED
from .table import RECORD

MOST_CALLS = 1024  # signatures that a launcher remembers
MOST_FAMILIES = 256  # and families of them
PLAIN = (torch.Tensor, torch.nn.Parameter)  # types whose memory is what it seems

Launcher = TypeVar("Launcher", bound=Callable[..., Any])


def launch_cache(*by_row: str) -> Callable[[Launcher], Launcher]:
    """Return what makes a launcher remember what it decided for a signature.

    The arguments `by_row`, the first of them a matrix, have a row, or a number, for
    each row of the results: calls that differ in rows alone are decided together.
    """

    def cached(launcher: Launcher) -> Launcher:
        if INTERPRETED:
            return launcher
        *names, _ = inspect.signature(launcher).parameters
        memory = Memory(launcher, [names.index(name) for name in by_row])
        made: Any = functools.wraps(launcher)(calling(launcher, names, memory))
        made.by_row = by_row
        return made

    return cached


def calling(
    launcher: Callable[..., Any], names: Sequence[str], memory: "Memory"
) -> Callable[..., Any]:
    """Return a function that calls a launcher, or repeats what it did before."""
    count, calls, latest = len(names), memory.calls, Latest()

    def remembering(*inputs: Any, out: Any = None, **named: Any) -> Any:
        if named or len(inputs) != count:
            ordered = in_order(names, inputs, named)
            if ordered is None:  # the launcher says what is wrong
                return launcher(*inputs, out=out, **named)
            inputs = ordered
        if out is None:
            repeat, addresses = latest.found(inputs)
            if repeat and repeat.device == current_device() and not hooked():
                return repeat.launch(addresses)
        try:
            key, addresses = looked_at(inputs, out)
        except (AttributeError, OverflowError, RuntimeError, TypeError):
            return launcher(*inputs, out=out)  # no plain tensors: it says which
        repeat = calls.get(key)
        if repeat is None or repeat.device != current_device() or hooked():
            return memory.learn(key, addresses, inputs, out)
        if out is None:
            latest.keep(repeat)
        elif not harmless(repeat.overlaps, addresses):
            return launcher(*inputs, out=out)
        return repeat.launch(addresses, out)

    return remembering


def in_order(
    names: Sequence[str], inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return all inputs by position; None unless those by name are what is missing."""
    ordered = [named[name] for name in names[len(inputs) :] if name in named]
    if len(inputs) + len(named) != len(names) or len(ordered) < len(named):
        return None
    return (*inputs, *ordered)


def looked_at(
    inputs: Sequence[Any], out: Any = None
) -> tuple[tuple, list[int | float]]:
    """Return all of the arguments that may change what is launched, and `addresses_of`.

    In one pass, for every call takes it. Of a number the sign is enough: else
    `Arguments` would find 0.0 for -0.0.
    """
    key: list[Any] = [torch.is_grad_enabled(), type(out)]
    addresses: list[int | float] = []
    for one in inputs if out is None else (*inputs, *several(out)):
        if type(one) in PLAIN:
            address = one.data_ptr()
            key += (one.shape, one.stride(), one.dtype, one.get_device(), address & 15)
            key += (one.requires_grad, one.is_neg())
            addresses.append(address)
        elif type(one) in (float, int):
            number = float(one)
            key.append(math.copysign(1.0, number))
            addresses.append(number)
        else:
            raise TypeError
    return tuple(key), addresses


def several(out: Any) -> Sequence[Any]:
    """Return the results as a sequence, also if there is one."""
    return out if isinstance(out, (tuple, list)) else (out,)


class Memory:
    """What a launcher remembers: calls by signature, and families of calls."""

    def __init__(self, launcher: Any, by_row: Sequence[int]) -> None:
        """Remember nothing yet; `by_row` are the places of arguments with rows."""
        self.launcher = launcher
        self.by_row = by_row
        self.calls: dict[tuple, Repeat] = {}
        self.once: set[int] = set()  # hashes: thousands of keys slow collections down
        self.families: dict[Any, Family] = {}

    def learn(self, key: tuple, addresses: list, inputs: Any, out: Any) -> Any:
        """Call the launcher and remember what it did, if that was one plain launch.

        A signature is remembered at its second call: one of many that come once must
        not cost more. Its family, if it has one, tells what a new one comes to.
        """
        alike: tuple | None = None
        leading: tuple[int, ...] = ()
        if out is None:
            alike, leading = but_for_rows(key, inputs, self.by_row)
        seen = self.met(key)
        if not seen:
            family = self.families.get(alike)
            if family and family.device.index == current_device() and not hooked():
                returned = family.repeat(leading, addresses)
                if returned is not None:
                    return returned
        returned, done = recorded(self.launcher, inputs, out)
        if done is None:
            return returned
        launch, found, tiles = done
        if seen:
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            replay = replaying(launch, found)
            self.calls[key] = repeating(
                launch, replay, inputs, several(returned), given=out is not None
            )
        if alike is not None:
            if alike not in self.families:
                if len(self.families) >= MOST_FAMILIES:
                    self.families.clear()
                self.families[alike] = Family(
                    launch, several(returned), self.by_row, tiles()
                )
            self.families[alike].keep(launch, found)
        return returned

    def met(self, key: tuple) -> bool:
        """Return whether a signature came before, and note that it did."""
        mark = hash(key)
        if mark in self.once:
            return True
        if len(self.once) >= MOST_CALLS:
            self.once.clear()
        self.once.add(mark)
        return False


def recorded(launcher: Any, inputs: Any, out: Any) -> tuple[Any, tuple | None]:
    """Return what a launcher returns, and what it did if that can be repeated.

    That is one launch of its arguments, what repeats it, and the tiles that serve.
    """
    RECORD.launches = []
    try:
        returned = launcher(*inputs, out=out)
        launches, tiles = RECORD.launches, RECORD.tiles
    finally:
        RECORD.launches = RECORD.tiles = None
    if len(launches) != 1 or launches[0][1] is None:
        return returned, None
    launch, found = launches[0]
    passed = [float(one) if isinstance(one, int) else one for one in inputs]
    if launch.addresses != addresses_of((*passed, *several(returned))):
        return returned, None
    return returned, (launch, found, tiles)


def repeating(
    launch: Launch,
    replay: Replay,
    inputs: Sequence[Any],
    returned: Sequence[torch.Tensor],
    given: bool,
) -> Repeat:
    """Return what repeats a launch, into `out` or new results."""
    results = new_results(returned)

    def repeat(addresses: list[int | float], out: Any = None) -> Any:
        if out is None:
            out = results(addresses)
        else:
            for one in several(out):
                if not one.is_inference():  # which has no version
                    torch.autograd.graph.increment_version(one)
        replay(addresses)
        return out

    device = launch.device.index
    if given:
        return Repeat(device, repeat, None, overlaps=overlaps(inputs, returned))
    learning = any(getattr(one, "requires_grad", False) for one in inputs)
    return Repeat(device, repeat, alike(inputs), learning)


def new_results(returned: Sequence[torch.Tensor]) -> Callable[[list], Any]:
    """Return a function that makes tensors like those, and appends their addresses."""
    # Plain tuples, which torch parses in half the time that a torch.Size takes.
    first, *others = [(tuple(one.shape), one.stride(), one.dtype) for one in returned]

    def results(addresses: list) -> Any:
        made = empty(*first)
        addresses.append(made.data_ptr())
        if others:
            made = (made, *(empty(*one) for one in others))
            addresses += [one.data_ptr() for one in made[1:]]
        return made

    return results


# What torch.cuda.current_device asks once it has seen that CUDA is initialized.
current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
