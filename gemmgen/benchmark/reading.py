"""A run of `gemmgen bench` from the JSON that it left, and several runs as one."""

from collections.abc import Mapping, Sequence
from typing import Any

from gemmgen.base.errors import UsageError
from gemmgen.benchmark.results import Benchmark, CallTime, Roofline, Row
from gemmgen.measurement import Timing
from gemmgen.spec.shapes import parse

_DATE = "date"


def from_json(values: Mapping[str, Any]) -> Benchmark:
    """The run that `as_json` gave."""
    return Benchmark(
        environment=values["environment"],
        roofline=Roofline(**values["roofline"]),
        flushed_bytes=values["flushed_bytes"],
        rows=tuple(map(_row, values["rows"])),
        calls=tuple(
            CallTime(call["kernel"], parse(call["shape"]), _timings(call["timings"]))
            for call in values["calls"]
        ),
    )


def together(runs: Sequence[Benchmark]) -> Benchmark:
    """The rows of all runs; `UsageError` unless GPU and versions are the same.

    The date is that of each, or of the first and the last.
    """
    first, *others = runs
    for other in others:
        for key, value in first.environment.items():
            if key != _DATE and other.environment.get(key) != value:
                there = other.environment.get(key)
                raise UsageError(f"one report is of {key} {value}, one of {there}")
    dates = sorted({run.environment[_DATE] for run in runs})
    date = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return Benchmark(
        environment={**first.environment, _DATE: date},
        roofline=first.roofline,
        flushed_bytes=first.flushed_bytes,
        rows=tuple(row for run in runs for row in run.rows),
        calls=tuple(call for run in runs for call in run.calls),
    )


def _row(values: Mapping[str, Any]) -> Row:
    return Row(
        values["kernel"],
        values["kind"],
        parse(values["shape"]),
        values["traffic"],
        values["roofline"],
        _timings(values["timings"]),
        values["errors"],
        values["outside"],
        values["texts"],
        values["failed"],
        values.get("rights", 1),
    )


def _timings(values: Mapping[str, Any]) -> dict[str, Timing]:
    return {name: Timing(**one) for name, one in values.items()}
