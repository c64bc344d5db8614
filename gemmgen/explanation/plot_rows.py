"""Time by rows of A as a panel: where waves begin, which tile serves, what it took."""

from collections.abc import Sequence
from itertools import cycle, groupby

from matplotlib.axes import Axes

from gemmgen.base.style import COLOURS, GREY, MARKERS, grid
from gemmgen.explanation.facts import Argument, Served
from gemmgen.explanation.raced import Raced

_OURS = "ours"


def draw_rows(axes: Axes, told: Argument, others: Raced) -> None:
    """Predicted time by rows, measured times, the roofline, and the shape's rows."""
    rows = [one.rows for one in told.by_rows]
    _predicted(axes, told.by_rows)
    roofline = [1e6 * one.roofline for one in told.by_rows]
    axes.plot(
        rows, roofline, color="black", linewidth=0.8, linestyle="--", label="roofline"
    )
    for name, times in _measured(told, others).items():
        _points(axes, name, times, len(axes.lines))
    axes.axvline(int(told.shape.split("x")[0]), color=GREY, linewidth=0.8)
    axes.set_xlim(0, rows[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("rows (M); the line: those asked for")
    axes.set_ylabel("µs, predicted")
    axes.set_title("Time by rows, N and K as they are", loc="left", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    grid(axes)


def _predicted(axes: Axes, points: Sequence[Served]) -> None:
    """A line for each run of rows that one tile serves, in the colour of its kind."""
    kinds = sorted({_kind(one) for one in points})
    colours = dict(zip(kinds, cycle(COLOURS), strict=False))
    axes.plot(
        [one.rows for one in points], [1e6 * one.seconds for one in points],
        color="#cccccc", linewidth=0.8, zorder=1,
    )  # fmt: skip
    labelled: set[str] = set()
    for _, run in groupby(points, key=lambda one: one.tile):
        served = list(run)
        kind = _kind(served[0])
        axes.plot(
            [one.rows for one in served], [1e6 * one.seconds for one in served],
            marker=".", markersize=4, linewidth=1.5, color=colours[kind],
            label=None if kind in labelled else kind,
        )  # fmt: skip
        labelled.add(kind)


def _kind(served: Served) -> str:
    return f"{served.schedule}, {served.warps} warp{'s' * (served.warps > 1)}"


def _measured(told: Argument, others: Raced) -> Raced:
    """What tuning measured of tiles that serve, and what a benchmark did."""
    tuned = [(one.rows, one.measured) for one in told.by_rows if one.measured]
    found = {"measured by tune": tuned} if tuned else {}
    for name, times in others.items():
        seen = [pair for pair in times if pair[0] <= told.by_rows[-1].rows]
        found["ours, raced" if name == _OURS else name] = seen
    return found


def _points(
    axes: Axes, name: str, times: Sequence[tuple[int, float]], place: int
) -> None:
    ours = name.startswith(_OURS)
    axes.plot(
        [rows for rows, _ in times], [1e6 * seconds for _, seconds in times],
        linestyle="none", marker=MARKERS[place % len(MARKERS)], markersize=6,
        markerfacecolor="none", markeredgewidth=1.4, zorder=3, label=name,
        color="black" if ours else COLOURS[place % len(COLOURS)],
    )  # fmt: skip
