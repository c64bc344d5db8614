"""A tuning file while kernels are timed, by this process and by others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.layers import Layers
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.record import rewrite
from gemmgen.tuning.team import Found, Task


class Growing:
    """A tuning file that is written whenever a kernel was timed at a shape more.

    Of the shapes that are `wanted` the times of some are `known`. `left_out` says what
    other processes could not time. The order of what is written is that of the file
    there was, then of what is wanted, whatever is timed first.
    """

    def __init__(
        self,
        path: Path,
        tuning: Tuning,
        known: dict[str, dict[Shape, Mapping[Tile, float]]],
        wanted: Mapping[str, Sequence[Shape]],
        on_done: Callable[[str], object] | None = None,
    ) -> None:
        self.path, self.tuning, self.before = path, tuning, tuning.kernels
        self.known, self.wanted, self.on_done = known, wanted, on_done
        self.order = {name: [*known[name], *wanted[name]] for name in wanted}
        self.left_out: dict[str, dict[Tile, str]] = {}

    @property
    def missing(self) -> list[Task]:
        """What is still to be timed."""
        return [
            (name, shape)
            for name, its_shapes in self.wanted.items()
            for shape in dict.fromkeys(its_shapes)
            if shape not in self.known[name]
        ]

    def lacks(self, name: str) -> bool:
        """Whether that is something of a kernel."""
        return not {*self.wanted[name]} <= {*self.known[name]}

    def times(self, name: str) -> dict[Shape, Mapping[Tile, float]]:
        """Those of a kernel, as far as they are known."""
        known = self.known[name]
        return {shape: known[shape] for shape in self.order[name] if shape in known}

    def layers(self, name: str) -> Layers:
        """Those of a kernel, with the tiles that they had."""
        before = self.before.get(name)
        return before.layers if before else {}

    def add(self, *every: Found) -> None:
        """Put kernels' times, each at a shape, into the file."""
        for name, shape, times, left_out in every:
            self.known[name][shape] = times
            self.left_out.setdefault(name, {}).update(left_out)
            # Choosing takes a while: an interrupted run leaves the rules there were.
            was = self.before.get(name, Measured((), (), {}))
            self.write(name, replace(was, times=self.times(name)))
            if self.on_done:
                self.on_done(f"{name} {shape}")

    def write(self, name: str, found: Measured) -> None:
        """Put one kernel's results into the file."""
        kernels = {**self.tuning.kernels, name: found}
        order = (one for one in (*self.before, *self.wanted) if one in kernels)
        kernels = {one: kernels[one] for one in order}
        self.tuning = replace(self.tuning, kernels=kernels)
        rewrite(self.path, self.tuning)
