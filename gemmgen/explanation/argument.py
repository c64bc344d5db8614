"""From a kernel, a shape and a target to the facts of the argument.

All arithmetic is that of `cost`, `block_cost` and `model`, which tables are made with.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import count

from gemmgen.base.errors import UsageError, one_of, quoted
from gemmgen.cost.resources import (
    fits,
    instruction,
    registers,
    resident,
    residents,
    ring_blocks,
    shared_memory,
    threads,
)
from gemmgen.cost.time import Estimate, compulsory, estimate, planned_for, row_starts
from gemmgen.explanation.by_rows import over_rows
from gemmgen.explanation.facts import (
    Argument,
    Block,
    Candidate,
    Depth,
    Occupancy,
    Prediction,
    Roofline,
    Sources,
    Stages,
    Waves,
)
from gemmgen.explanation.serving import Case, calibrated, offers, target_of, tuning_of
from gemmgen.hardware.gpus import target_named, unknown_target
from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_file import FOLDER, Tuning
from gemmgen.spec.shapes import Shape

DEFAULT = Shape(4096, 4096, 4096)
_RATES = "gemmgen/hardware/targets.py"
_FITTED = "sm_90"
"""The target whose rates were measured; explained first where a kernel has it."""
_MOST_SHOWN = 8
_DEEPEST = 8
_MADE = ("driver", "torch", "triton", "date")


def argue(
    plan: Plan,
    shape: Shape,
    target: str | None,
    tunings: Sequence[Tuning],
    *,
    by_rows: bool = False,
) -> Argument:
    """The whole argument; `UsageError` for a target that the kernel does not have.

    Without a target, sm_90 or else the newest that the kernel is built for. What
    serves other numbers of rows is looked for if it is asked for: it takes a second.
    """
    named = _named(plan, target)
    found = target_of(plan, named, tunings)
    case = Case(plan, shape, found, tuning_of(plan, found, tunings))
    cost = estimate(shape.sizes, case.tile, plan.product, found)
    roofline = _roofline(case, cost)
    return Argument(
        kernel=plan.name,
        shape=str(shape),
        target=named,
        choice=case.choice,
        schedules=offers(case),
        block=_block(case, cost),
        stages=_stages(case, cost),
        occupancy=_occupancy(case),
        waves=_waves(case, cost),
        roofline=roofline,
        prediction=_prediction(case, cost, roofline),
        candidates=_candidates(case),
        candidates_in_all=len(case.candidates),
        sources=_sources(case, tunings),
        by_rows=over_rows(case) if by_rows else (),
    )


def _named(plan: Plan, target: str | None) -> str:
    """The target that is asked for, or of none the one that is explained first."""
    if target is None:
        newest = max(plan.targets, key=lambda name: TARGETS[name].architecture)
        target = _FITTED if _FITTED in plan.targets else newest
    named = target_named(target)
    if named is None:
        raise UsageError(unknown_target(target))
    if named not in plan.targets:
        raise UsageError(
            f"{plan.name} is not built for {quoted(target)} {one_of(plan.targets)}"
        )
    return named


def _block(case: Case, cost: Estimate) -> Block:
    each, target = cost.each, case.target
    matrices = (one.name for one in case.plan.contraction.inputs)
    starts = row_starts(case.shape.sizes, case.plan.product)
    return Block(
        unit=instruction(case.tile, case.plan.product, target),
        flops=each.flops,
        flops_per_clock=target.flops_per_clock[case.plan.product.kind],
        moved=each.moved,
        loaded=each.loaded,
        row_starts=dict(zip(matrices, starts, strict=False)),
        unit_seconds=each.unit,
        prepared=each.prepared,
        shared_seconds=each.shared,
        l2_seconds=each.l2,
        seconds=each.seconds,
        limit=each.limit,
    )


def _stages(case: Case, cost: Estimate) -> Stages:
    tile, product, target = case.tile, case.plan.product, case.target
    _, planned = planned_for(tile, target)
    arriving = cost.together * cost.each.seconds
    needed = math.ceil(planned / arriving) + 1
    depths = tuple(_depths(case))
    return Stages(
        latency=cost.latency,
        planned=planned,
        together=cost.together,
        needed=needed,
        needed_stages=next(
            stages
            for stages in count(1)
            if ring_blocks(replace(tile, stages=stages), product, target) >= needed
        ),
        stages=tile.stages,
        ring=ring_blocks(tile, product, target),
        ahead=cost.each.ahead,
        most=max(depth.stages for depth in depths if depth.fits),
        hidden=not cost.waits,
        depths=depths,
    )


def _depths(case: Case) -> list[Depth]:
    """Every depth up to `_DEEPEST`, or the tile's own; some have no ring."""
    product, target = case.plan.product, case.target
    deepest = max(case.tile.stages, _DEEPEST)
    last = 1 if schedule_of(case.tile).memory_bound else deepest
    tiles = [replace(case.tile, stages=stages) for stages in range(1, last + 1)]
    return [
        Depth(
            tile.stages,
            shared_memory(tile, product, target),
            fits(tile, product, target),
            resident(tile, product, target),
            case.modelled(tile),
        )
        for tile in tiles
    ]


def _occupancy(case: Case) -> Occupancy:
    tile, product, target = case.tile, case.plan.product, case.target
    fitting = residents(tile, product, target)
    deeper = replace(tile, stages=tile.stages + 1)
    return Occupancy(
        shared_memory=shared_memory(tile, product, target),
        limit=target.shared_per_block,
        next_stage=shared_memory(deeper, product, target),
        per_sm=target.shared_per_sm,
        reserved=target.reserved_per_block,
        registers=registers(tile, product),
        accumulator=accumulator_registers(tile, product),
        threads=threads(tile),
        fitting=fitting,
        resident=resident(tile, product, target),
        limited_by=min(fitting, key=lambda limit: fitting[limit]),
        looping=schedule_of(tile).persistent,
    )


def _waves(case: Case, cost: Estimate) -> Waves:
    tile, shape = case.tile, case.shape
    sms = case.target.sms // tile.ctas
    programs = cost.tiles * cost.parts
    last = programs - (cost.turns - 1) * sms
    return Waves(
        tiles=cost.tiles,
        parts=cost.parts,
        programs=programs,
        sms=sms,
        ctas=tile.ctas,
        turns=cost.turns,
        together=cost.together,
        last=last,
        idle=1 - last / sms,
        busy=programs / (cost.turns * sms),
        inside=shape.m * shape.n / (cost.tiles * tile.m * tile.n),
    )


def _roofline(case: Case, cost: Estimate) -> Roofline:
    product, target, shape = case.plan.product, case.target, case.shape
    least, peak = compulsory(shape.sizes, product), target.flops(product.kind)
    bandwidth = target.rates.memory_bandwidth
    work = product.rights * shape.flops
    compute, memory = case.roofs
    return Roofline(
        kind=product.kind,
        flops=work,
        bytes=least,
        intensity=work / least,
        ridge=peak / bandwidth,
        peak=peak,
        bandwidth=bandwidth,
        compute_seconds=compute,
        memory_seconds=memory,
        seconds=max(compute, memory),
        binds="compute" if compute >= memory else "memory",
        traffic=cost.traffic,
        l2_traffic=cost.tiles * cost.parts * cost.blocks * cost.each.loaded,
    )


def _prediction(case: Case, cost: Estimate, roofline: Roofline) -> Prediction:
    return Prediction(
        launch=cost.launch,
        outside=cost.outside,
        loop=cost.loop,
        memory=cost.memory,
        binds="loop" if cost.loop >= cost.memory else "memory",
        seconds=cost.seconds,
        flops_per_second=roofline.flops / cost.seconds,
        share=roofline.seconds / cost.seconds,
        measured=case.times.get(case.tile),
        by_costs=case.seconds(case.tile) if case.tile in case.timed else None,
    )


def _candidates(case: Case) -> tuple[Candidate, ...]:
    """The model's best, the chosen one among them whatever its place."""
    shown = case.candidates[:_MOST_SHOWN]
    if case.tile not in shown:
        shown = (*shown[:-1], case.tile)
    return tuple(_candidate(case, tile) for tile in shown)


def _candidate(case: Case, tile: Tile) -> Candidate:
    cost = estimate(case.shape.sizes, tile, case.plan.product, case.target)
    return Candidate(
        tile=format_tile(tile),
        tiles=cost.tiles,
        parts=cost.parts,
        waves=cost.turns,
        blocks=cost.blocks,
        seconds=case.seconds(tile),
        measured=case.times.get(tile),
        chosen=tile == case.tile,
    )


def _sources(case: Case, tunings: Sequence[Tuning]) -> Sources:
    fitted = calibrated(case.target.name, tunings)
    return Sources(
        gpu=case.target.gpu,
        rates=asdict(case.target.rates),
        rates_from=(
            f"{FOLDER}/{fitted.file_name}" if fitted else "gemmgen/hardware/targets.py"
        ),
        tuning=_file(case.tuning) if case.tuning else None,
        measured_here=bool(case.times),
    )


def _file(tuning: Tuning) -> str:
    """The tuning file, and what made it."""
    made = [f"{key} {tuning.made[key]}" for key in _MADE if key in tuning.made]
    return f"{FOLDER}/{tuning.file_name} ({', '.join([tuning.gpu, *made])})"
