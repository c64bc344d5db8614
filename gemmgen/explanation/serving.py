"""A kernel at a shape: the tile that serves it, and what else could."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from gemmgen.cost.resources import fits
from gemmgen.cost.time import compulsory, predicted_time
from gemmgen.explanation.facts import Choice, Offer, TableRow
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.schedules import SCHEDULES, named, schedule_of, why_not
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.model_table import describes_operands, serves
from gemmgen.select.plan import Plan
from gemmgen.select.serving import row_for, undescribed
from gemmgen.select.table import Row, Table
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.schema import AUTO
from gemmgen.spec.shapes import Shape


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
        return self.timed.get(tile) or self.modelled(tile)

    @property
    def roofs(self) -> tuple[float, float]:
        """The least seconds of multiplying, and of moving what must be moved."""
        product, target, sizes = self.plan.product, self.target, self.shape.sizes
        work = product.rights * self.shape.flops
        moved = compulsory(sizes, product)
        return (
            work / target.flops(product.kind),
            moved / target.rates.memory_bandwidth,
        )

    def modelled(self, tile: Tile) -> float:
        """The time that the model predicts."""
        sizes, product = self.shape.sizes, self.plan.product
        return predicted_time(sizes, tile, product, self.target)

    @cached_property
    def timed(self) -> dict[Tile, float]:
        """The seconds of tiles by what they cost, if calls are served by that."""
        found: dict[Tile, float] = {}
        call = self.plan.product, self.shape.sizes, self.target.sms
        for row in self.table.costs if self.table else ():
            if row.timed:
                seconds = 1e-6 * row.timed.predicted(row.tile, *call)
                tile = self.of_row(row)
                found[tile] = min(seconds, found.get(tile, seconds))
        return found

    def of_row(self, row: Row) -> Tile:
        """The tile of a row for the shape."""
        return row.tile_for(self.shape.sizes, self.plan.product)

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
        own = table.layers if table else ()
        rows = (*rows, *(row for row in own if row.serves(self.shape.sizes)))
        found = [*map(self.of_row, rows), *tiles, *self.times]
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
        return self.of_row(row_for(self.plan, self.shape, self.target)[1])

    @property
    def choice(self) -> Choice:
        """The row that serves, and those that serve other calls of this shape."""
        if self.plan.configs:
            return Choice(format_tile(self.tile), self._raced(), None, {})
        found_for = partial(row_for, self.plan, self.shape, self.target)
        number, row = found_for()
        detours = {}
        if describes_operands(row.tile):
            detours["if none can describe an operand or result"] = found_for(
                operands=False
            )
        if schedule_of(row.tile).described:
            detours["if no descriptor can describe a tensor"] = found_for(plain=True)
        if row.tile.ctas > 1:
            detours["with Triton before 3.8, which launches no clusters"] = found_for(
                clusters=False
            )
        found = self._told(number, row)
        told = {when: self._told(*one) for when, one in detours.items()}
        return Choice(format_tile(self.of_row(row)), found.source, found, told)

    def _told(self, number: int, row: Row) -> TableRow:
        limits = dict(zip("MNK", row.limits, strict=True))
        tile, source = format_tile(self.of_row(row)), self._source(row)
        least = row.pin.least if row.pin else None
        return TableRow(number, len(self.plan.rows), limits, tile, source, least)

    def _source(self, row: Row) -> str:
        """Who chose a row."""
        table = self.table
        if row.pin and self.tuning:
            gain = f"{1e6 * row.pin.seconds:.1f} µs at {row.pin.at} rows"
            other = f"{1e6 * row.pin.otherwise:.1f} by what is chosen otherwise"
            return f"timed on {self.tuning.gpu} for this layer: {gain}, {other}"
        if table and row in (*table.measured, *table.unaligned) and self.tuning:
            return f"timed on {self.tuning.gpu}"
        if table and row in table.costs:
            return f"the least predicted time of {len(table.costs)} tiles with costs"
        if table and row in table.unaligned:
            return "timed, of another kernel of its layout with such tensors"
        tiles = len(table.tiles) if table else 0
        whose = "" if self.plan.tiles_text == AUTO else ", some of them from the spec"
        return f"the model, among {tiles} tiles{whose}; nothing was timed"

    def _raced(self) -> str:
        return (
            f"Triton's autotuner times all {len(self.plan.configs)} tiles at the first "
            "call of each M, N, K; this one the model expects to win"
        )


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
    if any(SCHEDULES[tile.schedule].described for tile in case.timed):
        return "it serves tensors that no descriptor can describe"
    if case.timed:
        return "tiles with costs serve every call, and none of its tiles has any"
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
