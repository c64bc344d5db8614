"""Which row of a kernel's table serves a shape, as its launcher looks for it.

The launcher sees tensors; here they are contiguous, at aligned addresses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen.cost.resources import fits
from gemmgen.cost.time import fills, predicted_time
from gemmgen.explanation.facts import Choice, Offer, TableRow
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.schedules import SCHEDULES, described, named, schedule_of, why_not
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.costs import Timed
from gemmgen.select.model_table import describes_operands, serves
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row, Table
from gemmgen.select.tile_text import format_tile
from gemmgen.select.tuning_file import Measured, Tuning
from gemmgen.spec.schema import AUTO
from gemmgen.spec.shapes import Shape
from gemmgen.tables.dtypes import DTYPES

_DESCRIBED = 16
"""Bytes that rows of a described tensor are a multiple of."""


@dataclass(frozen=True)
class Case:
    """A kernel at a shape on a target, with the tuning file of that target, if any."""

    plan: Plan
    shape: Shape
    target: Target
    tuning: Tuning | None

    @property
    def measured(self) -> Measured | None:
        """What the tuning file holds of the kernel."""
        return self.tuning.kernels.get(self.plan.name) if self.tuning else None

    @property
    def times(self) -> dict[Tile, float]:
        """The times measured at this shape."""
        return dict(self.measured.times.get(self.shape, {})) if self.measured else {}

    def seconds(self, tile: Tile) -> float:
        """The predicted time: by what the tile costs, if that is known."""
        timed, sizes = self.timed.get(tile), self.shape.sizes
        if timed:
            return 1e-6 * timed.predicted(tile, sizes, self.target.sms)
        return self.modelled(tile)

    def modelled(self, tile: Tile) -> float:
        """The time that the model predicts."""
        sizes, product = self.shape.sizes, self.plan.product
        return predicted_time(sizes, tile, product, self.target)

    @property
    def timed(self) -> dict[Tile, Timed]:
        """What tiles cost, if calls are served by that."""
        rows = self.table.costs if self.table else ()
        return {row.tile: row.timed for row in rows if row.timed}

    @cached_property
    def table(self) -> Table | None:
        """What the rows of the target come from; None when tiles race at run time."""
        tables = {table.target: table for table in self.plan.tables}
        return tables.get(self.target.name)

    @cached_property
    def candidates(self) -> tuple[Tile, ...]:
        """Tiles that can serve the shape: the table's, and those that were measured."""
        table = self.table
        tiles = table.tiles if table else self.plan.configs
        rows = table.costs or table.measured if table else ()
        if self.timed:  # the model's times of others are no match for them
            tiles = ()
        found = [*(row.tile for row in rows), *tiles, *self.times]
        able = [
            tile
            for tile in dict.fromkeys(found)
            if serves(tile, self.plan.product, self.shape)
            and not undescribed(self.plan, self.shape, tile.schedule)
            and fits(tile, self.plan.product, self.target)
        ]
        return tuple(sorted(able, key=self.seconds))

    @cached_property
    def tile(self) -> Tile:
        """The tile that serves; of racing ones the model's favourite."""
        if self.plan.configs:
            return self.candidates[0]
        return self._first()[1].tile

    @property
    def choice(self) -> Choice:
        """The row that serves, and those that serve other calls of this shape."""
        if self.plan.configs:
            return Choice(format_tile(self.tile), self._raced(), None, {})
        number, row = self._first()
        detours = {}
        if describes_operands(row.tile):
            detours["if none can describe an operand or result"] = self._first(
                all_=False
            )
        if schedule_of(row.tile).described:
            detours["if no descriptor can describe a tensor"] = self._first(plain=True)
        found = self._told(number, row)
        told = {when: self._told(*one) for when, one in detours.items()}
        return Choice(format_tile(row.tile), found.source, found, told)

    def _first(self, *, all_: bool = True, plain: bool = False) -> tuple[int, Row]:
        """The row that serves, and its number: the first, or the best with costs.

        With `plain`, for tensors that no descriptor can describe; unless `all_`, for
        inputs alone that one can.
        """
        serving = (
            (number, row)
            for number, row in enumerate(self.plan.rows, start=1)
            if row.architecture <= self.target.architecture
            and _holds(row, self.shape, self.target)
            and (all_ or not describes_operands(row.tile))
            and not (plain and schedule_of(row.tile).described)
            and not undescribed(self.plan, self.shape, row.tile.schedule)
        )
        number, row = next(serving)
        if row.timed is None:
            return number, row
        timed = [(number, row), *(pair for pair in serving if pair[1].timed)]
        return min(timed, key=lambda pair: self.seconds(pair[1].tile))

    def _told(self, number: int, row: Row) -> TableRow:
        limits = dict(zip("MNK", row.limits, strict=True))
        tile, source = format_tile(row.tile), self._source(row)
        return TableRow(number, len(self.plan.rows), limits, tile, source)

    def _source(self, row: Row) -> str:
        """Who chose a row."""
        table = self.table
        if table and row in (*table.measured, *table.unaligned) and self.tuning:
            return f"timed on {self.tuning.gpu}"
        if table and row in table.costs:
            return f"the least predicted time of {len(table.costs)} tiles with costs"
        tiles = len(table.tiles) if table else 0
        whose = "" if self.plan.tiles_text == AUTO else ", some of them from the spec"
        return f"the model, among {tiles} tiles{whose}; nothing was timed"

    def _raced(self) -> str:
        return (
            f"Triton's autotuner times all {len(self.plan.configs)} tiles at the first "
            "call of each M, N, K; this one the model expects to win"
        )


def _holds(row: Row, shape: Shape, target: Target) -> bool:
    if row.full and not fills(row.tile, shape, target):
        return False
    return all(
        most is None or size <= most
        for size, most in zip(shape.sizes, row.limits, strict=True)
    )


def undescribed(plan: Plan, shape: Shape, schedule: str) -> str | None:
    """Why no descriptor of a schedule can describe contiguous tensors, or None."""
    roles = described(schedule, plan.product.kind)
    for name, size in _described_rows(plan, shape, roles):
        if size % _DESCRIBED:
            return (
                f"rows of {name} are {size:,} bytes, no multiple of {_DESCRIBED}, so "
                "no descriptor can describe it"
            )
    return None


def _described_rows(
    plan: Plan, shape: Shape, roles: frozenset[str]
) -> Iterator[tuple[str, int]]:
    """The tensors of the roles, and the bytes of a row of each."""
    if "inputs" in roles:
        sizes = dict(zip("MNK", shape.sizes, strict=True))
        for matrix in plan.contraction.inputs:
            row = sizes[matrix.stored_sizes[-1]] * plan.product.bytes
            yield matrix.name, row
    if "operands" in roles:
        for operand in plan.operands:
            if operand.is_matrix:
                yield operand.name, shape.n * DTYPES[operand.dtype].bytes
    if "results" in roles:
        for result in plan.results:
            yield result.name, shape.n * DTYPES[result.dtype].bytes


def offers(case: Case) -> tuple[Offer, ...]:
    """Every schedule: why it cannot serve the shape, or its best tile."""
    return tuple(_offer(case, name) for name in SCHEDULES)


def _offer(case: Case, name: str) -> Offer:
    plan, title = case.plan, SCHEDULES[name].title
    reason = why_not(name, Kernel(plan.layout, plan.product, case.target))
    reason = reason or undescribed(plan, case.shape, name)
    passes = _passes(case, name)
    if reason is None and passes > 1:
        reason = f"{name} would read a matrix {passes} times"
    tiles = [tile for tile in case.candidates if tile.schedule == name]
    if reason is None and not tiles:
        reason = _missing(case, name)
    if reason:
        return Offer(name, title, reason)
    times = case.times
    timed = [tile for tile in tiles if tile in times]
    best = min(timed, key=lambda tile: times[tile]) if timed else tiles[0]
    return Offer(
        name, title, None, format_tile(best), case.seconds(best), times.get(best)
    )


def _passes(case: Case, name: str) -> int:
    """How often a matrix streams through at the shape, in the best of its tiles."""
    tiles = case.table.tiles if case.table else case.plan.configs
    own = (tile for tile in tiles if tile.schedule == name)
    passes, product = SCHEDULES[name].passes, case.plan.product
    return min((passes(one, product, case.shape) for one in own), default=1)


def _missing(case: Case, name: str) -> str:
    """Why no tile of a schedule that could serve is among the candidates."""
    plan = case.plan
    wanted = named(plan.schedule)
    if AUTO not in wanted and name not in wanted:
        return f"the spec asks for {plan.schedule}"
    if not SCHEDULES[name].auto and name not in wanted:
        return "auto leaves it out, a spec can name it"
    if plan.tiles_text != AUTO:
        return "the spec lists its tiles, and none is for this schedule"
    if case.timed:
        return "it serves tensors that no descriptor can describe"
    return "none of its tiles fits registers and shared memory"


def tuning_of(plan: Plan, target: Target, tunings: Sequence[Tuning]) -> Tuning | None:
    """The tuning file that has the kernel on the target."""
    found = [
        tuning
        for tuning in tunings
        if tuning.target == target.name and plan.name in tuning.kernels
    ]
    return found[-1] if found else None


def target_of(plan: Plan, name: str, tunings: Sequence[Tuning]) -> Target:
    """A target of the kernel, with calibrated rates if a tuning file has some."""
    if plan.tables:
        return plan.target(name)
    fitted, target = calibrated(name, tunings), TARGETS[name]
    return replace(target, rates=fitted.rates or target.rates) if fitted else target


def calibrated(name: str, tunings: Sequence[Tuning]) -> Tuning | None:
    """The tuning file whose rates hold for a target."""
    found = [tuning for tuning in tunings if tuning.target == name and tuning.rates]
    return found[-1] if found else None
