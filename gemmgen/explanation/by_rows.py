"""What serves each number of rows at fixed N and K: where waves begin, tiles change."""

import math
from dataclasses import replace

from gemmgen.explanation.facts import Served
from gemmgen.explanation.serving import Case
from gemmgen.select.tuned.tile_text import format_tile

_AT_LEAST = 512
"""Rows that are looked at, however few the shape has: waves begin beyond one tile."""
_STEP, _STEPS = 8, 256
"""Rows of descriptors begin at multiples of eight elements, where A lies along M."""


def over_rows(case: Case) -> tuple[Served, ...]:
    """One row, then equal steps to twice the shape's rows, and what was measured."""
    most = max(2 * case.shape.m, _AT_LEAST)
    step = _STEP * math.ceil(most / (_STEP * _STEPS))
    return tuple(
        _served(case, rows)
        for rows in sorted({1, *range(step, most + 1, step), *_timed(case, most)})
    )


def _timed(case: Case, most: int) -> set[int]:
    """The rows at which the tuning file has times, of the same N and K."""
    shapes = case.measured.times if case.measured else ()
    here = case.shape.sizes[1:]
    return {one.m for one in shapes if one.sizes[1:] == here and one.m <= most}


def _served(case: Case, rows: int) -> Served:
    here = replace(case, shape=case.shape._replace(m=rows))
    tile = here.tile
    return Served(
        rows,
        format_tile(tile),
        tile.schedule,
        tile.warps,
        here.seconds(tile),
        max(here.roofs),
        here.times.get(tile),
    )
