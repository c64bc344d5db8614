"""What tuning and calibration write: a kernel's times and the rules made of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gemmgen.base.files import blamed
from gemmgen.base.tree import pinned
from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.measured_table import rules_for


def measured(
    plan: Plan, target: Target, times: Mapping[Shape, Mapping[Tile, float]]
) -> Measured:
    """The times of a kernel with the rules that follow from them."""
    described, plain = rules_for(plan, target, times)
    return Measured(tuple(described), tuple(plain), dict(times))


def write(path: Path, tuning: Tuning, name: str, found: Measured) -> Tuning:
    """Put one kernel's results into the file; return all that it holds then."""
    tuning = replace(tuning, kernels={**tuning.kernels, name: found})
    with blamed("write", path), pinned(path.parent, write=True) as folder:
        assert folder is not None
        folder.apply({path.name: tuning.as_text()})
    return tuning
