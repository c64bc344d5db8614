"""The text of a dispatch table: a line a row, its columns aligned."""

import textwrap
from dataclasses import dataclass

from gemmgen.render.names import WIDTH
from gemmgen.schedules.parts.tile import FILL, Product
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row


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
        full = "One that asks for FULL waves takes sizes whose tiles keep all SMs busy."
        told = [
            "GPUs that do not have a tile's bytes of shared memory pass it over.",
            *([full] if self.full else []),
            f"{self.plan.chosen_by}.",
        ]
        first = "A call takes the first tile whose sm, M, N and K hold its own."
        return f'"""{first}\n\n{textwrap.fill(" ".join(told), WIDTH)}\n"""'

    @property
    def imports(self) -> list[str]:
        """The names that the file takes from the module of tables."""
        rows = self.plan.rows
        used = {
            "ANY": any(limit is None for row in rows for limit in row.limits),
            "FILL": any(row.tile.split_k < 0 for row in rows),
            "FULL": self.full,
        }
        return [*(name for name, needed in used.items() if needed), "Tile"]

    @property
    def rows(self) -> list[str]:
        """The dispatch table, its columns aligned under their names."""
        waves = ["waves" if self.full else ""]
        cells = (_cells(row, self.plan.product) for row in self.plan.rows)
        rows = [[*_COLUMNS, *waves], *cells]
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


_COLUMNS = (
    *("schedule", "sm", "M", "N", "K"),
    *("m", "n", "k", "group_m", "split_k", "stages", "warps"),
    "shared",
)


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
        "FULL" if row.full else "",
    ]
