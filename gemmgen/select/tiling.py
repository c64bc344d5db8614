"""The tiles of a kernel: those the spec lists, completed, or the model's own.

Refuses what a target cannot hold or Triton cannot compile, with the nearest that can.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gemmgen.base.errors import SpecError, SpecErrors, quoted
from gemmgen.cost.resources import fits, shared_memory, spills, why_not_compiled
from gemmgen.cost.time import best_stages
from gemmgen.epilogue.checked import Epilogue
from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, schedule_of, why_not
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import FALLBACK, GROUP_M, Product, Tile
from gemmgen.select.costs import Costs
from gemmgen.select.decision_list import Rule
from gemmgen.select.fallback_tiles import fallback_tiles
from gemmgen.select.model_table import describes_operands
from gemmgen.select.nearest import nearest_fitting
from gemmgen.select.schedule_tiles import holds, schedule_tiles
from gemmgen.select.table import Row, Table, row
from gemmgen.select.tuning_file import Measured
from gemmgen.spec.parse import KernelSpec
from gemmgen.spec.schema import AUTO
from gemmgen.tables.layouts import LAYOUTS

_IN_PARTS = next(
    name for name, row in SCHEDULES.items() if row.splits and not row.described
)
"""The schedule that serves every call in parts of K."""


def choose(
    spec: KernelSpec,
    targets: Sequence[Target],
    product: Product,
    epilogue: Epilogue,
    tuned: Mapping[str, Measured],
    costs: Mapping[str, Costs],
) -> tuple[tuple[Table, ...], tuple[Tile, ...]]:
    """The dispatch tables, newest architecture first, or runtime configurations.

    `tuned` holds what was measured of the kernel, by target, `costs` what was of others
    of its kind: these, or else those, decide where tiles are free. Raises
    `SpecErrors` with every tile that a target cannot run.
    """
    if spec.autotune:
        return (), _configs(spec, targets, product)
    listed = {target: _listed(spec, product, target) for target in targets}
    errors = [*_unserved(spec, targets, product), *_misfits(spec, product, listed)]
    for target in targets if not spec.tiles else ():
        errors += _outgrown(spec, tuned.get(target.name), product, target)
    if errors:
        raise SpecErrors(errors)
    tables: list[Table] = []
    oldest = min(targets, key=lambda target: target.architecture)
    for target in sorted(targets, key=lambda target: -target.architecture):
        measured = None if spec.tiles else tuned.get(target.name)
        costs_here = None if spec.tiles else costs.get(target.name)
        rules, unaligned = _measured_rows(spec, measured, product, target)
        tables.append(
            Table(
                target.name,
                target.rates,
                rules,
                tuple(_offered(spec, listed[target], epilogue, product, target)),
                target is oldest,
                unaligned,
                _rows_with_costs(spec, costs_here, epilogue, product, target),
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
        for schedule in _serving(spec, product, target):
            tiles = tiles + schedule_tiles(
                schedule, product, target, epilogue.live_tiles
            )
    return tiles


def _measured_rows(
    spec: KernelSpec, measured: Measured | None, product: Product, target: Target
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The rows of a tuning file, but for schedules that the spec rules out.

    Those for tensors that no descriptor can describe come apart.
    """
    if measured is None:
        return (), ()
    serving = _serving(spec, product, target)

    def kept(rules: Sequence[Rule]) -> tuple[Row, ...]:
        return tuple(
            row(target, rule)
            for rule in rules
            if rule.tile.schedule in serving and not spills(rule.tile, product)
        )

    return kept(measured.rules), kept(measured.unaligned)


def _rows_with_costs(
    spec: KernelSpec,
    costs: Costs | None,
    epilogue: Epilogue,
    product: Product,
    target: Target,
) -> tuple[Row, ...]:
    """Rows of the tiles whose costs are known, with as many stages as fit here.

    A persistent loop that waits for operands [m, n] overlaps less than what was timed.
    """
    if costs is None:
        return ()
    found = []
    for timed in costs.tiles:
        depths = (replace(timed, stages=count) for count in range(timed.stages, 1, -1))
        tile = next((one for one in depths if fits(one, product, target)), None)
        if (
            tile
            and tile.schedule in _serving(spec, product, target)
            and not spills(tile, product)
            and holds(tile, product, target, epilogue.live_tiles)
            and not why_not_compiled(tile, product, target)
            and not (product.matrix_bytes and _waits_for_operands(tile))
        ):
            cost = costs.timed(tile, product, timed)
            found.append(Row(target.architecture, None, None, tile, timed=cost))
    return tuple(found)


def _waits_for_operands(tile: Tile) -> bool:
    """Whether a loop over tiles reads operands [m, n] by pointers, as no timed one."""
    return schedule_of(tile).persistent and not describes_operands(tile)


def _outgrown(
    spec: KernelSpec, measured: Measured | None, product: Product, target: Target
) -> Iterator[SpecError]:
    """The rules of a tuning file whose tiles this kernel cannot have, or no more."""
    if measured is None:
        return
    rules = (*measured.rules, *measured.unaligned)
    for rule, place in zip(rules, measured.places, strict=False):
        tile = rule.tile
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


def _serving(spec: KernelSpec, product: Product, target: Target) -> list[str]:
    """The schedules that the spec allows and that can serve it on a target."""
    by_itself = [name for name, row in SCHEDULES.items() if row.auto]
    wanted = by_itself if AUTO in spec.schedule else spec.schedule
    kernel = Kernel(spec.layout, product, target)
    return [name for name in wanted if why_not(name, kernel) is None]


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


def schedule_text(spec: KernelSpec) -> str:
    """The schedule as the spec gives it, for the header."""
    names = spec.schedule
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


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
    if not spec.tiles:
        place = spec.at("autotune")
        raise SpecErrors([SpecError(place, "autotune: runtime needs a list of tiles")])
    listed = {target: _listed(spec, product, target) for target in targets}
    errors = list(_misfits(spec, product, listed))
    if errors:
        raise SpecErrors(errors)
    return tuple(
        min(same, key=lambda tile: tile.stages)
        for same in zip(*listed.values(), strict=True)
    )


def _listed(spec: KernelSpec, product: Product, target: Target) -> list[Tile]:
    """The spec's tiles, for each schedule that may compute them, completed."""
    tiles = []
    serving = _serving(spec, product, target)
    for given in spec.tiles:
        if AUTO in spec.schedule:
            schedules = [_IN_PARTS if (given.split_k or 1) > 1 else FALLBACK]
        else:
            schedules = [name for name in spec.schedule if name in serving]
        for schedule in schedules:
            tile = Tile(
                given.m,
                given.n,
                given.k,
                given.group_m or GROUP_M,
                given.stages or 2,
                given.warps or _default_warps(given.m, given.n, product),
                schedule,
                given.split_k or 1,
            )
            if not given.stages:
                tile = replace(tile, stages=best_stages(tile, product, target) or 2)
            tiles.append(tile)
    return tiles


def _default_warps(m: int, n: int, product: Product) -> int:
    """Warps that keep the accumulator at 64 registers a thread, 4 to 8."""
    words = m * n * product.rights * product.mma.accumulator_words
    return 4 if words <= 64 * 32 * 4 else 8


def _misfits(
    spec: KernelSpec, product: Product, listed: dict[Target, list[Tile]]
) -> Iterator[SpecError]:
    """The tiles that a target cannot run."""
    for target, tiles in listed.items():
        for index, tile in enumerate(tiles):
            reason = _odd_side(tile) or why_not_compiled(tile, product, target)
            if not fits(tile, product, target):
                reason = reason or _too_big(tile, product, target)
            if reason:
                yield SpecError(spec.at("tiles", index), reason)


def _odd_side(tile: Tile) -> str | None:
    """Why a schedule cannot compute so many rows, which only some compose."""
    if not any(one & (one - 1) for one in schedule_of(tile).powers_of_two(tile)):
        return None
    power = 1 << (tile.m.bit_length() - 1)
    composing = " or ".join(
        name for name, row in SCHEDULES.items() if tile.m not in row.powers_of_two(tile)
    )
    return (
        f"tile m={tile.m} is not a power of two, which Triton needs but in schedule "
        f"{composing}; nearest: {power}, {2 * power}"
    )


def _too_big(tile: Tile, product: Product, target: Target) -> str:
    """The message for a tile whose shared memory is over the limit."""
    near = nearest_fitting(tile, lambda one: fits(one, product, target))
    advice = (
        f"; nearest that fits: {{m: {near.m}, n: {near.n}, k: {near.k}, "
        f"stages: {near.stages}}}"
        if near
        else ""
    )
    return (
        f"tile {tile.m}x{tile.n}x{tile.k} with {tile.stages} stages needs "
        f"{shared_memory(tile, product, target)} bytes of shared memory; {target.name} "
        f"has {target.shared_per_block} for a block{advice}"
    )


def tiles_text(spec: KernelSpec) -> str:
    """The tiles as the spec gives them, for the header."""
    texts = []
    for tile in spec.tiles:
        given = tile.model_dump(exclude_none=True)
        texts.append("{" + ", ".join(f"{k}: {v}" for k, v in given.items()) + "}")
    if not texts:
        return "auto"
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
