"""What tuning and calibration write: a kernel's times and the rules made of them."""

from dataclasses import replace
from pathlib import Path

from gemmgen.base.files import blamed
from gemmgen.base.tree import pinned
from gemmgen.hardware.targets import Target
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.layers import Layers
from gemmgen.select.tuned.tuning_file import Measured, Times, Tuning
from gemmgen.tuning.measured_table import rules_for


def measured(
    plan: Plan, target: Target, times: Times, layers: Layers, costs: bool
) -> Measured:
    """The times of a kernel with the rules that follow from them, but for its layers'.

    With `costs` of its tiles there are none: its kind has what follows.
    """
    found = Measured((), (), dict(times), layers)
    if costs:
        return found
    described, plain = rules_for(plan, target, found.spread)
    return replace(found, rules=tuple(described), unaligned=tuple(plain))


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
