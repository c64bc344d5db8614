"""Checks one kernel's launcher on the stand-in: every change alone, then drawn ones."""

import traceback
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from zlib import crc32

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from gemmgen.select.plan import Plan
from gemmgen.verification.basics.failure import Fault, fault_of
from gemmgen.verification.basics.part import Part
from gemmgen.verification.basics.profiles import Profile
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.bench import Bench
from gemmgen.verification.launches.comparisons import comparisons
from gemmgen.verification.launches.gradients.learning import learning
from gemmgen.verification.launches.gradients.passes import passes
from gemmgen.verification.launches.habits import habits
from gemmgen.verification.launches.kernels import kernels
from gemmgen.verification.launches.machine import each_alone, machine
from gemmgen.verification.launches.mishaps import mishaps
from gemmgen.verification.launches.places import places
from gemmgen.verification.launches.rows import rows
from gemmgen.verification.operators.seen import seen
from gemmgen.verification.stand_in.driver import Driver
from gemmgen.verification.stand_in.installation import install

_STEPS = 20


@cache
def _driver() -> Driver:
    """The stand-in, which a process has once and for good."""
    return install()


def check_launches(
    plan: Plan,
    path: Path,
    profile: Profile,
    number: int,
    part: Part,
    beat: Callable[[str], object],
) -> int:
    """How many launches were looked at; raises `Fault` at the first that is wrong."""
    beat("import")
    driver = _driver()
    before = driver.count
    try:
        bench = Bench(plan, subject.load(path), driver)
        for name, step in part.of(_steps(bench, profile, number)):
            beat(name)
            step()
    except Wrong as wrong:
        raise Fault("failed", str(wrong)) from wrong
    except Exception as error:
        fault = fault_of(error)
        where = traceback.format_exception_only(error)[-1].strip()
        raise Fault(fault.status, fault.story or where) from error
    return driver.count - before


def _steps(
    bench: Bench, profile: Profile, number: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is tried, by name."""
    for tried in (
        habits,
        kernels,
        rows,
        comparisons,
        mishaps,
        places,
        learning,
        passes,
        seen,
    ):
        yield from tried(bench)
    first = (number + crc32(bench.plan.name.encode())) % profile.every
    yield from islice(each_alone(bench), first, None, profile.every)
    yield f"drawn calls, seed {number}", partial(
        _drawn, bench, profile.launches, number
    )


def _drawn(bench: Bench, examples: int, number: int) -> None:
    calls = machine(bench)
    try:
        run_state_machine_as_test(
            seed(number)(calls),
            settings=settings(
                max_examples=examples,
                stateful_step_count=_STEPS,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                verbosity=Verbosity.quiet,
            ),
        )
    except Flaky as error:
        raise Wrong(f"once, and not when repeated: {calls.raised}") from error
