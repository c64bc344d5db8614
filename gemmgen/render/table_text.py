"""The text of a dispatch table: a line a row, its columns aligned."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gemmgen.base.names import WIDTH, grouped
from gemmgen.render.names.parts import shared
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import FILL, Product, Rates, Tile
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row
from gemmgen.select.tuned.layers import Pin


@dataclass(frozen=True)
class TableText:
    """A plan's table, and what is said above it."""

    plan: Plan

    @property
    def full(self) -> bool:
        """Whether some row of the table is for full waves alone."""
        return any(row.full for row in self.plan.rows)

    @property
    def doc(self) -> str:
        """How a call finds its row, and who chose them."""
        costs = (
            "Of rows with rates it takes the one whose predicted time, in "
            "microseconds, is the least."
        )
        full = "One that asks for FULL waves takes sizes whose tiles keep all SMs busy."
        standing = (
            "One with from_side stands for tiles of so many rows up to m; if warps cut "
            "m, of so many columns up to n."
        )
        clusters = "Clusters of CTAs need Triton 3.8."
        described = any(schedule_of(row.tile).described for row in self.plan.rows)
        by_tma = ", and those by TMA if that cannot move its tensors" * described
        layers = "Rows of a layer come first: they serve its N and K alone."
        told = [
            *([layers] if any(row.pin for row in self.plan.rows) else []),
            *([costs] if self.timed else []),
            *([standing] if any(row.tile.from_side for row in self.plan.rows) else []),
            *([clusters] if any(row.tile.ctas > 1 for row in self.plan.rows) else []),
            "A call passes over tiles that need more shared memory than its GPU has"
            f"{by_tma}.",
            *([full] if self.full else []),
            f"{self.plan.chosen_by}.",
        ]
        first = (
            "A call takes the first row with sm up to its GPU's and M, N, K no less "
            "than its own."
        )
        return f'"""{first}\n\n{textwrap.fill(" ".join(told), WIDTH)}\n"""'

    @property
    def timed(self) -> dict[str, Rates]:
        """The rates of timed rows, by the name that these have for them."""
        return {_name(row): row.timed.rates for row in self.plan.rows if row.timed}

    @property
    def rates(self) -> list[str]:
        """Lines that say how fast GPUs are."""
        found = []
        for name, rates in self.timed.items():
            told = [f"{key}={_number(value)}" for key, value in rates._asdict().items()]
            found.append(f"{name} = Rates{grouped([told])}  # fmt: skip")
        return found

    @property
    def tile_module(self) -> str:
        """The module of tables, as the file names it."""
        return shared(self.plan, "tile")

    @property
    def imports(self) -> list[str]:
        """The names that the file takes from the module of tables."""
        rows = self.plan.rows
        used = {
            "ANY": any(limit is None for row in rows for limit in row.limits),
            "FILL": any(row.tile.split_k < 0 for row in rows),
            "FULL": self.full,
        }
        rates = ["Rates"] if self.timed else []
        return [*(name for name, needed in used.items() if needed), *rates, "Tile"]

    @property
    def rows(self) -> list[str]:
        """The dispatch table, its columns aligned under their names.

        A target's layers stand before its other rows, in columns of their own.
        """
        more = ["waves"] if self.full or self.timed else []
        more += _COSTS if self.timed else []
        names = [*_COLUMNS, *more]
        plain = [
            [*self._cells(row, len(names)), self._standing(row)]
            for row in self.plan.rows
            if not row.pin
        ]
        width = max((len(standing) for *_, standing in plain), default=0)
        plain = [[*cells, standing.ljust(width)] for *cells, standing in plain]
        heads, *lines = _aligned([[*names, ""], *plain])
        left, found = iter(lines), list[str]()
        for pinned, rows in groupby(self.plan.rows, key=lambda row: bool(row.pin)):
            if pinned:
                found += ["# Layers:", *self._layers([*rows]), "# All others:"]
            else:
                found += [heads, *(next(left) for _ in rows)]
        return found

    def _layers(self, rows: Sequence[Row]) -> list[str]:
        """The rows of a target's layers, each with what was timed."""
        pairs = [(row, row.pin) for row in rows if row.pin]
        width = len(_COLUMNS)
        cells = [
            [*self._cells(row, width), f"from_rows={pin.least}"] for row, pin in pairs
        ]
        heads, *lines = _aligned([[*_COLUMNS, ""], *cells])
        return [heads.rstrip(), *map(_with_times, lines, (pin for _, pin in pairs))]

    def _cells(self, row: Row, width: int) -> list[str]:
        return _cells(row, self.plan.product)[:width]

    def _standing(self, row: Row) -> str:
        """Which tiles the row's stands for, and which of them have a stage more.

        Of a cluster's how many CTAs share it.
        """
        named = {
            "from_side": row.tile.from_side,
            "deep": row.deep(self.plan.product),
            "ctas": row.tile.ctas if row.tile.ctas > 1 else 0,
        }
        return ", ".join(f"{name}={value}" for name, value in named.items() if value)


_COLUMNS = (
    *("schedule", "sm", "M", "N", "K"),
    *("m", "n", "k", "group_m", "split_k", "stages", "warps"),
    "shared",
)
_COSTS = ("block", "once", "launch", "resident", "rates")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line of names, then a tile a line, every column as wide as it needs."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    heads, *lines = [
        ", ".join(
            [cells[0].ljust(widths[0])]
            + [
                cell.rjust(width)
                for cell, width in zip(cells[1:], widths[1:], strict=True)
            ]
        ).rstrip(", ")
        for cells in rows
    ]
    heads = heads.replace(",", " ")
    return [f"#    {heads}", *(f"Tile({_commas_first(line)})," for line in lines)]


def _with_times(line: str, pin: Pin) -> str:
    """A layer's row, with what was timed."""
    taken, otherwise = (f"{1e6 * one:.2f}" for one in (pin.seconds, pin.otherwise))
    return f"{line}  # {taken} us at {pin.at} rows, else {otherwise}"


def _commas_first(line: str) -> str:
    """Move the comma of a padded first cell beside its text."""
    head, quote, rest = line.rpartition('"')
    padding = len(rest) - len(rest.lstrip(" "))
    return f"{head}{quote},{' ' * padding}{rest[padding + 1:]}"


def _cells(row: Row, product: Product) -> list[str]:
    """One row of the table, a cell for each of `_COLUMNS`, and one for its waves."""
    tile = row.tile
    limits = ["ANY" if one is None else str(one) for one in row.limits]
    split_k = str(tile.split_k)
    if tile.split_k < 0:
        times = tile.split_k // FILL
        split_k = "FILL" if times == 1 else f"{times} * FILL"
    sizes = (tile.m, tile.n, tile.k, tile.group_m)
    return [
        f'"{tile.schedule}"',
        str(row.architecture),
        *limits,
        *map(str, sizes),
        split_k,
        *map(str, (tile.stages, tile.warps, row.shared_memory(product))),
        *_costs(row),
    ]


def _costs(row: Row) -> tuple[str, ...]:
    """Whether waves must be full, and what a tile costs, where that is known."""
    if row.timed is None:
        return ("FULL" if row.full else "", *[""] * len(_COSTS))
    numbers = (f"{number:.4g}" for number in row.timed[:-1])
    return ("0", *numbers, _name(row))


def _name(row: Row) -> str:
    """`SM_90`."""
    return row.target.name.upper()


def _number(value: float) -> str:
    """A number of four digits, as Python has it."""
    return f"{round(value):_}" if value >= 1000 else f"{value:.4g}"


def config(tile: Tile) -> str:
    """A tile as Triton's autotuner takes it."""
    how = f"group_m={tile.group_m}, stages={tile.stages}, warps={tile.warps}"
    return f"config({tile.m}, {tile.n}, {tile.k}, {how})"
