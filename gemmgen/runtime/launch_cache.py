"""Launchers that remember their calls.

One that is called again with tensors of the same signature decides nothing anew: it
makes its results and repeats its launch for the new addresses. What it decides for
another number of rows comes from its family.
"""

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

from .checks import LARGEST, written
from .families import Family, Latest, Warmed, warm_up
from .launch import Launch, addresses_of
from .packed import Compiled, likenesses
from .repeats import Repeat, but_for_rows, harmless, overlaps
from .replay import hooked, replaying
from .support import INTERPRETED
from .table import RECORD

MOST_FAMILIES = 1024  # that a launcher remembers
MOST_CALLS = 1024  # and calls that write what they are given
PLAIN = (torch.Tensor, torch.nn.Parameter)  # types whose memory is what it seems

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Cached(Protocol[P, R]):
    """A launcher that remembers its calls."""

    by_row: tuple[str, ...]

    def __call__(self, *inputs: P.args, **named: P.kwargs) -> R:
        """Launch."""

    def warmup(self, *inputs: Any, **named: Any) -> list[Warmed]:
        """Compile all that calls need which are like this one, and have no more rows.

        Returns the tiles, each with the least number of rows that takes it. The kernels
        run, and their results are dropped.
        """


def launch_cache(*by_row: str) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Return what makes a launcher remember what it decided for a signature.

    The arguments `by_row`, the first of them a matrix, have a row, or a number, for
    each row of the results: calls that differ in rows alone are decided together.
    """

    def cached(launcher: Callable[P, R]) -> Cached[P, R]:
        *names, _ = inspect.signature(launcher).parameters
        memory = Memory(launcher, [names.index(name) for name in by_row])
        made: Any = launcher
        if not INTERPRETED:
            made = functools.wraps(launcher)(calling(launcher, names, memory))
        made.by_row = by_row
        made.warmup = functools.partial(memory.warm_up, made, names)
        return made

    return cached


def calling(
    launcher: Callable[..., Any], names: Sequence[str], memory: "Memory"
) -> Callable[..., Any]:
    """Return a function that calls a launcher, or repeats what it did before."""
    count, calls, latest = len(names), memory.calls, memory.latest

    def remembering(*inputs: Any, out: Any = None, **named: Any) -> Any:
        if named or len(inputs) != count:
            ordered = in_order(names, inputs, named)
            if ordered is None:  # the launcher says what is wrong
                return launcher(*inputs, out=out, **named)
            inputs = ordered
        if out is None:
            family, addresses = latest.found(inputs)
            if family and family.device == current_device() and not hooked():
                leading = family.leading(inputs)
                again = family.repeats.get(leading)  # here, for a call less shows
                if again:
                    return again(addresses)
                if leading is not None:
                    returned = family.call(leading, addresses)
                    if returned is not None:
                        return returned
        try:
            key, addresses = looked_at(inputs, out)
        except (AttributeError, OverflowError, RuntimeError, TypeError):
            return launcher(*inputs, out=out)  # no plain tensors: it says which
        if out is None:
            return memory.made(key, addresses, inputs)
        repeat = calls.get(key)
        if repeat is None or repeat.device != current_device() or hooked():
            return memory.given(key, inputs, out)
        if not harmless(repeat.overlaps, addresses):
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

    In one pass, for every call takes it. First come what `BEFORE_ALL` counts, then of
    each tensor what `OF_A_TENSOR` counts. Of a number the sign is enough: else
    `Arguments` would find 0.0 for -0.0. One beyond fp32 is the launcher's to judge.
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
            if not -LARGEST <= number <= LARGEST:
                raise OverflowError
            key.append(math.copysign(1.0, number))
            addresses.append(number)
        else:
            raise TypeError
    return tuple(key), addresses


def plain(one: Any) -> Any:
    """Return a number of any type as a float, but for what launchers refuse."""
    number = isinstance(one, numbers.Real) and not isinstance(one, bool)
    return float(one) if number else one


def several(out: Any) -> Sequence[Any]:
    """Return the results as a sequence, also if there is one."""
    return out if isinstance(out, (tuple, list)) else (out,)


class Memory:
    """What a launcher remembers: families of calls, and calls into given results."""

    def __init__(self, launcher: Any, by_row: Sequence[int]) -> None:
        """Remember nothing yet; `by_row` are the places of arguments with rows."""
        self.launcher = launcher
        self.by_row = by_row
        self.calls: dict[tuple, Repeat] = {}
        self.once: set[int] = set()  # hashes: thousands of keys slow collections down
        self.families: dict[Any, Family] = {}
        self.latest = Latest()

    def made(self, key: tuple, addresses: list, inputs: Any) -> Any:
        """Call the launcher, or do what its family tells, and remember what it did.

        That is what comes to one plain launch. What has no family but itself is
        remembered at its second call: one of many that come once must not cost more.
        """
        like, leading = but_for_rows(key, inputs, self.by_row)
        family = self.families.get(like)
        if family and family.device == current_device() and not hooked():
            self.latest.keep(family)
            found = family.only if leading is None else leading
            returned = family.call(found, addresses)
            if returned is not None:
                return returned
        returned, done = recorded(self.launcher, inputs, None)
        if done is None:
            return returned
        launch, compiled, tiles = done
        if family is None:
            if leading is None and not self.met(like):
                return returned
            if len(self.families) >= MOST_FAMILIES:
                self.families.clear()
            by_row = () if leading is None else self.by_row
            family = Family(launch, inputs, several(returned), by_row, tiles())
            self.families[like] = family
        family.keep(launch, compiled)
        return returned

    def warm_up(
        self, call: Callable[..., Any], names: Sequence[str], *given: Any, **named: Any
    ) -> list[Warmed]:
        """Call with such inputs, and with fewer rows of them, so that all is compiled.

        Nothing is where kernels are interpreted, or take no part in `families`.
        """
        ordered = in_order(names, given, named)
        if ordered is None:  # the launcher says what is wrong
            call(*given, **named)
            return []
        inputs = [plain(one) for one in ordered]
        for _ in range(2):  # some are remembered at their second call
            call(*inputs)
        if INTERPRETED:
            return []
        try:
            key, _ = looked_at(inputs)
        except (AttributeError, OverflowError, RuntimeError, TypeError):
            return []  # such calls are never remembered
        like, _ = but_for_rows(key, inputs, self.by_row)
        family = self.families.get(like)
        return warm_up(call, family, inputs) if family else []

    def given(self, key: tuple, inputs: Any, out: Any) -> Any:
        """Call the launcher and remember what it did at its second such call."""
        returned, done = recorded(self.launcher, inputs, out)
        if done is not None and self.met(key):
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            launch, compiled, _ = done
            self.calls[key] = repeating(launch, compiled, inputs, several(returned))
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
    if launch.addresses != addresses_of((*inputs, *several(returned))):
        return returned, None
    return returned, (launch, found, tiles)


def repeating(
    launch: Launch,
    compiled: Compiled,
    inputs: Sequence[Any],
    results: Sequence[torch.Tensor],
) -> Repeat:
    """Return what repeats a launch into other results."""
    replay = replaying(launch, compiled, likenesses(launch, compiled))
    one_alone = len(results) == 1

    def repeat(addresses: list[int | float], out: Any) -> Any:
        for one in several(out):
            written(one)
        replay(addresses)
        return out if one_alone else tuple(out)

    return Repeat(launch.device.index, repeat, overlaps(inputs, results))


# What torch.cuda.current_device asks once it has seen that CUDA is initialized.
current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
