"""What tuning files say of one kernel: the last that says something holds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.select.tuned.costs import Costs, costs_for
from gemmgen.select.tuned.tuning_file import Measured, Tuning


class Known:
    """Of a kernel that is built for some targets, what was timed of it and its kind.

    Unless its tiles are `free`, nothing but how fast a target is.
    """

    def __init__(
        self,
        name: str,
        targets: Collection[str],
        tunings: Sequence[Tuning],
        *,
        free: bool,
    ) -> None:
        here = [one for one in tunings if free and one.target in targets]
        own = [(one, one.kernels[name]) for one in here if name in one.kernels]
        self._ruled = {one.target: (one, its) for one, its in own if its.rules}
        self._layered = {
            one.target: (one, its) for one, its in own if any(its.layers.values())
        }
        self._costed = [
            one for one in here if one.target not in self._ruled or name in one.kernels
        ]
        self._rates = {one.target: one.rates for one in tunings if one.rates}

    def target(self, name: str) -> Target:
        """A target, with calibrated rates if a file has some."""
        known = TARGETS[name]
        return replace(known, rates=self._rates.get(name, known.rates))

    @property
    def measured(self) -> Mapping[str, Measured]:
        """By target, the kernel's rules and layers, which two files may have."""
        found = {name: its for name, (_, its) in self._ruled.items()}
        for name, (_, its) in self._layered.items():
            before = found.get(name, Measured((), (), {}))
            found[name] = replace(before, layers=its.layers)
        return found

    def costs(self, kind: str | None) -> dict[str, Costs]:
        """By target, what tiles of a kind of product cost; nothing, if it has none."""
        pairs = ((one.target, costs_for(one.costs, kind)) for one in self._costed)
        return {name: costs for name, costs in pairs if costs}

    def chosen_by(self, kind: str | None) -> str:
        """Who made the table: the model, or measurements where there are any."""
        costed = (one for one in self._costed if costs_for(one.costs, kind))
        gpus = {one.target: one.gpu for one in costed}
        gpus |= {name: one.gpu for name, (one, _) in self._ruled.items()}
        layers = {name: one.gpu for name, (one, _) in self._layered.items()}
        found = [f"on {gpu} for {name}" for name, gpu in gpus.items()]
        found += [f"on {gpu} for layers of {name}" for name, gpu in layers.items()]
        if not found:
            return "The model chose them"
        return f"Timed {', '.join(found)}, else chosen by the model"
