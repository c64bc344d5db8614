"""The tiles of a kernel: those the spec lists, those measured, or the model's own."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from gemmgen.base.errors import SpecError, SpecErrors, quoted
from gemmgen.cost.resources import fits, shared_memory, spills, why_not_compiled
from gemmgen.epilogue.checked import Epilogue
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of, why_not
from gemmgen.schedules.parts.consumers import multiplies_alike, multiplies_in_one
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import FALLBACK, Product, Tile
from gemmgen.select.fallback_tiles import fallback_tiles
from gemmgen.select.listed_tiles import completed, misfits, serving, unraced
from gemmgen.select.model_table import describes_operands
from gemmgen.select.schedule_tiles import holds, schedule_tiles
from gemmgen.select.table import Row, Table, pinned, row
from gemmgen.select.tuned.costs import MOST, MOST_OF_CLUSTERS, Costs
from gemmgen.select.tuned.epilogues import fetching
from gemmgen.select.tuned.tuning_file import Measured
from gemmgen.spec.parse import KernelSpec
from gemmgen.spec.schema import AUTO
from gemmgen.tables.layouts import LAYOUTS

_NARROWEST = 5 / 6
"""Of its largest side what a tile that stands for others has at least, to be as deep as
it was timed: a stage less, and blocks of all of them would be taken to wait."""
_FETCHED = 1.0
"""Microseconds that sides which a tile stands for may wait for their first epilogue's
instructions: costs are those of all of them."""


def choose(
    spec: KernelSpec,
    targets: Sequence[Target],
    product: Product,
    epilogue: Epilogue,
    tuned: Mapping[str, Measured],
    costs: Mapping[str, Costs],
) -> tuple[tuple[Table, ...], tuple[Tile, ...]]:
    """The dispatch tables, newest architecture first, or runtime configurations.

    `tuned` has what was measured of the kernel, by target, `costs` of its kind: its
    layers, then costs, or else its rules, decide where tiles are free.
    Raises `SpecErrors` with every tile that a target cannot run.
    """
    if spec.autotune:
        return (), _configs(spec, targets, product)
    listed = {target: completed(spec, product, target) for target in targets}
    errors = [*_unserved(spec, targets, product), *misfits(spec, product, listed)]
    for target in targets:
        errors += _outgrown(spec, tuned.get(target.name), product, target)
    if errors:
        raise SpecErrors(errors)
    tables: list[Table] = []
    for target in sorted(targets, key=lambda one: -one.architecture):
        measured, costs_here = tuned.get(target.name), costs.get(target.name)
        rules, unaligned, layers = _measured_rows(spec, measured, product, target)
        costed, rest = _costed_rows(spec, costs_here, epilogue, product, target)
        tables.append(
            Table(
                target=target.name,
                rates=target.rates,
                measured=rules,
                tiles=tuple(_offered(spec, listed[target], epilogue, product, target)),
                last=target.architecture == min(one.architecture for one in targets),
                unaligned=unaligned + rest,
                costs=costed,
                layers=layers,
            )
        )
    return tuple(tables), ()


def _offered(
    spec: KernelSpec,
    tiles: list[Tile],
    epilogue: Epilogue,
    product: Product,
    target: Target,
) -> list[Tile]:
    """What the model may choose from: the spec's tiles, or its own; some serve all."""
    if not any(tile.schedule == FALLBACK for tile in tiles):
        tiles = tiles + fallback_tiles(
            product, target, epilogue.registers, _widest(spec)
        )
    if not spec.tiles:  # after the fallback's, which win where both are as good
        for schedule in serving(spec, product, target):
            tiles = tiles + schedule_tiles(
                schedule, product, target, epilogue.live_tiles
            )
    return tiles


def _measured_rows(
    spec: KernelSpec, measured: Measured | None, product: Product, target: Target
) -> tuple[tuple[Row, ...], ...]:
    """The rows of a tuning file, but for schedules that the spec rules out.

    Those of rules, of rules for tensors that no descriptor can describe, of layers.
    """
    if measured is None:
        return (), (), ()
    usable = serving(spec, product, target)
    layers = measured.layers.items()
    rows = (
        [row(target, rule) for rule in measured.rules],
        [row(target, rule) for rule in measured.unaligned],
        [pinned(target, layer, pin) for layer, pins in layers for pin in pins],
    )

    def kept(one: Row) -> bool:
        return one.tile.schedule in usable and not spills(one.tile, product)

    return tuple(tuple(filter(kept, each)) for each in rows)


def _costed_rows(
    spec: KernelSpec,
    costs: Costs | None,
    epilogue: Epilogue,
    product: Product,
    target: Target,
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of the first tiles whose costs are known that this kernel can have.

    And those that its layout has for tensors that no descriptor can describe.
    """
    if costs is None:
        return (), ()
    usable = serving(spec, product, target)

    def served(timed: Tile) -> Tile | None:
        if timed.schedule not in usable:
            return None
        return with_costs_of(timed, product, epilogue.live_tiles, target)

    found = [
        Row(
            target.architecture,
            m=None,
            n=None,
            tile=tile,
            timed=costs.timed(tile, product, target, timed),
        )
        for timed in costs.tiles
        if (tile := served(timed))
    ]
    alone = [row for row in found if row.tile.ctas == 1]
    clusters = [row for row in found if row.tile.ctas > 1]
    rest = (
        replace(rule, tile=tile)
        for rule in costs.unaligned.get(spec.layout, ())
        if (tile := served(rule.tile))
    )
    costed = *alone[:MOST], *clusters[:MOST_OF_CLUSTERS]
    return costed, tuple(row(target, rule) for rule in rest)


@cache
def with_costs_of(
    timed: Tile, product: Product, live_tiles: int, target: Target
) -> Tile | None:
    """A tile that was timed, with as many stages as fit here; None if it serves badly.

    One that stands for others does without such as spill or wait for their epilogue,
    rather without the largest than a stage. A persistent loop that waits for operands
    [m, n] overlaps less than what was timed. K is whole where parts of it serve badly.
    """

    def serves(one: Tile) -> bool:
        return (
            fits(one, product, target)
            and not spills(one, product)
            and holds(one, product, target, live_tiles)
            and not why_not_compiled(one, product, target)
            and not (product.matrix_bytes and _waits_for_operands(one))
            and not _otherwise_in_pieces(one, timed.stands_in_one, product)
        )

    able = _able(timed, product)
    counts = range(timed.stages - 1, 1, -1)
    shallower = (replace(able, stages=count) for count in counts)
    for tile in (*_narrower(able), *shallower):
        if fits(tile, product, target):
            ways = tile, replace(tile, split_k=1)
            return next((way for way in ways if all(map(serves, way.members))), None)
    return None


def _able(tile: Tile, product: Product) -> Tile:
    """A tile, without such sides as spill, or wait long for their first epilogue.

    If all do it stays as it is.
    """
    for one in reversed(tile.members if tile.from_side else ()):
        whole = replace(one, split_k=1)
        if fetching(one, product) <= _FETCHED and not spills(whole, product):
            return replace(tile, m=one.m, n=one.n)
    return tile


def _narrower(tile: Tile) -> Iterator[Tile]:
    """A tile, and such as stand for fewer: without up to a sixth of its side."""
    yield tile
    for member in reversed(tile.members[:-1]):
        if member.shared_side >= _NARROWEST * tile.shared_side:
            yield replace(tile, m=member.m, n=member.n)


def _otherwise_in_pieces(tile: Tile, stands_in_one: bool, product: Product) -> bool:
    """Whether its shared side is in pieces, where those timed had it in one."""
    columns = tile.launched.shared_axis == "n"
    timed_in_one = stands_in_one or (columns and not multiplies_alike(product))
    cut = tile.shared_side & (tile.shared_side - 1) > 0
    return timed_in_one and cut and not multiplies_in_one(tile, product)


def _waits_for_operands(tile: Tile) -> bool:
    """Whether a loop over tiles reads operands [m, n] by pointers, as no timed one."""
    return schedule_of(tile).persistent and not describes_operands(tile)


def _outgrown(
    spec: KernelSpec, measured: Measured | None, product: Product, target: Target
) -> Iterator[SpecError]:
    """The rules of a tuning file whose tiles this kernel cannot have, or no more."""
    if measured is None:
        return
    for tile, place in measured.placed:
        reason = why_not(tile.schedule, Kernel(spec.layout, product, target))
        reason = reason or why_not_compiled(tile, product, target)
        if not reason and not fits(tile, product, target):
            reason = (
                f"it needs {shared_memory(tile, product, target)} bytes of shared "
                f"memory, {target.name} has {target.shared_per_block} for a block"
            )
        if reason:
            said = f"the rule does not fit kernel {quoted(spec.name)}: {reason}; run "
            yield SpecError(
                place, f"{said}gemmgen tune again, or delete the kernel here"
            )


def _unserved(
    spec: KernelSpec, targets: Sequence[Target], product: Product
) -> Iterator[SpecError]:
    """The named schedules that no target can use."""
    for index, name in enumerate(spec.schedule):
        if name == AUTO:
            continue
        reasons = [
            why_not(name, Kernel(spec.layout, product, target)) for target in targets
        ]
        if all(reasons):
            message = f"schedule {name} cannot serve this kernel: {reasons[-1]}"
            yield SpecError(spec.at("schedule", index), message)


def _widest(spec: KernelSpec) -> int:
    """The largest n worth trying with pointers.

    256 columns of a transposed B run at 0.72 of torch, 128 at 0.91 (bf16 NT, 4096^3,
    H200); as stored, 256 are best.
    """
    return 128 if LAYOUTS[spec.layout].b_transposed else 256


def _configs(
    spec: KernelSpec, targets: Sequence[Target], product: Product
) -> tuple[Tile, ...]:
    """The tiles that Triton's autotuner races, each fit for every target."""
    raced = replace(spec, schedule=(FALLBACK,))
    listed = {target: completed(raced, product, target) for target in targets}
    errors = [*unraced(spec), *misfits(spec, product, listed)]
    if errors:
        raise SpecErrors(errors)
    return tuple(
        min(same, key=lambda tile: tile.stages)
        for same in zip(*listed.values(), strict=True)
    )
