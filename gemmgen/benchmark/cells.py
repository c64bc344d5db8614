"""A run by kernel and number of rows: what heat maps show."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from gemmgen.benchmark.results import Benchmark, Row, geometric_mean

_BOUNDS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)
"""Up to how many rows a column goes; the last takes all that have more."""


@dataclass(frozen=True)
class Scale:
    """Colours between numbers, (red, green, blue) up to 255 each, in their order."""

    stops: tuple[tuple[float, tuple[int, int, int]], ...]

    def colour(self, number: float) -> str:
        """That of a number, as `#rrggbb`; beyond the ends, that of the end."""
        (least, _), (most, _) = self.stops[0], self.stops[-1]
        number = min(max(number, least), most)
        for (low, below), (high, above) in pairwise(self.stops):
            if number <= high:
                part = (number - low) / (high - low)
                mixed = zip(below, above, strict=True)
                return "#" + "".join(
                    f"{round(a + part * (b - a)):02x}" for a, b in mixed
                )
        raise AssertionError("the number is at most the last stop")


_WHITE, _BLUE, _ORANGE = (255, 255, 255), (86, 156, 214), (232, 128, 60)
RATIOS = Scale(((0.8, _ORANGE), (1.0, _WHITE), (1.25, _BLUE)))
SHARES = Scale(((0.0, _WHITE), (1.0, _BLUE)))


@dataclass(frozen=True)
class Cell:
    """Shapes of a kernel that have about as many rows.

    The geometric means of their ratios to the best peer, above 1 ours is faster, and
    of the parts of the roofline that they reach; the lowest ratio, and where it is.
    """

    shapes: int
    ratio: float
    share: float
    lowest: float
    at: str


@dataclass(frozen=True)
class Grid:
    """The cells of a run by kernel and column; only columns that some kernel has."""

    columns: tuple[str, ...]
    kernels: dict[str, dict[str, Cell]]


def by_cells(report: Benchmark) -> Grid:
    """The rows of a run that raced against a peer, in cells."""
    kernels: dict[str, dict[str, Cell]] = {}
    for name, rows in report.kernels.items():
        raced = [row for row in rows if row.ratio is not None]
        own = {label: _of(raced, label) for label in _LABELS}
        found = {label: _cell(rows) for label, rows in own.items() if rows}
        if found:
            kernels[name] = found
    seen = {label for cells in kernels.values() for label in cells}
    return Grid(tuple(label for label in _LABELS if label in seen), kernels)


def _of(rows: Iterable[Row], label: str) -> list[Row]:
    return [row for row in rows if _label(row.shape.m) == label]


def _cell(rows: list[Row]) -> Cell:
    ratios = [(row.ratio or 1.0, str(row.shape)) for row in rows]
    lowest, at = min(ratios)
    mean = geometric_mean(ratio for ratio, _ in ratios)
    share = geometric_mean(row.share for row in rows)
    return Cell(len(rows), mean, share, lowest, at)


def _label(m: int) -> str:
    return _LABELS[bisect_left(_BOUNDS, m)]


def _spans() -> Iterable[str]:
    before = 0
    for bound in _BOUNDS:
        yield str(bound) if bound == before + 1 else f"{before + 1} to {bound}"
        before = bound
    yield f"over {before}"


_LABELS = tuple(_spans())
