"""A launcher's table, and what its rows come from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from gemmgen.cost.resources import fits, shared_memory
from gemmgen.hardware.targets import TARGETS, Rates, Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import (
    MOST_STAGES,
    Product,
    Tile,
    nearest_fitting,
)
from gemmgen.select.model_table import modelled, narrow, one_column
from gemmgen.select.tuned.costs import Timed
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.layers import Pin
from gemmgen.spec.shapes import Layer


@dataclass(frozen=True)
class Row:
    """For GPUs from `architecture` on and sizes up to M, N, K (None: any), a tile.

    If `full`, only for M and N whose tiles fill the last wave of SMs. Of those that
    were `timed` a call takes the one that is predicted to be the fastest. With a `pin`
    it is for the rows of that, and for these very N and K.
    """

    architecture: int
    m: int | None
    n: int | None
    tile: Tile
    k: int | None = None
    full: bool = False
    timed: Timed | None = None
    pin: Pin | None = None

    def serves(self, sizes: tuple[int, int, int]) -> bool:
        """Whether M, N, K are within its limits."""
        if self.pin:
            m, *layer = sizes
            return self.pin.least <= m <= self.pin.most and layer == [self.n, self.k]
        pairs = zip(sizes, self.limits, strict=True)
        return all(most is None or size <= most for size, most in pairs)

    @property
    def limits(self) -> tuple[int | None, int | None, int | None]:
        """The largest M, N and K that it serves."""
        return self.m, self.n, self.k

    @property
    def target(self) -> Target:
        """The target that it was chosen for."""
        return BY_ARCHITECTURE[self.architecture]

    def deep(self, product: Product) -> tuple[int, ...]:
        """The sides up to which tiles that it stands for have one more stage each."""
        return _deep(self.tile, product, self.target)

    def tiles(self, product: Product) -> tuple[Tile, ...]:
        """What its tile stands for, on that target."""
        return _stood_for(self.tile, product, self.target)

    def tile_for(self, sizes: tuple[int, int, int], product: Product) -> Tile:
        """The one of these that a launcher takes, the fastest by its costs."""
        first, *others = self.tiles(product)
        if not (others and self.timed):
            return first
        found, _ = self.timed.fastest(self.tile, product, sizes, self.target.sms)
        side = found.shared_side
        return next(tile for tile in (first, *others) if tile.shared_side == side)

    def shared_memory(self, product: Product) -> int:
        """Bytes of shared memory that its tiles take at most on that target."""
        return _most_memory(self.tile, product, self.target)

    def runs_on(self, device: Target, product: Product) -> bool:
        """Whether launchers take the tile for a GPU no older than its target."""
        launched = self.tile.launched._replace(
            sm=self.architecture, shared=self.shared_memory(product)
        )
        return launched.runs_on(device.architecture, device.shared_per_block)


def _deep(tile: Tile, product: Product, target: Target) -> tuple[int, ...]:
    members = tile.members if tile.from_side else ()
    found: list[int] = []
    while tile.stages + len(found) < MOST_STAGES:
        more, last = len(found) + 1, 0
        for member in members:
            if not fits(_deeper(member, more), product, target):
                break
            last = member.shared_side
        if not last:
            break
        found.append(last)
    return tuple(found)


@cache  # asked of each row for each call whose choice is verified
def _stood_for(tile: Tile, product: Product, target: Target) -> tuple[Tile, ...]:
    deep = _deep(tile, product, target)
    return tuple(
        _deeper(member, sum(member.shared_side <= most for most in deep))
        for member in tile.members
    )


@cache
def _most_memory(tile: Tile, product: Product, target: Target) -> int:
    tiles = _stood_for(tile, product, target)
    return max(shared_memory(one, product, target) for one in tiles)


def _deeper(tile: Tile, more: int) -> Tile:
    return replace(tile, stages=tile.stages + more)


BY_ARCHITECTURE = {target.architecture: target for target in TARGETS.values()}


@dataclass(frozen=True)
class Table:
    """What the rows of a target come from: times, or tiles that the model judges.

    `rates` are those of the target, calibrated or not. `measured` are rules, and
    `unaligned` those for tensors that no descriptor can describe; rows with `costs`
    take the place of rules. Rows of `layers` come before all others. Where nothing was
    measured, the model chooses among `tiles`. After the `last` of a module's tables
    comes no row that a GPU could take instead.
    """

    target: str
    rates: Rates
    measured: tuple[Row, ...]
    tiles: tuple[Tile, ...]
    last: bool = False
    unaligned: tuple[Row, ...] = ()
    costs: tuple[Row, ...] = ()
    layers: tuple[Row, ...] = ()

    def rows(self, product: Product) -> tuple[Row, ...]:
        """The rows, in the order in which a launcher looks."""
        rows = self.measured or self.costs
        if rows and self.tiles:
            leading = narrow if self.costs else one_column
            before = leading(self.tiles, product, self.gpu)
            rows = (*(row(self.gpu, rule) for rule in before), *rows)
        rows += tuple(
            row for row in self.unaligned if self.measured or not _taken(row, rows)
        )
        if not (rows and _serves_all(rows[-1])):
            rows += self.modelled(product, rest=bool(rows))
        if self.last:
            rows = (*rows, *_spare(rows[-1], product))
        rows = (*self.layers, *rows)
        return tuple(dict.fromkeys(rows))  # no call passes the first of equal ones

    def modelled(self, product: Product, *, rest: bool) -> tuple[Row, ...]:
        """What the model chooses, of the `rest` for tensors of any rows."""
        rules = modelled(self.tiles, product, self.gpu, rest=rest) if self.tiles else ()
        return tuple(row(self.gpu, rule) for rule in rules)

    @property
    def gpu(self) -> Target:
        """The target."""
        return replace(TARGETS[self.target], rates=self.rates)


def joined(tables: Sequence[Table], product: Product) -> tuple[Row, ...]:
    """The rows of a module's tables, the newest target's first.

    Those that all tables begin with come once, for GPUs from the oldest on.
    """
    parts = [table.rows(product) for table in tables]
    shared = 0
    for rows in zip(*parts, strict=False):
        if len({replace(row, architecture=0) for row in rows}) > 1:
            break
        shared += 1
    first = parts[-1][:shared] if parts else ()
    return (*first, *(row for part in parts for row in part[shared:]))


def _taken(row: Row, before: Sequence[Row]) -> bool:
    """Whether a row before it that no tensor passes over takes all its calls."""
    return any(
        not (schedule_of(one.tile).described or one.full or one.pin)
        and all(
            most is None or (least is not None and least <= most)
            for least, most in zip(row.limits, one.limits, strict=True)
        )
        for one in before
    )


def _serves_all(row: Row) -> bool:
    """Whether no call passes a row over."""
    return not schedule_of(row.tile).needs_aligned and row.limits == (None, None, None)


def _spare(last: Row, product: Product) -> tuple[Row, ...]:
    """A row for GPUs newer than the last row's that do not hold its tile, if any.

    It serves every shape as that does, so whatever GPU may take it has a row.
    """
    newer = [
        target for target in TARGETS.values() if target.architecture > last.architecture
    ]

    def everywhere(tile: Tile) -> bool:
        row = replace(last, tile=tile)
        return all(row.runs_on(device, product) for device in newer)

    found = nearest_fitting(last.tile, everywhere)
    return () if found in (None, last.tile) else (replace(last, tile=found),)


def row(target: Target, rule: Rule) -> Row:
    """The row of a rule."""
    m, n, k = (None if most == ANY else int(most) for most in rule.limits)
    return Row(target.architecture, m, n, rule.tile, k, rule.full)


def pinned(target: Target, layer: Layer, pin: Pin) -> Row:
    """The row of a layer's tile."""
    return Row(target.architecture, pin.most, layer.n, pin.tile, layer.k, pin=pin)
