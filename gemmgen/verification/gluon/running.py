"""The program that runs, and what its partitions do with barriers."""

from typing import Any

from triton.experimental.gluon.language.nvidia import hopper

from gemmgen.verification.gluon.program import Program
from gemmgen.verification.memory.barriers import Barrier
from gemmgen.verification.memory.misuse import misused

MEETS = hasattr(hopper.mbarrier, "fence_init_release_cluster") and hasattr(
    getattr(hopper, "cluster", None), "barrier"
)
"""Whether CTAs have to meet where they begin and end: those of 3.9 do by themselves."""


class Running:
    """The program that runs; one at a time in a process."""

    program: Program


def enter(program: Program) -> None:
    """Make it the program that runs."""
    Running.program = program


def partition() -> int:
    """Which of its partitions runs."""
    return Running.program.me.number


def step(name: str, **_options: Any) -> None:
    """Note that a CTA has come to a step of meeting the other one."""
    Running.program.steps.append(name)


def finish(program: Program) -> None:
    """Raise `Misuse` if something is left under way, or a CTA may end too early."""
    if MEETS and program.ctas > 1 and program.steps[2:] != ["meet"]:
        raise misused("a CTA may end while the other one arrives at its barriers")
    program.finish()


def init(barrier: Barrier, count: Any) -> None:
    """Expect so many arrivals a phase at a barrier of each CTA."""
    for one in barrier.each:
        one.init(int(count))


def wait(barrier: Barrier, phase: Any, pred: Any = True, deps: Any = ()) -> None:
    """Wait for the end of a phase of such a parity."""
    if not pred:
        return
    barrier.required()
    program, parity = Running.program, int(phase)
    if barrier.arrive_from > 1 and program.me.cta:
        return  # the first CTA waits
    if parity not in (0, 1):
        raise misused(f"a wait for {barrier.label()} has the parity {parity}")
    if program.turns is None:
        raise misused(f"a wait for {barrier.label()} outside of warp_specialize")
    since = barrier.phase
    program.turns.wait(
        lambda: barrier.passes(parity),
        lambda: f"{barrier.label()} (parity {parity}; {barrier.state})",
    )
    barrier.passed(program.me.number, program.me.clock, since)


def expect(barrier: Barrier, bytes: Any, pred: Any = True) -> None:
    """Arrive, and expect so many bytes more."""
    if pred:
        program = Running.program
        barrier.expect(program.me.clock, int(bytes))
        program.pause()


def arrive(barrier: Barrier, *, count: Any = 1, pred: Any = True) -> None:
    """Arrive so many times."""
    if pred:
        program = Running.program
        barrier.arrive(program.me.clock, int(count))
        program.pause()
