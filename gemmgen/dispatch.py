"""A launcher's table, and what its rows come from."""

from dataclasses import dataclass, replace

from gemmgen.choice import modelled
from gemmgen.decision import ANY, Rule
from gemmgen.model import Product, Tile
from gemmgen.targets import TARGETS, Rates, Target


@dataclass(frozen=True)
class Row:
    """For GPUs from `architecture` on and sizes up to M, N, K (None: any), a tile.

    If `full`, only for M and N whose tiles fill the last wave of SMs.
    """

    architecture: int
    m: int | None
    n: int | None
    tile: Tile
    k: int | None = None
    full: bool = False

    @property
    def limits(self) -> tuple[int | None, int | None, int | None]:
        """The largest M, N and K that it serves."""
        return self.m, self.n, self.k


@dataclass(frozen=True)
class Table:
    """What the rows of a target come from: `measured` ones, or tiles to choose from.

    `rates` are those of the target, calibrated or not. The model chooses among `tiles`;
    after measured rows, for tensors that no descriptor can describe.
    """

    target: str
    rates: Rates
    measured: tuple[Row, ...]
    tiles: tuple[Tile, ...]

    def rows(self, product: Product) -> tuple[Row, ...]:
        """The rows, in the order in which a launcher looks."""
        rest = bool(self.measured)
        rules = modelled(self.tiles, product, self.gpu, rest=rest) if self.tiles else ()
        return (*self.measured, *(row(self.gpu, rule) for rule in rules))

    @property
    def gpu(self) -> Target:
        """The target."""
        return replace(TARGETS[self.target], rates=self.rates)


def row(target: Target, rule: Rule) -> Row:
    """The row of a rule."""
    m, n, k = (None if most == ANY else int(most) for most in rule.limits)
    return Row(target.architecture, m, n, rule.tile, k, rule.full)
