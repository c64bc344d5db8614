"""A benchmark as pictures, one message each: ratios, heat maps, speed, the roofline."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gemmgen.base import style
from gemmgen.base.files import blamed
from gemmgen.base.style import COLOURS, MARKERS, bare, blank, grid
from gemmgen.benchmark.cells import RATIOS, SHARES, Grid, Scale, by_cells
from gemmgen.benchmark.page import as_html
from gemmgen.benchmark.results import Benchmark, Row, geometric_mean

FASTER, SLOWER = COLOURS[:2]


def write(report: Benchmark, folder: Path) -> list[Path]:
    """Write ratios.png, by_rows.png, speed.png, roofline.png, and by_rows.html.

    Returns the paths written: no picture is drawn of nothing.
    """
    page = folder / "by_rows.html"
    with blamed("write", page):
        folder.mkdir(parents=True, exist_ok=True)
        page.write_text(as_html(report), encoding="utf-8")
    drawn = ((folder / name, draw(report)) for name, draw in _DRAWN.items())
    figures = {path: figure for path, figure in drawn if figure is not None}
    for path, figure in figures.items():
        style.save(figure, path)
    return [*figures, page]


def ratios(report: Benchmark) -> Figure | None:
    """Bars from 1: how much faster or slower than the best peer each shape is."""
    groups = {
        name: [row for row in rows if row.ratio is not None]
        for name, rows in report.kernels.items()
    }
    groups = {name: rows for name, rows in groups.items() if rows}
    if not groups:
        return None
    heights = [len(rows) + 0.2 for rows in groups.values()]
    figure = blank(8.5, 1.2 + 0.2 * sum(heights) + 0.33 * len(groups))
    panels = figure.subplots(
        len(groups), 1, sharex=True, squeeze=False, height_ratios=heights
    )
    every = [row.ratio or 1.0 for rows in groups.values() for row in rows]
    low, high = min([0.9, *every]), max([1.1, *every])
    margin = 0.14 * (high - low)
    for axes, (name, rows) in zip(panels[:, 0], groups.items(), strict=True):
        _bars(axes, rows, (high - low) * 0.012)
        mean = geometric_mean(row.ratio or 1.0 for row in rows)
        axes.set_title(f"{name}   (geometric mean {mean:.3f})", loc="left", fontsize=9)
        axes.set_xlim(low - margin, high + margin)
    panels[-1, 0].set_xlabel(
        "time of the best peer / our time    (above 1 ours is faster)"
    )
    _headline(figure, "Speed against the best of torch's ways", report)
    return figure


def _bars(axes: Axes, rows: Sequence[Row], gap: float) -> None:
    places = range(len(rows))
    values = [row.ratio or 1.0 for row in rows]
    colours = [FASTER if value >= 1 else SLOWER for value in values]
    axes.barh(
        places, [value - 1 for value in values], left=1, color=colours, height=0.7
    )
    for place, row, value in zip(places, rows, values, strict=True):
        right = value >= 1
        against = "" if row.best == "torch" else f" ({row.best})"
        axes.text(
            value + (gap if right else -gap), place, f"{value:.2f}{against}",
            ha="left" if right else "right", va="center", fontsize=7,
        )  # fmt: skip
    axes.set_yticks(places, [_spelled(row) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    bare(axes, "left")


def speed(report: Benchmark) -> Figure | None:
    """TFLOP/s against the size of the problem, ours and the best peer's."""
    raced = [row for row in report.rows if row.best]
    kinds = list(dict.fromkeys(row.kind for row in raced))
    if not kinds:
        return None
    columns = min(2, len(kinds))
    lines = math.ceil(len(kinds) / columns)
    figure = blank(8.5, 0.9 + 3.1 * lines)
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    for axes, kind in zip(panels.flat, kinds, strict=False):
        _speeds(axes, [row for row in raced if row.kind == kind])
        axes.set_title(kind, loc="left", fontsize=9)
    for axes in panels.flat[len(kinds) :]:
        axes.set_axis_off()
    for axes in [*panels[-1], *panels.flat[len(kinds) - columns : len(kinds)]]:
        axes.set_xlabel("2 M N K in GFLOP")
        axes.tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("TFLOP/s")
    panels[0, 0].legend(fontsize=8, frameon=False, loc="upper left")
    _headline(figure, "Speed by size of the product", report)
    return figure


def _speeds(axes: Axes, rows: Sequence[Row]) -> None:
    work = [row.work / 1e9 for row in rows]
    mine = [row.flops / 1e12 for row in rows]
    theirs = [row.flops / 1e12 / (row.ratio or 1.0) for row in rows]
    for x, one, two in zip(work, mine, theirs, strict=True):
        axes.plot([x, x], [one, two], color="#bbbbbb", linewidth=1, zorder=1)
    axes.scatter(
        work, theirs, s=26, marker="s", facecolors="white", edgecolors=SLOWER,
        label="best peer", zorder=2,
    )  # fmt: skip
    axes.scatter(work, mine, s=20, color=FASTER, label="ours", zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    grid(axes)


def roofline(report: Benchmark) -> Figure | None:
    """Each shape under the roof: the rates that limit it, and how near it comes."""
    if not report.rows:
        return None
    rates = report.roofline
    kinds = list(dict.fromkeys(row.kind for row in report.rows))
    roofs: dict[float, list[str]] = {}
    for kind in kinds:
        roofs.setdefault(rates.flops[kind], []).append(kind)
    figure = blank(8.5, 5.2)
    axes = figure.subplots()
    intensities = [row.work / row.traffic for row in report.rows]
    style.roofs(axes, rates.bandwidth, roofs, intensities)
    for position, kind in enumerate(kinds):
        rows = [row for row in report.rows if row.kind == kind]
        axes.scatter(
            [row.work / row.traffic for row in rows],
            [row.flops / 1e12 for row in rows],
            s=26, color=COLOURS[position % len(COLOURS)], alpha=0.85, zorder=3,
            marker=MARKERS[position % len(MARKERS)], linewidths=0,
            label=f"{kind}: {len(rows)} shape{'s' * (len(rows) > 1)}",
        )  # fmt: skip
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    _headline(figure, f"How near our kernels come to the limits of {rates.gpu}", report)
    return figure


def by_rows(report: Benchmark) -> Figure | None:
    """Heat maps, kernels by rows of A: against the best peer, and the roofline."""
    table = by_cells(report)
    if not table.kernels:
        return None
    figure = blank(13.5, 1.9 + 0.3 * len(table.kernels))
    left, right = figure.subplots(1, 2, sharey=True)
    _heat(left, table, "time of the best peer / our time", RATIOS, "ratio")
    _heat(right, table, "share of the roofline", SHARES, "share")
    _headline(figure, "Speed by kernel and rows (M), geometric means", report)
    return figure


def _heat(axes: Axes, table: Grid, title: str, scale: Scale, value: str) -> None:
    for line, cells in enumerate(table.kernels.values()):
        for column, label in enumerate(table.columns):
            if label not in cells:
                continue
            number = getattr(cells[label], value)
            place = (column - 0.5, line - 0.5)
            axes.add_patch(Rectangle(place, 1, 1, color=scale.colour(number)))
            axes.text(
                column, line, f"{number:.2f}", ha="center", va="center", fontsize=7
            )
    axes.set_xlim(-0.5, len(table.columns) - 0.5)
    axes.set_ylim(len(table.kernels) - 0.5, -0.5)
    axes.set_xticks(range(len(table.columns)), table.columns, fontsize=7, rotation=30)
    axes.set_yticks(range(len(table.kernels)), list(table.kernels), fontsize=7)
    axes.tick_params(length=0)
    axes.set_title(title, loc="left", fontsize=9)
    bare(axes, "left", "bottom")


_DRAWN: dict[str, Callable[[Benchmark], Figure | None]] = {
    "ratios.png": ratios,
    "by_rows.png": by_rows,
    "speed.png": speed,
    "roofline.png": roofline,
}


def _headline(figure: Figure, title: str, report: Benchmark) -> None:
    facts = report.environment
    made = [
        f"{key} {facts[key]}" for key in ("torch", "triton", "date") if key in facts
    ]
    style.headline(figure, title, ", ".join([facts.get("gpu", ""), *made]))


def _spelled(row: Row) -> str:
    return " × ".join(map(str, row.shape))
