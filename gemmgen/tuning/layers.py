"""Layers of a user's: the rows that they are timed at, and what follows from that."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgen.hardware.targets import Target
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.layers import Pin
from gemmgen.select.tuned.tuning_file import Tuning
from gemmgen.spec.shapes import Layer, Shape
from gemmgen.tuning.course import Course, course_of
from gemmgen.tuning.trials.spread import MOST_FLOPS

LADDER = (
    *(1, 8, 16, 32, 48, 64, 72, 96, 104, 128, 136, 144, 160, 192, 208, 224, 256),
    *(272, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048, 4096, 8192, 16384),
)
"""Rows that layers are timed at: those that sides of tiles, or two of them, just hold,
up to 320."""
_MOST_RESULTS = 2**27
"""M N of what is timed."""


def ladder(layer: Shape) -> tuple[Shape, ...]:
    """The shapes that a layer is timed at, up to the rows that it is given with."""
    shapes = (layer._replace(m=rows) for rows in (*LADDER, layer.m))
    return tuple(
        sorted({
            shape for shape in shapes
            if shape.m <= layer.m
            and shape.flops <= MOST_FLOPS and shape.m * shape.n <= _MOST_RESULTS
        })
    )  # fmt: skip


def with_pins(
    tuning: Tuning,
    plans: Mapping[str, Plan],
    target: Target,
    on_step: Callable[[str], object] | None = None,
) -> Tuning:
    """The tuning file with the tiles of its layers, by its times.

    `on_step` hears what a kernel's layers gain.
    """
    kernels = dict(tuning.kernels)
    for name, measured in kernels.items():
        if name not in plans or not measured.layers:
            continue
        layers: dict[Layer, tuple[Pin, ...]] = {}
        gains = Gains()
        for layer in measured.layers:
            course = course_of(plans[name], target, layer, measured.times)
            layers[layer] = tuple(course.pins()) if course else ()
            if course:
                gains.add(course, layers[layer])
        kernels[name] = replace(measured, layers=layers)
        if on_step and gains.rows:
            on_step(f"layers of {name}: {gains}")
    return replace(tuning, kernels=kernels)


@dataclass
class Gains:
    """What layers lose to the fastest tile at the rows of the ladder, in the mean."""

    rows: int = 0
    pins: int = 0
    usual: float = 0.0
    now: float = 0.0

    def add(self, course: Course, pins: Sequence[Pin]) -> None:
        """Count those of a layer."""
        self.pins += len(pins)
        for rows, times in course.known.items():
            own = (pin.tile for pin in pins if pin.least <= rows <= pin.most)
            usual, best = course.usual(rows), min(times.values())
            tile = next(own, None)
            self.rows += 1
            self.usual += usual / best - 1
            self.now += (times[tile] if tile else usual) / best - 1

    def __str__(self) -> str:
        return (
            f"{self.now / self.rows:.1%} slower than the fastest tile in the mean of "
            f"{self.rows} shapes, by {self.pins} rows of their own; "
            f"{self.usual / self.rows:.1%} without"
        )
