"""The times of a report of `gemmgen bench`, by contestant and number of rows."""

import json
from pathlib import Path
from typing import Any

from gemmgen.base.errors import UsageError
from gemmgen.base.files import blamed, contents, shown
from gemmgen.explanation.facts import Argument
from gemmgen.spec.shapes import parse

Raced = dict[str, list[tuple[int, float]]]
"""Rows of A and seconds, in the order of rows, of each who took part."""
_MOST_BYTES = 2**26
_HARNESS = ("again", "empty")
"""Contestants that tell how a race went: the kernel once more, a call of nothing."""


def raced(path: Path, told: Argument) -> Raced:
    """The times of the kernel at the shape's N and K.

    Raises `UsageError` for a file that is no such report, or has no such times.
    """
    with blamed("read", path):
        text = contents(path, _MOST_BYTES)
    try:
        rows = json.loads(text)["rows"]
        found = _found([row for row in rows if row["kernel"] == told.kernel], told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message = f"{shown(path)} is no report of gemmgen bench --report FILE.json"
        raise UsageError(message) from None
    if not found:
        layer = parse(told.shape).layer
        message = f"{shown(path)} has no times of {told.kernel} at N x K of {layer}"
        raise UsageError(message)
    return found


def _found(rows: list[Any], told: Argument) -> Raced:
    layer, found = parse(told.shape).layer, Raced()
    for shape, timings in ((parse(row["shape"]), row["timings"]) for row in rows):
        for name, one in timings.items():
            if shape.layer == layer and name not in _HARNESS:
                found.setdefault(name, []).append((shape.m, float(one["median"])))
    return {name: sorted(times) for name, times in found.items()}
