"""A benchmark as text for the terminal and as Markdown."""

from collections.abc import Mapping, Sequence

from gemmgen.base.text_table import table
from gemmgen.benchmark.results import (
    OURS,
    PRIVATE,
    Benchmark,
    CallTime,
    Row,
    geometric_mean,
    ratios,
)

Cells = dict[str, str]


def as_text(report: Benchmark) -> str:
    """A row a shape, a row a kernel, and what the figures mean."""
    parts = [table([_cells(row) for row in report.rows])]
    parts.append(table(summary(report)))
    if report.calls:
        parts.append(table([_call_cells(call) for call in report.calls]))
    parts += [*_problems(report), "\n".join(notes(report))]
    return "\n\n".join(parts)


def as_markdown(report: Benchmark, command: str) -> str:
    """The tables for a report that is kept; `command` made it."""
    parts = [f"Made by `{command}`."]
    parts.append("\n".join(f"- {line}" for line in notes(report)))
    parts.append(_markdown(summary(report)))
    for name, rows in report.kernels.items():
        parts.append(f"## {name}")
        parts += ["\n".join(f"- {line}" for line in _texts(rows))]
        parts.append(_markdown([_long_cells(row) for row in rows]))
    if report.calls:
        parts += [
            "## CPU time of a call",
            _markdown(list(map(_call_cells, report.calls))),
        ]
    parts += _problems(report)
    return "\n\n".join(parts) + "\n"


def summary(report: Benchmark) -> list[Cells]:
    """A row a kernel: mean and lowest ratio, to the best peer and to each; then all."""
    rows = [_summed(name, rows) for name, rows in report.kernels.items()]
    if len(rows) > 1:
        rows.append(_summed("all", report.rows))
    return rows


def notes(report: Benchmark) -> list[str]:
    """What made the figures and how to read them."""
    facts = ", ".join(f"{key} {value}" for key, value in report.environment.items())
    roofline = report.roofline
    kinds = dict.fromkeys(row.kind for row in report.rows)
    rates = ", ".join(f"{kind} {roofline.flops[kind] / 1e12:.0f}" for kind in kinds)
    return [
        f"{facts}.",
        "One process, rounds that take every call once in shuffled order, L2 flushed "
        f"before each ({report.flushed_bytes / 2**20:.0f} MiB written and read), "
        "random normal data, GPU time, medians; ± is the interquartile range.",
        "ratio: the best peer's time over ours, above 1 ours is faster; private ones "
        f"({', '.join(PRIVATE)}) are not among the best. `to` a peer: geometric mean "
        "and lowest. noise: the same kernel raced against itself. error: root mean "
        "square against float64, relative.",
        f"An empty call takes {report.empty * 1e6:.2f} µs; it is not subtracted.",
        "roofline: by the rates of gemmgen/hardware/targets.py for "
        f"{roofline.gpu}, {rates} TFLOP/s and {roofline.bandwidth / 1e12:.2f} TB/s, "
        "sustained: a short burst can be faster.",
    ]


def _cells(row: Row) -> Cells:
    best = row.best
    return {
        "kernel": row.kernel,
        "MxNxK": str(row.shape),
        **_figures(row),
        "best peer": best or "",
        "peer µs": _microseconds(row.timings[best].median) if best else "",
        "ratio": _ratio(row.ratio),
        "noise": f"{row.noise:.1%}",
        "error": _error(row.errors.get(OURS)),
        "torch's": _error(row.errors.get("torch")) if "torch" in row.errors else "",
    }


def _figures(row: Row) -> Cells:
    return {
        "µs": _microseconds(row.ours.median),
        "±": f"{row.ours.spread:.1%}",
        "TFLOP/s": f"{row.flops / 1e12:.1f}",
        "GB/s": f"{row.bandwidth / 1e9:.0f}",
        "roofline": f"{row.share:.0%}",
    }


def _long_cells(row: Row) -> Cells:
    """With the time of every peer."""
    peers = {
        f"{name}, µs": _microseconds(one.median) for name, one in row.peers.items()
    }
    errors = {
        "error": _error(row.errors.get(OURS)),
        "torch's error": _error(row.errors.get("torch")),
    }
    ratio = {"ratio": _ratio(row.ratio), "noise": f"{row.noise:.1%}"}
    return {"M x N x K": str(row.shape), **_figures(row), **peers, **ratio, **errors}


def _texts(rows: Sequence[Row]) -> list[str]:
    """What each peer computes, once."""
    texts = {name: text for row in rows for name, text in row.texts.items()}
    return [
        f"`{name}`: `{text.replace(chr(10), '; ')}`" for name, text in texts.items()
    ]


def _summed(name: str, rows: Sequence[Row]) -> Cells:
    cells = {"kernel": name, "shapes": str(len(rows))}
    raced = ratios(rows)
    if raced:
        lowest, row = min(raced, key=lambda pair: pair[0])
        cells["geometric mean"] = _ratio(geometric_mean(ratio for ratio, _ in raced))
        cells |= {"lowest": _ratio(lowest), "at": str(row.shape)}
    cells["largest noise"] = f"{max(row.noise for row in rows):.1%}"
    for peer in dict.fromkeys(peer for row in rows for peer in row.peers):
        values = [ratio for ratio, _ in ratios(rows, peer)]
        cells[f"to {peer}"] = f"{_ratio(geometric_mean(values))} ({min(values):.2f})"
    return cells


def _call_cells(call: CallTime) -> Cells:
    return {
        "kernel": call.kernel,
        "MxNxK": str(call.shape),
        "CPU µs": _microseconds(call.timings[OURS].median),
        "torch, CPU µs": _microseconds(call.timings["torch"].median),
        "ours / torch": _ratio(call.ratio),
    }


def _problems(report: Benchmark) -> list[str]:
    """Wrong results, and peers that could not take part."""
    wrong = [
        f"{row.kernel} at {row.shape} is WRONG: {row.outside} elements are beyond the "
        "bound that `gemmgen verify` holds them to"
        for row in report.rows
        if row.outside
    ]
    failed = [
        f"{row.kernel} at {row.shape}: peer {name} could not run: {why}"
        for row in report.rows
        for name, why in row.failed.items()
    ]
    return ["\n".join([*wrong, *failed])] if wrong or failed else []


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _error(value: float | None) -> str:
    return "none finite" if value is None else f"{value:.1e}"


def _markdown(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, ["---"] * len(keys)]
    lines += [[row.get(key, "") for key in keys] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
