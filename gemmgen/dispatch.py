"""A launcher's table, and what its rows come from."""

from dataclasses import dataclass

from gemmgen.choice import modelled
from gemmgen.decision import ANY, Rule
from gemmgen.model import Product, Tile
from gemmgen.targets import TARGETS, Target


@dataclass(frozen=True)
class Row:
    """For GPUs from `architecture` on and sizes up to M, N, K (None: any), a tile."""

    architecture: int
    m: int | None
    n: int | None
    tile: Tile
    k: int | None = None


@dataclass(frozen=True)
class Table:
    """What the rows of a target come from: `measured` ones, or tiles to choose from.

    The model chooses among `tiles`; after measured rows, for tensors that no descriptor
    can describe.
    """

    target: str
    measured: tuple[Row, ...]
    tiles: tuple[Tile, ...]

    def rows(self, product: Product) -> tuple[Row, ...]:
        """The rows, in the order in which a launcher looks."""
        target, rest = TARGETS[self.target], bool(self.measured)
        rules = modelled(self.tiles, product, target, rest=rest) if self.tiles else ()
        return (*self.measured, *(row(target, rule) for rule in rules))


def row(target: Target, rule: Rule) -> Row:
    """The row of a rule."""
    m, n, k = (None if most == ANY else int(most) for most in rule.limits)
    return Row(target.architecture, m, n, rule.tile, k)
