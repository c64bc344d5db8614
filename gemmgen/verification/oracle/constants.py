"""The numbers of the oracle: what it computes with and what `explain --error` prints.

None was fitted to a kernel. Nothing here imports torch.
"""

import math

from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES

COLUMNS = 32
"""Columns of K between two prefix sums of the oracle."""

UNIT_COLUMNS = 8
STEP_UNITS = 10.0
"""Units that a matrix unit may lose in adding `UNIT_COLUMNS` columns.

It adds p products aligned to the largest and cut to g extra bits: at most
(p 2^-g + 1) units for p columns, 10 for 8 on the coarsest unit known (V100).
"""

STEP_ERROR = STEP_UNITS * COLUMNS / UNIT_COLUMNS
"""The same for the `COLUMNS` between two prefix sums."""

_CUT_WHOLE = 2.0**11

DIVISION = {"fp32": 4.0, "fp64": 1.0}
"""Roundoffs of a division: fp32's is `div.full.f32`, good to 2 ulp, never exact."""

MOVED = {
    "+": "e(x) + e(y)",
    "-": "e(x) + e(y)",
    "*": "|x| e(y) + |y| e(x) + e(x) e(y)",
    "/": "(e(x) + |f| e(y)) / (|y| - e(y)); no bound where y may be 0",
    "where": "that of the branch; either branch where e leaves the comparison open",
}
"""In words: how far an operator's result moves when its arguments do (`bounded`)."""

OPERAND_LIMIT = 4
"""The largest whole number in operands of the epilogue, where sums are to be exact."""

_NARROW_PART = 0.2


def operator_units(op: str, accumulator: str) -> float:
    """The roundoffs that an operator makes, relative to its result."""
    return {"/": DIVISION[accumulator], "where": 0.0}.get(op, 1.0)


def accumulator_unit(accumulator: str) -> float:
    """A unit in the accumulator's last place, for matrix units cut and do not round."""
    return 2 * DTYPES[accumulator].roundoff


def cut_of(plan: Plan) -> float:
    """What cutting the operands costs, relative to the sum of absolute products."""
    return plan.product.mma.cut


def exact_sum(plan: Plan) -> float:
    """Sums of whole numbers are exact if their absolute products add up to no more."""
    return 0.5 / DTYPES[plan.accumulator].roundoff


def exact_whole(plan: Plan) -> float:
    """Whole numbers up to this lose nothing on the way to the product."""
    return _CUT_WHOLE if cut_of(plan) else math.inf


def wide_limit(plan: Plan, k: int) -> int:
    """Whole numbers up to this fill the accumulator and no more."""
    stored = 1 / DTYPES[plan.dtype].roundoff
    fits = math.sqrt(exact_sum(plan) / max(1, k))
    return int(min(fits, stored, exact_whole(plan)))


def narrow_products(plan: Plan) -> float:
    """So many signs add up to a sum that fits every result's type exactly."""
    coarsest = max(DTYPES[result.dtype].roundoff for result in plan.results)
    return (_NARROW_PART / coarsest) ** 2


def narrow_density(plan: Plan, k: int) -> float:
    """The share of the signs that are not 0."""
    return min(1.0, narrow_products(plan) / max(1, k))
