"""One launcher on the stand-in: a call made remembered and afresh, and compared.

Raises `Wrong` for what a launcher does wrong, with the call and what was launched.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.runtime import JITFunction
from triton.runtime._allocation import set_profile_allocator

from gemmgen.render.names.parts import RUNTIME
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import numbers
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, several
from gemmgen.verification.launches.calls import Call, Facts, call_of
from gemmgen.verification.launches.oracle import (
    Expected,
    check_launch,
    check_matrices,
    check_returned,
)
from gemmgen.verification.stand_in.driver import Driver, Launched
from gemmgen.verification.stand_in.executed import run
from gemmgen.verification.stand_in.record import difference
from gemmgen.verification.stand_in.workspaces import Workspaces

_CAPTURING = 1000
"""What is added to a stream's handle while it is captured."""
_REFUSALS = (ValueError, TypeError)
_KEPT, _COMPILED = ("WORKSPACES",), ("COMPILED",)
"""What the modules that launchers share keep between calls, beside their caches."""


@dataclass
class Made:
    """What became of a call: what it returned or raised, and what it launched."""

    returned: Any
    launches: list[Launched]
    hooks: int
    unmarked: bool = False
    """Whether `out` has the version that it had."""

    @property
    def told(self) -> str:
        """What it raised, if it did."""
        return repr(self.returned) if self.refused else "a result"

    @property
    def refused(self) -> bool:
        """Whether it raised."""
        return isinstance(self.returned, BaseException)

    @property
    def through_triton(self) -> bool:
        """Whether a launch of it went through Triton's own entry."""
        return any(one.through_triton for one in self.launches)


@dataclass
class Bench:
    """A launcher under test, and what was seen of it."""

    plan: Plan
    module: ModuleType
    driver: Driver
    launcher: Callable[..., Any] = field(init=False)
    workspaces: Workspaces = field(init=False)

    @property
    def usual(self) -> Facts:
        """A call of which nothing is unusual."""
        return Facts(numbers=(1.0,) * len(numbers(self.plan)))

    @cached_property
    def own(self) -> list[ModuleType]:
        """The launcher's module and the others of its kernel."""
        return subject.parts(self.plan, self.module)

    @cached_property
    def shared(self) -> list[ModuleType]:
        """The modules that the folder's launchers share."""
        return shared_by(self.module)

    @cached_property
    def emptied(self) -> tuple[list[Any], list[Any], list[Any]]:
        """What `renew` empties of these modules: caches, containers, kernels."""
        named = [x for one in (*self.own, *self.shared) for x in vars(one).items()]
        values = [value for _, value in named]
        caches = [value for value in values if hasattr(value, "cache_clear")]
        kept = [value for name, value in named if name in (*_KEPT, *_COMPILED)]
        return caches, kept, [one for one in values if isinstance(one, JITFunction)]

    def limited(self, choices: dict[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
        """What is tried of all that a call can be: all."""
        return choices

    def remembered(self, launcher: Callable[..., Any]) -> Callable[..., Any]:
        """A launcher that remembers, as the folder's do."""
        return subject.remembering(self.module, launcher)

    @property
    def parted(self) -> list[Any]:
        """A tile whose K comes in parts, read by pointers, if there is one."""
        tiles = getattr(self.module, "TILES", ())
        kinds = [(one, SCHEDULES[one.schedule]) for one in tiles if one.split_k != 1]
        return [
            one for one, kind in kinds if not (kind.described or kind.memory_bound)
        ][:1]

    @property
    def plain(self) -> Callable[..., Any]:
        """The launcher that remembers nothing."""
        return getattr(self.module, self.plan.name).__wrapped__  # type: ignore[no-any-return]

    def renew(self, scratch: tuple[int, int] = (0, 0), anew: bool = True) -> None:
        """Forget calls and graphs; if `anew`, also what is found out or compiled once.

        Kernels ask for bytes of `scratch`, and of it for profiling.
        """
        caches, kept, kernels = self.emptied
        for one in kept:
            one.clear()
        for one in caches if anew else ():
            one.cache_clear()
        if anew or scratch != self.driver.scratch:
            self.driver.scratch = scratch
            for one in kernels:
                one.device_caches.clear()
        self.driver.launches.clear()
        self.driver.gpus.drop_graphs()
        self.workspaces = Workspaces(self.driver)
        self.driver.on_launch = self.observe
        self.launcher = self.remembered(self.plain)

    def call(self, facts: Facts) -> Call:
        """New tensors for a call."""
        return call_of(self.plan, self.driver.gpus, facts)

    @contextmanager
    def only(self, tile: Any) -> Iterator[None]:
        """With one tile of the table, which serves every call; nothing remembered.

        One of a cluster under any Triton, since nothing is compiled.
        """
        row = tile._replace(**subject.ANYWHERE)
        self.launcher = self.remembered(self.plain)
        clusters = patch.object(subject.runtime(self.module, "table"), "CLUSTERS", True)
        with clusters, patch.object(self.module.LAUNCHES, "tiles", (row,)):
            yield

    def check(self, facts: Facts, call: Call, alive: list[Any]) -> Made:
        """Make a call remembered, then afresh, and compare."""
        made = self.perform(self.launcher, facts, call)
        self.judge(facts, call, made, alive)
        return made

    def judge(self, facts: Facts, call: Call, made: Made, alive: list[Any]) -> None:
        """Compare what became of a call with what it comes to afresh."""
        try:
            with unknowing(self.shared):
                fresh = self.perform(self.plain, facts, call)
            for one in (made, fresh):
                self.check_one(facts, call, one, alive)
            self.compare(facts, made, fresh)
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n{facts}") from wrong

    def check_one(self, facts: Facts, call: Call, made: Made, alive: list[Any]) -> None:
        """Hold one call against what its tensors ask for."""
        if made.refused:
            if not isinstance(made.returned, _REFUSALS):
                raise Wrong(f"raises {made.returned!r}") from made.returned
            if not str(made.returned).startswith(f"{self.plan.name}: "):
                raise Wrong(f"refuses a call without its name: {made.told}")
            return
        # An operand whose memory is also the result's is made anew, and not negated.
        if facts.odd or facts.astray or any(one.is_neg() for one in call.tensors):
            raise Wrong("a tensor of another dtype, device or sign is not refused")
        check_returned(self.plan, facts, call, made.returned, alive)
        if facts.hooked and made.hooks < len(made.launches):
            raise Wrong(f"{made.hooks} calls of hooks by {len(made.launches)} launches")
        if made.unmarked:
            raise Wrong("out is written and its version stays")
        results = several(made.returned)
        tensors = {k: v for k, v in call.inputs.items() if isinstance(v, torch.Tensor)}
        names = [one.name for one in self.plan.results]
        tensors |= dict(zip(names, results, strict=True))
        numbers = {k: v for k, v in call.inputs.items() if k not in tensors}
        expected = Expected(facts.device, stream_of(facts), tensors, numbers)
        for launched in made.launches[:1]:
            check_launch(self.plan, expected, launched)
            if results[0].dim() == 2:
                check_matrices(self.plan, tensors, launched)

    def observe(self, launched: Launched) -> None:
        """Look at a launch while it is made; run one by which a launcher tries its."""
        if self.tries(launched):
            run(self.driver.gpus, launched)
        else:
            self.workspaces.check(launched)

    def compare(self, facts: Facts, made: Made, fresh: Made) -> None:
        """Raise `Wrong` unless a call does what it does afresh."""
        if made.refused or fresh.refused:
            if made.told != fresh.told:
                raise Wrong(f"{made.told}, afresh {fresh.told}")
        elif len(made.launches) != len(fresh.launches):
            raise Wrong(f"{len(made.launches)} launches, afresh {len(fresh.launches)}")
        ours = [one.name for one in self.plan.results] if facts.out == "made" else []
        for one, other in zip(made.launches, fresh.launches, strict=False):
            difference(one, other, ours)

    def perform(self, launcher: Callable[..., Any], facts: Facts, call: Call) -> Made:
        """Call, with the thread's devices and streams as they are to be."""
        positional, given = call.arguments(facts.keywords)
        thread, start = threading.get_ident(), len(self.driver.launches)
        hooks: list[Any] = []
        versions = [one._version for one in _versioned(call)]
        for set_one in (triton.set_allocator, set_profile_allocator):
            set_one(lambda size, align, stream: 512)
        with self.surroundings(facts, hooks):
            try:
                returned = launcher(*positional, **given)
            except Exception as error:
                returned = error
        launches = [
            one for one in self.driver.launches[start:]
            if one.thread == thread and not self.tries(one)
        ]  # fmt: skip
        unmarked = versions == [one._version for one in _versioned(call)] != []
        return Made(returned, launches, len(hooks), unmarked)

    def tries(self, launched: Launched) -> bool:
        """Whether a launch is one by which launchers try theirs."""
        kernel = launched.function.compiled.src.fn.fn
        return kernel.__module__ in [one.__name__ for one in self.shared]

    @contextmanager
    def surroundings(self, facts: Facts, hooks: list[Any]) -> Iterator[None]:
        """The current device, stream, graph and hooks of a call."""
        driver, runtime = self.driver, triton.knobs.runtime
        with ExitStack() as stack:
            stream = stream_of(facts)
            stack.enter_context(driver.stream(facts.device, stream))
            if facts.captured:
                stack.enter_context(driver.capture(facts.device, stream))
            elif facts.current != facts.device:
                stack.enter_context(driver.stream(facts.current, 0))
            stack.enter_context(torch.set_grad_enabled(facts.gradient[1]))
            if facts.hooked:
                chain = getattr(runtime, f"launch_{facts.hooked}_hook")
                chain.add(hooks.append)
                stack.callback(chain.remove, hooks.append)
            yield


def _versioned(call: Call) -> list[torch.Tensor]:
    """Of the results that are given, those that have a version."""
    return [one for one in call.outputs or () if not one.is_inference()]


def shared_by(module: ModuleType) -> list[ModuleType]:
    """The modules that a kernel's folder shares."""
    folder = f"{subject.package_of(module)}.{RUNTIME}."
    return [one for name, one in sys.modules.items() if name.startswith(folder)]


@contextmanager
def unknowing(shared: Sequence[ModuleType]) -> Iterator[None]:
    """Without any kernel that these modules know to be compiled."""
    named = [vars(one) for one in shared]
    known = [one[name] for one in named for name in _COMPILED if name in one]
    before = [dict(one) for one in known]
    for one in known:
        one.clear()
    try:
        yield
    finally:
        for one, items in zip(known, before, strict=True):
            one.clear()
            one.update(items)


def stream_of(facts: Facts) -> int:
    """The stream that a call's kernels are to run on."""
    return facts.stream + _CAPTURING * facts.captured
