"""Schedules, a module each: all that sets one apart, but its template."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from pkgutil import iter_modules

from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules.parts.schedule import Kernel, Schedule
from gemmgen.schedules.parts.tile import Tile


def _rows() -> Iterator[Schedule]:
    """What the modules beside this one define, each its `SCHEDULE`."""
    for found in iter_modules(__path__):
        if not found.ispkg:
            row: Schedule = import_module(f"{__name__}.{found.name}").SCHEDULE
            yield row


SCHEDULES: dict[str, Schedule] = {
    row.name: row for row in sorted(_rows(), key=lambda row: (row.order, row.name))
}


def schedule_of(tile: Tile) -> Schedule:
    """The schedule that computes a tile."""
    return SCHEDULES[tile.schedule]


def named(schedule: str) -> list[str]:
    """The words of a spec's `schedule`: `auto`, or the names that it lists."""
    return schedule.strip("[]").split(", ")


def by_file(schedules: Iterable[str]) -> dict[str, list[str]]:
    """Schedules by the files that their kernels are in."""
    found = dict[str, list[str]]()
    for name in schedules:
        found.setdefault(SCHEDULES[name].file, []).append(name)
    return found


def described(schedule: str, kind: str) -> frozenset[str]:
    """The roles of the tensors that a schedule takes through descriptors."""
    row = SCHEDULES[schedule]
    return row.described - row.by_pointers(kind)


def why_not(schedule: str, kernel: Kernel) -> str | None:
    """The reason why `schedule` cannot serve the kernel, in words, or None.

    What only a call can tell, such as the alignment of a row, the launcher decides.
    """
    row, target = SCHEDULES[schedule], kernel.target
    if reason := row.why_not(kernel):
        return reason
    if row.described and not target.tensor_maps:
        first = next(target.name for target in TARGETS.values() if target.tensor_maps)
        return f"{schedule} needs {first}, this is {target.name}"
    if row.unit and row.unit != target.unit:
        only = next(
            target.name for target in TARGETS.values() if target.unit == row.unit
        )
        return f"{schedule} is written for {only}"
    return None
