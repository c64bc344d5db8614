"""The look that all our pictures share: paper, headline, axes, and the roofline.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; shapes of
markers say the same.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmgen.base.files import blamed

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
MARKERS = "osD^vP"
_DPI = 150


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    FigureCanvasAgg(figure)
    with blamed("write", path):
        figure.savefig(path, format="png")


def headline(figure: Figure, title: str, line: str) -> None:
    """What the figure says, and a line on what it holds for."""
    figure.suptitle(f"{title}\n", x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.text(0.012, 1.0, f"\n\n{line}", ha="left", va="top", fontsize=8, color=GREY)


def roofs(
    axes: Axes,
    bandwidth: float,
    ceilings: Mapping[float, Sequence[str]],
    intensities: Sequence[float],
) -> None:
    """The slope of the memory's rate, and a ceiling for each rate of products.

    Bytes and FLOP per second; `intensities` are what the axis must hold.
    """
    ridges = [flops / bandwidth for flops in ceilings]
    left = 0.5 * min(*intensities, *ridges)
    right = 12 * max(*intensities, *ridges)  # room for the labels
    highest = max(ceilings) / bandwidth
    slope = [left * bandwidth / 1e12, max(ceilings) / 1e12]
    axes.plot([left, highest], slope, color="black", linewidth=1)
    for flops, kinds in ceilings.items():
        level = flops / 1e12
        axes.plot([flops / bandwidth, right], [level] * 2, color="black", linewidth=1)
        axes.annotate(
            f"{', '.join(kinds)}: {level:.0f} TFLOP/s", (right, level), (-4, 3),
            textcoords="offset points", ha="right", fontsize=8,
        )  # fmt: skip
    middle = (left * highest) ** 0.5
    axes.annotate(
        f"memory: {bandwidth / 1e12:.1f} TB/s", (middle, middle * bandwidth / 1e12),
        (-6, 4), textcoords="offset points", ha="right", fontsize=8,
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_xlabel("FLOP for each byte that must be moved")
    axes.set_ylabel("TFLOP/s")
    grid(axes)


def grid(axes: Axes) -> None:
    """Faint lines, plain numbers, no frame."""
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    plain: Any = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(10, numticks=8))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(plain)
    bare(axes)


def bare(axes: Axes, *more: str) -> None:
    """No frame on the right and above, nor on `more` sides."""
    for side in ("top", "right", *more):
        axes.spines[side].set_visible(False)
