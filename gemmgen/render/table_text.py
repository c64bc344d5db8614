"""The text of a dispatch table: a line a row, its columns aligned."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gemmgen.base.names import WIDTH, grouped
from gemmgen.render.names.parts import shared
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import FILL, GROUP_M, Product, Rates, Tile
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
        names = [*_COLUMNS, *(_COSTS if self.timed else [])]
        plain = [row for row in self.plan.rows if not row.pin]
        heads, *lines = _aligned(
            [names, *(self._cells(row, len(names)) for row in plain)],
            [self._more(row) for row in plain],
        )
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
        heads, *lines = _aligned(
            [_COLUMNS, *(self._cells(row, width) for row, _ in pairs)],
            [self._more(row, from_rows=pin.least) for row, pin in pairs],
        )
        return [heads, *map(_with_times, lines, (pin for _, pin in pairs))]

    def _cells(self, row: Row, width: int) -> list[str]:
        return _cells(row, self.plan.product)[:width]

    def _more(self, row: Row, from_rows: int = 0) -> str:
        """What only some rows say: groups, full waves, what they stand for, CTAs."""
        tile = row.tile
        named = {
            "group_m": tile.group_m if tile.group_m != GROUP_M else 0,
            "waves": "FULL" if row.full else 0,
            "from_rows": from_rows,
            "from_side": tile.from_side,
            "deep": row.deep(self.plan.product),
            "ctas": tile.ctas if tile.ctas > 1 else 0,
        }
        return ", ".join(f"{name}={value}" for name, value in named.items() if value)


_COLUMNS = (
    *("schedule", "sm", "M", "N", "K"),
    *("m", "n", "k", "split_k", "stages", "warps", "shared"),
)
_COSTS = ("block", "once", "launch", "resident", "rates")


def _aligned(rows: Sequence[Sequence[str]], more: Sequence[str]) -> list[str]:
    """A line of names, then a tile a line, every column as wide as it needs.

    Behind a tile's last cell comes what `more` it says, by name.
    """
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
    tiles = (
        ", ".join(filter(None, (_commas_first(line), named)))
        for line, named in zip(lines, more, strict=True)
    )
    return [f"#    {heads}", *(f"Tile({tile})," for tile in tiles)]


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
    """One row of the table, a cell for each of `_COLUMNS` and `_COSTS`."""
    tile = row.tile
    limits = ["ANY" if one is None else str(one) for one in row.limits]
    split_k = str(tile.split_k)
    if tile.split_k < 0:
        times = tile.split_k // FILL
        split_k = "FILL" if times == 1 else f"{times} * FILL"
    return [
        f'"{tile.schedule}"',
        str(row.architecture),
        *limits,
        *map(str, (tile.m, tile.n, tile.k)),
        split_k,
        *map(str, (tile.stages, tile.warps, row.shared_memory(product))),
        *_costs(row),
    ]


def _costs(row: Row) -> tuple[str, ...]:
    """What a tile costs, where that is known."""
    if row.timed is None:
        return ("",) * len(_COSTS)
    numbers = (f"{number:.4g}" for number in row.timed[:-1])
    return (*numbers, _name(row))


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
