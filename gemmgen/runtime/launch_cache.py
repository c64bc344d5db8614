"""Launchers that remember their calls.

One that is called again with tensors of the same signature decides nothing anew: it
makes its results and repeats its launch for the new addresses. What it decides for
another number of rows comes from its family. What torch has to see it is handed: where
the launcher is an operator too, its own; else a launcher refuses it.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

from .families import Family, Latest, Warmed, warm_up
from .launch import addresses_of
from .repeats import (
    Repeat,
    but_for_rows,
    harmless,
    in_order,
    looked_at,
    plain,
    repeating,
    several,
)
from .replay import HOOKS, hooked
from .support import (
    DUAL,
    INTERPRETED,
    Bounded,
    autocast,
    moded,
    overridden,
    profiled,
    special,
    transformed,
    watched,
)
from .table import RECORD

MOST_FAMILIES = 1024  # that a launcher remembers
MOST_CALLS = 1024  # and calls that write what they are given

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Cached(Protocol[P, R]):
    """A launcher that remembers its calls."""

    by_row: tuple[str, ...]
    memory: "Memory"
    unseen: Callable[..., Any]
    """The same, of which torch need not know."""

    def __call__(self, *inputs: P.args, **named: P.kwargs) -> R:
        """Launch."""

    def warmup(self, *inputs: Any, **named: Any) -> list[Warmed]:
        """Run to compile all that calls like this one need, of as many rows or fewer.

        Returns the tiles, each with the least number of rows that takes it.
        """


def launch_cache(
    *by_row: str, gradient: Any = None
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Return what makes a launcher remember what it decided for a signature.

    The arguments `by_row`, the first of them a matrix, have a row, or a number, for
    each row of the results: calls that differ in rows alone are decided together. A
    call of which somebody asks the `gradient`, a `Gradient`, goes through autograd.
    """

    def cached(launcher: Callable[P, R]) -> Cached[P, R]:
        *names, _ = inspect.signature(launcher).parameters
        memory = Memory(launcher, names, by_row, gradient)
        kind = interpreting if INTERPRETED else calling
        made: Any = functools.wraps(launcher)(kind(launcher, names, memory, True))
        made.unseen = kind(launcher, names, memory, False)
        made.by_row, made.memory, made.gradient = by_row, memory, gradient
        made.warmup = functools.partial(memory.warm_up, made)
        return made

    return cached


def calling(
    launcher: Callable[..., Any], names: Sequence[str], memory: "Memory", seen: bool
) -> Callable[..., Any]:
    """Return a function that calls a launcher, or repeats what it did before.

    One that is `seen` hands what torch has to see to `memory.handed`.
    """
    count, latest = len(names), memory.latest

    def remembering(*inputs: Any, out: Any = None, **named: Any) -> Any:
        if seen and (
            tracing()
            or overridden(inputs)
            or DUAL._current_level >= 0
            or (out is None and profiled())
        ):
            return memory.handed(*inputs, out=out, **named)
        if named or len(inputs) != count:
            ordered = in_order(names, inputs, named)
            if ordered is None:  # the launcher says what is wrong
                return launcher(*inputs, out=out, **named)
            inputs = ordered
        if out is None:
            family, addresses = latest.found(inputs)
            told = HOOKS.launch_enter_hook.calls or HOOKS.launch_exit_hook.calls
            if family and family.device == current_device() and not told:
                leading = family.leading(inputs)
                again = family.repeats.get(leading)  # here, for a call less shows
                if again:
                    return again(addresses)
                if leading is not None:
                    returned = family.call(leading, addresses)
                    if returned is not None:
                        return returned
        return memory.otherwise(inputs, out, seen and remembering)

    return remembering


def interpreting(
    launcher: Callable[..., Any], names: Sequence[str], memory: "Memory", seen: bool
) -> Callable[..., Any]:
    """Return what hands over as `calling` does, and remembers nothing."""

    def handing(*inputs: Any, out: Any = None, **named: Any) -> Any:
        every = (*inputs, *named.values())
        if not (tracing() or watched(every) or (out is None and profiled())):
            return launcher(*inputs, out=out, **named)
        ordered = None if tracing() else in_order(names, inputs, named)
        if ordered is None:
            return memory.handed(*inputs, out=out, **named)
        return memory.hand(handing, ordered, out)

    return handing if seen else launcher


class Memory:
    """What a launcher remembers: families of calls, and calls into given results."""

    def __init__(
        self,
        launcher: Any,
        names: Sequence[str],
        by_row: Sequence[str],
        gradient: Any,
    ) -> None:
        """Remember nothing yet; `by_row` are the arguments with rows."""
        self.launcher = launcher
        self.handed = launcher  # its operator's way in, where it is one
        self.names, self.gradient = names, gradient
        self.by_row = [names.index(name) for name in by_row]
        self.calls: dict[tuple, Repeat] = Bounded(MOST_CALLS)
        # By hash: thousands of keys slow collections down.
        self.once: dict[int, None] = Bounded(MOST_CALLS)
        self.families: dict[Any, Family] = Bounded(MOST_FAMILIES)
        self.latest = Latest()

    def hand(self, call: Callable[..., Any], inputs: Sequence[Any], out: Any) -> Any:
        """Hand over a call: to autograd if a gradient is all that torch has to see."""
        if self.gradient and not special(inputs) and self.gradient.asked(inputs):
            return self.gradient.call(call, self.names, inputs, out)
        return self.handed(*inputs, out=out)

    def otherwise(self, inputs: Sequence[Any], out: Any, seen: Any) -> Any:
        """Make a call of none of the latest families; `seen`, if torch may be told."""
        graded = seen and out is None and torch.is_grad_enabled()
        gradient = self.gradient if graded else None
        if gradient and (learned := self.learned(gradient.forward, inputs)):
            return gradient.repeat(learned, inputs)
        try:
            key, addresses = looked_at(inputs, out)
        except (AttributeError, OverflowError, RuntimeError, TypeError):
            key = ()  # no plain tensors: the launcher says which
        if seen and (not key or moded() or autocast() or transformed()):
            return self.hand(seen, inputs, out)
        if not key:
            return self.launcher(*inputs, out=out)
        if out is None:
            return self.made(key, addresses, inputs)
        repeat = self.calls.get(key)
        if repeat is None or repeat.device != current_device() or hooked():
            return self.given(key, inputs, out)
        if not harmless(repeat.overlaps, addresses):
            return self.launcher(*inputs, out=out)
        return repeat.launch(addresses, out)

    def learned(self, forward: Any, inputs: Sequence[Any]) -> Any:
        """Return what repeats a call that gradients alone are asked of, if known."""
        latest = forward.memory.latest if forward else self.latest
        family, addresses = latest.found(inputs, learning=True)
        if family is None or family.device != current_device() or hooked():
            return None
        if moded() or autocast() or transformed():
            return None
        again = family.repeats.get(family.leading(inputs))
        return again and (lambda *_: again(addresses))

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
            by_row = () if leading is None else self.by_row
            family = Family(launch, inputs, several(returned), by_row, tiles())
            self.families[like] = family
        family.keep(launch, compiled)
        return returned

    def warm_up(
        self, call: Callable[..., Any], *given: Any, **named: Any
    ) -> list[Warmed]:
        """Call with such inputs, and with fewer rows of them, so that all is compiled.

        Nothing is where kernels are interpreted, or take no part in `families`.
        """
        ordered = in_order(self.names, given, named)
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
        family = self.families.get(but_for_rows(key, inputs, self.by_row)[0])
        return warm_up(call, family, inputs) if family else []

    def given(self, key: tuple, inputs: Any, out: Any) -> Any:
        """Call the launcher and remember what it did at its second such call."""
        returned, done = recorded(self.launcher, inputs, out)
        if done is not None and self.met(key):
            launch, compiled, _ = done
            self.calls[key] = repeating(launch, compiled, inputs, several(returned))
        return returned

    def met(self, key: tuple) -> bool:
        """Return whether a signature came before, and note that it did."""
        mark = hash(key)
        if mark in self.once:
            return True
        self.once[mark] = None
        return False


def recorded(launcher: Any, inputs: Any, out: Any) -> tuple[Any, tuple | None]:
    """Return a launcher's results, its launch, what repeats it and tiles, if any."""
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


tracing = torch.compiler.is_dynamo_compiling

# What torch.cuda.current_device asks once it has seen that CUDA is initialized.
current_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
