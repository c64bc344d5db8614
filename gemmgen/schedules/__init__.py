"""Schedules, a module each: where one can serve, the tiles worth having or timing."""

from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules import (
    gemv,
    persistent,
    split_k,
    tiled,
    tma,
    warp_specialized,
)
from gemmgen.schedules.base import Kernel, Module
from gemmgen.tables.schedules import SCHEDULES

MODULES: dict[str, Module] = {
    "warp_specialized": warp_specialized,
    "tma": tma,
    "split_k": split_k,
    "persistent": persistent,
    "gemv": gemv,
    "tiled": tiled,
}
"""By name, in the order in which their tiles are timed."""


def why_not(schedule: str, kernel: Kernel) -> str | None:
    """The reason why `schedule` cannot serve the kernel, in words, or None.

    What only a call can tell, such as the alignment of a row, the launcher decides.
    """
    row, target = SCHEDULES[schedule], kernel.target
    if row.described and not target.tensor_maps:
        first = next(one.name for one in TARGETS.values() if one.tensor_maps)
        return f"{schedule} needs {first}, this is {target.name}"
    if row.unit and row.unit != target.unit:
        only = next(one.name for one in TARGETS.values() if one.unit == row.unit)
        return f"{schedule} is written for {only}"
    return MODULES[schedule].why_not(kernel)
