"""The argument as a picture: time by rows and by stages, and under the roofline."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from gemmgen.base import style
from gemmgen.base.style import COLOURS, GREY, blank, grid
from gemmgen.explanation.facts import Argument
from gemmgen.explanation.plot_rows import draw_rows
from gemmgen.explanation.raced import Raced

_PREDICTED, _MEASURED = COLOURS[:2]


def write(told: Argument, path: Path, others: Raced | None = None) -> None:
    """Write the picture as PNG; `others` are times that a benchmark took."""
    style.save(picture(told, others or {}), path)


def picture(told: Argument, others: Raced) -> Figure:
    """Panels: waves, if rows were looked at; what stages gain and what caps; limits."""
    figure = blank(10.5, 9.0 if told.by_rows else 4.6)
    below: Figure | SubFigure = figure
    if told.by_rows:
        above, below = figure.subfigures(2, 1, squeeze=False).flat
        draw_rows(above.subplots(), told, others)
    left, right = below.subplots(1, 2)
    _stages(left, told)
    _roofline(right, told)
    title = f"{told.kernel}, {told.shape.replace('x', ' × ')}"
    line = f"{told.choice.tile}; {told.target}, {told.sources.gpu}; predicted"
    style.headline(figure, title, line)
    return figure


def _stages(axes: Axes, told: Argument) -> None:
    """Predicted time by depth of the ring; depths that do not fit, hollow and grey."""
    depths, stages = told.stages.depths, told.stages
    fitting = [depth for depth in depths if depth.fits]
    over = [depth for depth in depths if not depth.fits]
    axes.plot(
        [depth.stages for depth in fitting], [1e6 * depth.seconds for depth in fitting],
        marker="o", color=_PREDICTED, markersize=5, label="fits shared memory",
    )  # fmt: skip
    if over:
        axes.plot(
            [depth.stages for depth in over], [1e6 * depth.seconds for depth in over],
            linestyle="none", marker="x", color=GREY,
            label="over the limit of shared memory",
        )  # fmt: skip
        axes.axvspan(over[0].stages - 0.5, depths[-1].stages + 0.5, color="#eeeeee")
    chosen = next(depth for depth in depths if depth.stages == stages.stages)
    axes.plot(
        [chosen.stages], [1e6 * chosen.seconds], linestyle="none", marker="o",
        markersize=12, markerfacecolor="none", markeredgewidth=1.8, color=_MEASURED,
        label=f"chosen: {chosen.stages}",
    )  # fmt: skip
    if stages.needed_stages <= depths[-1].stages:
        axes.axvline(
            stages.needed_stages, color=GREY, linewidth=0.8, linestyle="--",
            label=f"hides {1e9 * stages.planned:,.0f} ns: {stages.needed_stages}",
        )  # fmt: skip
    axes.set_xlim(0.5, depths[-1].stages + 0.5)
    axes.set_ylim(0, 1.15e6 * max(depth.seconds for depth in depths))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("stages")
    axes.set_ylabel("µs, predicted")
    axes.set_title("Time by stages", loc="left", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    grid(axes)


def _roofline(axes: Axes, told: Argument) -> None:
    """The kernel at its FLOP a byte: predicted, and measured where it was."""
    roof, guess = told.roofline, told.prediction
    shown = [roof.intensity, roof.ridge / 30]  # some of the slope at least
    style.roofs(axes, roof.bandwidth, {roof.peak: [roof.kind]}, shown)
    axes.plot(
        [roof.intensity], [guess.flops_per_second / 1e12], linestyle="none",
        marker="o", color=_PREDICTED, label=f"predicted: {guess.share:.0%} of the roof",
    )  # fmt: skip
    if guess.measured is not None:
        share = roof.seconds / guess.measured
        axes.plot(
            [roof.intensity], [roof.flops / guess.measured / 1e12], linestyle="none",
            marker="D", color=_MEASURED, markerfacecolor="none",
            label=f"measured: {share:.0%} of the roof",
        )  # fmt: skip
    axes.set_title("Roofline", loc="left", fontsize=9)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
