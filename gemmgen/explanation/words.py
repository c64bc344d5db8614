"""What sections of the argument are written with: units, tables that do not wrap."""

from gemmgen.base.text_table import table

TIED = "\u00a0"
"""A space at which no line breaks: between a number and its unit, inside tables."""


def aligned(rows: list[dict[str, str]]) -> list[str]:
    """The lines of a table, which are not wrapped."""
    return [line.replace(" ", TIED) for line in table(rows).splitlines()]


def us(seconds: float) -> str:
    """Microseconds, three digits or all before the point."""
    micro = 1e6 * seconds
    return f"{micro:,.1f}{TIED}µs" if micro >= 10 else f"{micro:.2f}{TIED}µs"


def ns(seconds: float) -> str:
    """Whole nanoseconds."""
    return f"{1e9 * seconds:,.0f}{TIED}ns"
