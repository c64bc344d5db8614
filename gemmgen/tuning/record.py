"""What tuning and calibration write: a kernel's times and the rules made of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gemmgen.base.files import blamed
from gemmgen.base.tree import pinned
from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.measured_table import rules_for, unaligned_rules


def measured(
    plan: Plan, target: Target, times: Mapping[Shape, Mapping[Tile, float]], costs: bool
) -> Measured:
    """The times of a kernel with the rules that follow from them.

    With `costs` of its tiles there are rules for tensors alone that no descriptor can
    describe.
    """
    if costs:
        return Measured((), tuple(unaligned_rules(plan, target, times)), dict(times))
    described, plain = rules_for(plan, target, times)
    return Measured(tuple(described), tuple(plain), dict(times))


def write(path: Path, tuning: Tuning, name: str, found: Measured) -> Tuning:
    """Put one kernel's results into the file; return all that it holds then."""
    tuning = replace(tuning, kernels={**tuning.kernels, name: found})
    rewrite(path, tuning)
    return tuning


def rewrite(path: Path, tuning: Tuning) -> None:
    """Put all of it into the file."""
    with blamed("write", path), pinned(path.parent, write=True) as folder:
        assert folder is not None
        folder.apply({path.name: tuning.as_text()})
