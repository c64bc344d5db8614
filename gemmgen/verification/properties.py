"""Runs all examples of one kernel: fixed ones, refusals, and those Hypothesis draws.

Stops at the first fault, with the smallest example that shows it.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings, target
from hypothesis.database import DirectoryBasedExampleDatabase

from gemmgen.plan import Plan
from gemmgen.verification import subject
from gemmgen.verification.cases import (
    Case,
    compiled_cases,
    described,
    interpreted_cases,
)
from gemmgen.verification.examples import Call, Wrong, check_results
from gemmgen.verification.examples import run as run_example
from gemmgen.verification.far import Far, far_call, far_places, give_back
from gemmgen.verification.fixed import describable, fixed_cases, plain
from gemmgen.verification.gluon.misuse import Misuse
from gemmgen.verification.memory import OutOfBounds, Unclean
from gemmgen.verification.pipelined import Pipelined, pipelined
from gemmgen.verification.profiles import Profile
from gemmgen.verification.refusals import check_refusals
from gemmgen.verification.subject import Variant
from gemmgen.verification.trouble import Fault, told
from gemmgen.verification.views import DESCRIBABLE

Item = TypeVar("Item")

_SHRINK_SECONDS = 20.0
_AT_ONCE = 4
"""Fixed or far examples of one step: about three compilations on a GPU."""


@dataclass
class Trial:
    """One kernel on one device, and what was found so far.

    `beat` is told every example before it runs, so that a crash has a name. Of so many
    processes that share a kernel's steps, `share` says which this one is. With a
    `schedule`, only its tiles are tried.
    """

    plan: Plan
    path: Path
    device: torch.device
    beat: Callable[[str], object]
    share: tuple[int, int] = (0, 1)
    schedule: str | None = None
    examples: int = 0
    worst: float = 0.0
    module: ModuleType = field(init=False)

    @property
    def launcher(self) -> Callable[..., Any]:
        """The function under test."""
        return subject.launcher(self.plan, self.module)

    @property
    def processors(self) -> int:
        """How many tiles a GPU computes at once, at least; 0 for the interpreter."""
        if not self.on_gpu:
            return 0
        found = torch.cuda.get_device_properties(self.device).multi_processor_count
        return int(found)

    @property
    def on_gpu(self) -> bool:
        """Whether each new signature compiles a kernel."""
        return bool(self.device.type == "cuda")

    def run(self, profile: Profile, number: int) -> None:
        """Try everything; raise `Fault` at the first thing that is wrong."""
        self.module = self.attempt("import", lambda: subject.load(self.path))
        found = self.attempt(
            "tiles", lambda: subject.variants(self.plan, self.module, self.device)
        )
        if not self.on_gpu:
            found = [*found, *pipelined(self.plan, self.module)]
        found = [one for one in found if self.schedule in (None, one.schedule)]
        first, count = self.share
        for step in list(self.steps(found, profile, number))[first::count]:
            step()

    def steps(
        self, found: list[Variant], profile: Profile, number: int
    ) -> Iterator[Callable[[], None]]:
        """What is done for a kernel of these tiles, in independent parts.

        They do not depend on how many processes share them, so that a seed repeats.
        """
        yield self.refuse
        seeds, seen = itertools.count(number), set[object]()
        for variant in found:
            text = variant.schedule if self.on_gpu else variant.text
            first = text not in seen
            seen.add(text)
            for some in _batches(self.always_tried(variant, first)):
                yield partial(self.forced, variant, partial(self.fixed, some))
            if first:
                places = far_places(
                    self.plan, variant.block, variant.described(self.plan)
                )
                for far in _batches(places):
                    yield partial(self.forced, variant, partial(self.far_away, far))
            for examples in self.draws(profile, len(found)):
                drawn = partial(
                    self.drawn,
                    profile=profile,
                    examples=examples,
                    number=next(seeds),
                    views=None if first else DESCRIBABLE,
                )
                yield partial(self.forced, variant, drawn)
        yield partial(self.unforced, found[0])

    def always_tried(self, variant: Variant, first: bool) -> Iterator[Case]:
        """What is always tried with a tile, the `first` of its text or a further one.

        The first, the smallest, stands for all of its schedule where each case compiles
        a kernel; in the interpreter tiles of one text differ by size alone. What
        descriptors cannot describe compiles the kernel of another schedule, which has
        its own turn.
        """
        if isinstance(variant, Pipelined):
            return variant.cases(self.plan)
        cases = fixed_cases(self.plan, variant.block, self.processors)
        if not self.on_gpu:
            return cases if first else iter(())
        if variant.described(self.plan):
            cases = (one for one in cases if describable(self.plan, one))
        return (one for one in cases if first or plain(one))

    def draws(self, profile: Profile, tiles: int) -> list[int]:
        """How many examples each draw of a tile has.

        On a GPU each may compile a kernel anew: more and smaller draws, which several
        processes make at once.
        """
        examples = profile.examples_of(tiles)
        most = profile.at_once if self.on_gpu else examples
        count = -(-examples // most)
        return [examples // count + (i < examples % count) for i in range(count)]

    def forced(self, variant: Variant, step: Callable[[Variant], None]) -> None:
        """One step with every launch on one tile."""
        with variant.forced(self.module):
            step(variant)

    def attempt(self, name: str, action: Callable[[], Any]) -> Any:
        """Do something; any exception becomes a `Fault` that tells what was tried."""
        self.beat(name)
        try:
            return action()
        except (Wrong, OutOfBounds, Unclean, Misuse) as wrong:
            raise Fault("failed", f"{wrong}\n{name}") from wrong
        except Exception as error:
            fault = told(error)
            raise Fault(fault.status, f"{fault.story}\n{name}") from error

    def case(self, case: Case, variant: Variant) -> float:
        """Run one example."""
        name = f"{described(self.plan, case)}, {variant.name}"
        size = self.attempt(
            name,
            lambda: run_example(
                self.plan,
                self.launcher,
                case,
                variant.block,
                self.device,
                variant.has_orders,
            ),
        )
        self.examples += 1
        self.worst = max(self.worst, float(size))
        return float(size)

    def refuse(self) -> None:
        """Calls that must raise ValueError."""
        self.examples += self.attempt(
            "refusals", lambda: check_refusals(self.plan, self.launcher, self.device)
        )

    def fixed(self, cases: Sequence[Case], variant: Variant) -> None:
        """Examples that are always tried."""
        for case in cases:
            self.case(case, variant)

    def far_away(self, places: Sequence[Far], variant: Variant) -> None:
        """Offsets beyond 2^31, along axes of tensors."""
        for place in places:
            try:
                call = far_call(self.plan, place, self.device)
            except (torch.OutOfMemoryError, OSError):
                return  # a small GPU, or a process so limited, cannot hold such tensors
            self.attempt(str(place), partial(self.far, call, variant))
            self.examples += 1
            del call
            give_back(self.device)

    def far(self, call: Call, variant: Variant) -> None:
        """One call with large offsets."""
        results = call.of(self.plan, self.launcher)
        check_results(self.plan, call, results, variant.block)

    def unforced(self, variant: Variant) -> None:
        """The module as it is: its own table, or its autotuner's race; bits repeat."""
        block = variant.block
        case = Case((block.m + 1,), block.n + 1, block.k + 1)
        case = next(
            fixed for fixed in fixed_cases(self.plan, block)
            if (fixed.rows, fixed.n, fixed.k) == (case.rows, case.n, case.k)
        )  # fmt: skip
        self.case(case, variant)

    def drawn(
        self,
        variant: Variant,
        profile: Profile,
        examples: int,
        number: int,
        views: Sequence[str] | None = None,
    ) -> None:
        """The examples that Hypothesis draws for one tile; on a GPU of these views."""
        phases = [Phase.generate, Phase.shrink]
        phases += [Phase.target] if profile.climbs else []
        phases += [Phase.reuse] if profile.remembers else []
        plan, block, roles = self.plan, variant.block, variant.described(self.plan)
        if self.on_gpu:
            cases = compiled_cases(plan, block, roles, views)
        else:
            cases = interpreted_cases(plan, block, roles)
        shrinking = _Shrinking()

        @settings(
            max_examples=examples,
            deadline=None,
            database=self.remembered(variant) if profile.remembers else None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @seed(number)
        @given(cases)
        def holds(case: Case) -> None:
            size = shrinking.run(case, lambda: self.case(case, variant))
            if profile.climbs:
                target(min(size, 2.0))

        holds()

    def remembered(self, variant: Variant) -> DirectoryBasedExampleDatabase:
        """The examples that failed before, where Hypothesis keeps them by default."""
        folder = f"{self.plan.name}-{variant.block}-{self.device.type}"
        return DirectoryBasedExampleDatabase(Path(".hypothesis", "gemmgen", folder))


class _Shrinking:
    """Ends the search for a smaller example after a while.

    Hypothesis has no such limit: from then on only known failures fail.
    """

    def __init__(self) -> None:
        self.known: dict[Case, Fault] = {}
        self.until = 0.0

    def run(self, case: Case, action: Callable[[], float]) -> float:
        if case in self.known:
            raise self.known[case]
        if self.known and time.monotonic() > self.until:
            return 0.0
        try:
            return action()
        except Fault as fault:
            if not self.known:
                self.until = time.monotonic() + _SHRINK_SECONDS
            self.known[case] = fault
            raise


def _batches(items: Iterable[Item]) -> list[tuple[Item, ...]]:
    """The items in order, some at a time."""
    iterator = iter(items)
    return list(iter(lambda: tuple(itertools.islice(iterator, _AT_ONCE)), ()))
