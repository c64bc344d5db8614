"""What a kernel's files are made from, as one hash: all that users say of the kernel.

It has no word of how gemmgen holds that, so that no rewording here changes a file.
"""

from dataclasses import astuple

from gemmgen.base import header
from gemmgen.hardware.targets import TARGETS
from gemmgen.render.docs import Description
from gemmgen.select.plan import Plan
from gemmgen.select.table import Table
from gemmgen.select.tuned.tile_text import format_tile


def fingerprint(plan: Plan) -> str:
    """The hash of the resolved entry, and of what tuning files hold for it."""
    tuned = [_tuned(table) for table in plan.tables]
    return header.entry_hash([Description(plan).entry, plan.chosen_by, tuned])


def _tuned(table: Table) -> object:
    """A target's measured rows, its rates where they were fitted, and its layers."""
    layers = [
        [row.pin.least, *row.limits, format_tile(row.tile)]
        for row in table.layers
        if row.pin
    ]
    rows = [[*row.limits, row.full, format_tile(row.tile)] for row in table.measured]
    fitted = table.rates != TARGETS[table.target].rates
    told = [table.target, rows, astuple(table.rates) if fitted else None]
    return [*told, layers] if layers else told
