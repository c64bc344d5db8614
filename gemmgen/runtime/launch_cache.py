"""The launch cache: a launcher repeats the launches of earlier calls.

A call whose signature is known allocates its results and repeats the launch for the new
addresses; of another number of rows, it chooses its tile in its `Family`. Calls that
torch has to see go to autograd or to the launcher's operator.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import torch

from .families import Family, RecentFamilies, Warmed, warm_up
from .launch import addresses_of
from .repeats import (
    NO_KEY,
    Repeat,
    call_key,
    in_order,
    keep_apart,
    plain,
    repeat_of,
    several,
    without_rows,
)
from .replay import HOOKS, hooked
from .support import (
    DUAL,
    INTERPRETED,
    Bounded,
    current_device,
    has_override,
    intercepted,
    must_dispatch,
    needs_gradient,
    profiling,
    tracing,
    watching,
)
from .table import RECORD

MOST_FAMILIES = 1024
MOST_CALLS = 1024  # with `out`

Launcher = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Cached(Protocol[P, R]):
    """A launcher with a launch cache."""

    by_row: tuple[str, ...]
    cache: "LaunchCache"
    untracked: Launcher
    """The launcher for calls that torch has seen, or need not see."""

    def __call__(self, *inputs: P.args, **named: P.kwargs) -> R:
        """Launch."""

    def warmup(self, *inputs: Any, **named: Any) -> list[Warmed]:
        """Compile all that calls like this one need that have as many rows or fewer.

        Returns the tiles, each with the least number of rows that uses it.
        """


def launch_cache(
    *by_row: str, gradient: Any = None
) -> Callable[[Callable[P, R]], Cached[P, R]]:
    """Return a decorator that gives a launcher a launch cache.

    The arguments `by_row`, the first of them a matrix, have a row, or a number, for
    each row of the results: calls that differ only in these rows are one family. With a
    `Gradient`, calls that need a gradient go through autograd.
    """

    def cached(launcher: Callable[P, R]) -> Cached[P, R]:
        *names, _ = inspect.signature(launcher).parameters
        cache = LaunchCache(launcher, names, by_row, gradient)
        wrap = interpreted_call if INTERPRETED else cached_call
        call: Any = functools.wraps(launcher)(wrap(launcher, names, cache, True))
        call.untracked = wrap(launcher, names, cache, False)
        call.by_row, call.cache, call.gradient = by_row, cache, gradient
        call.warmup = functools.partial(cache.warm_up, call)
        return call

    return cached


def cached_call(
    launcher: Launcher, names: Sequence[str], cache: "LaunchCache", tracked: bool
) -> Launcher:
    """Return a function that calls a launcher, or repeats an earlier launch.

    If it is `tracked`, it makes calls that torch has to see by `cache.as_operator`.
    """
    count, recent = len(names), cache.recent

    def call(*inputs: Any, out: Any = None, **named: Any) -> Any:
        if tracked and (
            tracing()
            or has_override(inputs)
            or DUAL._current_level >= 0
            or (out is None and profiling())
        ):
            return cache.as_operator(*inputs, out=out, **named)
        if named or len(inputs) != count:
            ordered = in_order(names, inputs, named)
            if ordered is None:  # the launcher says what is wrong
                return launcher(*inputs, out=out, **named)
            inputs = ordered
        if out is None:
            family, addresses = recent.found(inputs)
            hooks = HOOKS.launch_enter_hook.calls or HOOKS.launch_exit_hook.calls
            if family and family.device == current_device() and not hooks:
                leading = family.leading(inputs)
                repeat = family.repeats.get(leading)  # inlined: a call would show
                if repeat:
                    return repeat(addresses)
                if leading is not None:
                    results = family.call(leading, addresses)
                    if results is not None:
                        return results
        return cache.look_up(inputs, out, tracked and call)

    return call


def interpreted_call(
    launcher: Launcher, names: Sequence[str], cache: "LaunchCache", tracked: bool
) -> Launcher:
    """Return a function that does as `cached_call`, but has no cache."""

    def call(*inputs: Any, out: Any = None, **named: Any) -> Any:
        every = (*inputs, *named.values())
        if not (tracing() or must_dispatch(every) or (out is None and profiling())):
            return launcher(*inputs, out=out, **named)
        ordered = None if tracing() else in_order(names, inputs, named)
        if ordered is None:
            return cache.as_operator(*inputs, out=out, **named)
        return cache.dispatch(call, ordered, out)

    return call if tracked else launcher


class LaunchCache:
    """A launcher's families of calls, and its calls into given results."""

    def __init__(
        self,
        launcher: Any,
        names: Sequence[str],
        by_row: Sequence[str],
        gradient: Any,
    ) -> None:
        """Start empty; the parameters are those of `launch_cache`."""
        self.launcher = launcher
        self.as_operator = launcher  # `Operator.call`, once there is one
        self.names, self.gradient = names, gradient
        self.by_row = [names.index(name) for name in by_row]
        self.calls: dict[tuple, Repeat] = Bounded(MOST_CALLS)
        # Hashes of keys, since thousands of keys would slow down garbage collection.
        self.once: dict[int, None] = Bounded(MOST_CALLS)
        self.families: dict[Any, Family] = Bounded(MOST_FAMILIES)
        self.recent = RecentFamilies()

    def dispatch(self, call: Launcher, inputs: Sequence[Any], out: Any) -> Any:
        """Make a call by autograd if it only needs a gradient, else as an operator."""
        if self.gradient and not intercepted(inputs) and needs_gradient(inputs):
            return self.gradient.call(call, self.names, inputs, out)
        return self.as_operator(*inputs, out=out)

    def look_up(self, inputs: Sequence[Any], out: Any, tracked: Any) -> Any:
        """Make a call of no recent family; `tracked` is the launcher or False."""
        if tracked and watching():  # a trace breaks where a parameter's shape is read
            return self.dispatch(tracked, inputs, out)
        with_grad = out is None and torch.is_grad_enabled()
        gradient = self.gradient if with_grad else None
        if gradient and (again := self.gradient_repeat(gradient.forward, inputs)):
            return gradient.repeat(again, inputs)
        try:
            key, addresses = call_key(inputs, out)
        except NO_KEY:
            key = ()  # not plain tensors: the launcher says what is wrong
        if not key:
            if tracked:
                return self.dispatch(tracked, inputs, out)
            return self.launcher(*inputs, out=out)
        if out is None:
            return self.call_new(key, addresses, inputs)
        repeat = self.calls.get(key)
        if repeat is None or repeat.device != current_device() or hooked():
            return self.call_into(key, inputs, out)
        if not keep_apart(repeat.overlaps, addresses):
            return self.launcher(*inputs, out=out)
        return repeat.launch(addresses, out)

    def gradient_repeat(self, forward: Any, inputs: Sequence[Any]) -> Any:
        """Return the repeat of a call that torch has to see for gradients only."""
        recent = forward.cache.recent if forward else self.recent
        family, addresses = recent.found(inputs, differentiated=True)
        if family is None or family.device != current_device() or hooked():
            return None
        repeat = family.repeats.get(family.leading(inputs))
        return repeat and (lambda *_: repeat(addresses))

    def call_new(self, key: tuple, addresses: list, inputs: Any) -> Any:
        """Return new results, by the family of the call or by the launcher.

        A launcher's launch is kept in the family. A call without rows has a family from
        its second time on, since many come only once.
        """
        key, leading = without_rows(key, inputs, self.by_row)
        family = self.families.get(key)
        if family and family.device == current_device() and not hooked():
            self.recent.keep(family)
            sizes = family.first_leading if leading is None else leading
            results = family.call(sizes, addresses)
            if results is not None:
                return results
        results, record = record_call(self.launcher, inputs, None)
        if record is None:
            return results
        launch, compiled, tiles = record
        if family is None:
            if leading is None and not self.seen_before(key):
                return results
            by_row = () if leading is None else self.by_row
            family = Family(launch, inputs, several(results), by_row, tiles())
            self.families[key] = family
        family.keep(launch, compiled)
        return results

    def warm_up(self, call: Launcher, *given: Any, **named: Any) -> list[Warmed]:
        """Call with these inputs and with fewer rows of them, to compile all kernels.

        Returns nothing where kernels are interpreted or calls have no family.
        """
        ordered = in_order(self.names, given, named)
        if ordered is None:  # the launcher says what is wrong
            call(*given, **named)
            return []
        inputs = [plain(one) for one in ordered]
        for _ in range(2):  # some have a family from their second time on
            call(*inputs)
        if INTERPRETED:
            return []
        try:
            key, _ = call_key(inputs)
        except NO_KEY:
            return []  # such calls have no family
        family = self.families.get(without_rows(key, inputs, self.by_row)[0])
        return warm_up(call, family, inputs) if family else []

    def call_into(self, key: tuple, inputs: Any, out: Any) -> Any:
        """Call the launcher with `out`; keep the repeat of the second such call."""
        results, record = record_call(self.launcher, inputs, out)
        if record is not None and self.seen_before(key):
            launch, compiled, _ = record
            self.calls[key] = repeat_of(launch, compiled, inputs, several(results))
        return results

    def seen_before(self, key: tuple) -> bool:
        """Return whether a signature came before, and note it."""
        mark = hash(key)
        if mark in self.once:
            return True
        self.once[mark] = None
        return False


def record_call(launcher: Any, inputs: Any, out: Any) -> tuple[Any, tuple | None]:
    """Call a launcher; return its results, and a launch that repeats the call.

    That is a `Launch`, its `Compiled` kernel, and a function of the tiles that serve
    such calls; None if the call took more than one plain launch.
    """
    RECORD.launches = []
    try:
        results = launcher(*inputs, out=out)
        launches, tiles = RECORD.launches, RECORD.tiles
    finally:
        RECORD.launches = RECORD.tiles = None
    if len(launches) != 1 or launches[0][1] is None:
        return results, None
    launch, found = launches[0]
    if launch.addresses != addresses_of((*inputs, *several(results))):
        return results, None
    return results, (launch, found, tiles)
