"""What tiles of a kind of product cost, by all times that a tuning file has of it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, schedule_of, why_not
from gemmgen.schedules.parts.consumers import multiplies_in_one
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import GROUP_M, Product, Rates, Tile
from gemmgen.select.plan import Plan
from gemmgen.select.tiling import with_costs_of
from gemmgen.select.tuned.costs import (
    MOST,
    MOST_OF_CLUSTERS,
    Costs,
    costed_as,
    costs_beside,
)
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.fitting.choice import Choice
from gemmgen.tuning.fitting.fit import Sample, fitted
from gemmgen.tuning.fitting.standing import standing
from gemmgen.tuning.trials.candidates import (
    AS_SLOW,
    KEPT,
    at_shape,
    launched,
    searched,
)
from gemmgen.tuning.trials.spread import spread

LEAST = 40
"""Shapes of which times are needed: below, constants follow single times."""
_ROWS, _COLUMNS = 2, 16
"""The least M and N of such shapes: below others than these tiles serve."""
_CALL = 8e-6
"""Seconds that a call takes the CPU (benchmarks/speed/triton_versions.md)."""
_HELD_OUT = 4
"""Every so manieth shape is left out of a fit that is only judged by those."""

_ELSEWHERE = {(64, 64): 320, (8, 8): 80}
"""Shapes without times at which tiles are judged by predictions, by what N and K are
multiples of."""

_Served = tuple[Tile, float]
"""A tile and the microseconds that it is predicted to take."""

Has = Callable[[Tile], bool]
"""Whether a kernel can have a tile."""


@dataclass(frozen=True)
class Regret:
    """How much longer the tile that costs choose takes than the fastest that was timed.

    At so many `shapes`, as a share: the mean, the 95th percentile, the worst.
    """

    shapes: int
    mean: float
    percentile: float
    worst: float

    def __str__(self) -> str:
        return (
            f"{self.mean:.1%} slower than the fastest tile in the mean of "
            f"{self.shapes} shapes that were not fitted, 95 % of them at most "
            f"{self.percentile:.1%}, the worst {self.worst:.1%}"
        )


def kinds(
    plans: Mapping[str, Plan], target: Target, kernels: Mapping[str, Measured]
) -> dict[str, list[Sample]]:
    """The times of kernels, by the kind of their product, of tiles that have costs.

    A kind of too few shapes is left out.
    """
    found: dict[str, list[Sample]] = {}
    for name, measured in kernels.items():
        kind = costed_as(plans[name].product) if name in plans else None
        if kind is None:
            continue
        plan = plans[name]
        tiles = list(filter(_costed, searched(plan, target)))
        for shape, times in measured.spread.items():
            known = {tile: times[tile] for tile in tiles if tile in times}
            if known and shape.m >= _ROWS and shape.n >= _COLUMNS:
                here = at_shape(tiles, plan, shape, target, SCHEDULES)
                tried = dict.fromkeys([*known, *here])
                # The slowest may have been left out, and else those that were far off.
                slowest = max(times.values())
                least = slowest if len(times) >= KEPT else AS_SLOW * min(known.values())
                known = _of_launches(known, tried, shape, target)
                samples = found.setdefault(kind, [])
                samples.append(Sample(plan.product, shape, known, least, tried))
    return {kind: each for kind, each in found.items() if len(each) >= LEAST}


def _of_launches(
    times: Mapping[Tile, float], tried: Iterable[Tile], shape: Shape, target: Target
) -> dict[Tile, float]:
    """The least time of each launch, for all tiles that make it.

    Tiles that differ in how many parts of K they ask for may get as many.
    """
    least: dict[Tile, float] = {}
    for tile, time in times.items():
        launch = launched(tile, shape, target)
        least[launch] = min(time, least.get(launch, time))
    launches = {tile: launched(tile, shape, target) for tile in tried}
    return {tile: least[launch] for tile, launch in launches.items() if launch in least}


def _costed(tile: Tile) -> bool:
    """Whether it is of those that calls choose from by costs, which no call passes."""
    row = schedule_of(tile)
    return bool(row.described or row.by_fma) and tile.group_m == GROUP_M


def with_costs(
    tuning: Tuning,
    plans: Mapping[str, Plan],
    target: Target,
    on_step: Callable[[str], object] | None = None,
) -> Tuning:
    """The tuning file with what its times say of costs; `on_step` hears how well."""
    costs = dict(tuning.costs)
    for kind, samples in kinds(plans, target, tuning.kernels).items():
        mine = [one for one in plans.values() if costed_as(one.product) == kind]
        having = [partial(_has, plan=plan, target=target) for plan in mine]
        known = costs_beside(tuning.costs, kind)
        costs[kind], regret = costs_of(samples, target, having, known)
        if on_step:
            on_step(f"costs of {kind}: {regret}")
    return replace(tuning, costs=costs)


def _has(tile: Tile, plan: Plan, target: Target) -> bool:
    """Whether a kernel can have a tile whose costs are known."""
    kernel = Kernel(plan.layout, plan.product, target)
    live_tiles = plan.epilogue.live_tiles
    serves = why_not(tile.schedule, kernel) is None
    return serves and bool(with_costs_of(tile, plan.product, live_tiles, target))


def costs_of(
    samples: Sequence[Sample],
    target: Target,
    kernels: Collection[Has] = (),
    known: Costs | None = None,
) -> tuple[Costs, Regret]:
    """The costs of the tiles that lose least, and the regret of others so made.

    Those come from the samples that are not judged; the costs come from all. Of the
    `kernels`, which tell whether they can have a tile, each gets `MOST` if it can. What
    is `known` of a kind beside has rates of the same GPU.
    """
    rates = known.rates if known else None
    judged = samples[::_HELD_OUT]
    rest = [sample for sample in samples if sample not in judged]
    regret = _regret(_chosen(rest, target, rates), judged, target)
    return _chosen(samples, target, rates, kernels), regret


def _chosen(
    samples: Sequence[Sample],
    target: Target,
    known: Rates | None,
    kernels: Collection[Has] = (),
) -> Costs:
    """The costs of the best `MOST` tiles.

    Behind them come as many more as make up for those that some of the kernels cannot
    have, then the best of clusters.
    """
    tiles = list(dict.fromkeys(tile for each in samples for tile in each.times))
    in_one = partial(multiplies_in_one, product=samples[0].product)
    tiles += standing(tiles, in_one)
    choice = _choice(samples, tiles, fitted(samples, tiles, target, known), target)
    alone = [tile for tile in tiles if tile.ctas == 1]
    clusters = [tile for tile in tiles if tile.ctas > 1]
    kept = choice.exchanged(choice.grown([], alone, MOST), alone)
    for has in kernels:
        own = list(filter(has, kept))
        if len(own) < MOST:
            kept += choice.grown(own, list(filter(has, alone)), MOST)[len(own) :]
    whole = len(kept) + MOST_OF_CLUSTERS
    return fitted(samples, choice.grown(kept, clusters, whole), target, known)


def _choice(
    samples: Sequence[Sample], tiles: Sequence[Tile], costs: Costs, target: Target
) -> Choice:
    """The choice by costs, and what it loses: as measured, and as predicted elsewhere.

    Few shapes have times; by those alone tiles are kept that win there by chance.
    """
    product = samples[0].product
    timed = [
        _fastest(costs, each.product, each.shape, tiles, target) for each in samples
    ]
    elsewhere = [
        [time for _, time in _fastest(costs, product, shape, tiles, target)]
        for lines, number in _ELSEWHERE.items()
        for shape in spread(number, len(samples) + 1, lines=lines)
    ]
    lost = [
        [_share(loss, each.best) for loss in _losses(each, tiles, served)]
        for each, served in zip(samples, timed, strict=True)
    ]
    predicted = [[time for _, time in served] for served in timed]
    for times in elsewhere:
        best = 1e-6 * min(times)
        lost.append([_share(1e-6 * time / best - 1, best) for time in times])
    return Choice(tiles, predicted + elsewhere, lost)


def _regret(costs: Costs, samples: Sequence[Sample], target: Target) -> Regret:
    """What the choice by such costs loses at samples that they do not come from."""
    losses = []
    for sample in samples:
        tiles = list(costs.tiles)
        served = _fastest(costs, sample.product, sample.shape, tiles, target)
        chosen = min(range(len(tiles)), key=lambda place: served[place][1])
        losses.append(_losses(sample, tiles, served)[chosen])
    losses.sort()
    mean = sum(losses) / len(losses)
    return Regret(len(losses), mean, losses[int(0.95 * len(losses))], losses[-1])


def _fastest(
    costs: Costs, product: Product, shape: Shape, tiles: Sequence[Tile], target: Target
) -> list[_Served]:
    """Of what each tile stands for the fastest."""
    return [costs.fastest(tile, product, target, shape.sizes) for tile in tiles]


def _share(loss: float, seconds: float) -> float:
    """What is lost, of the fastest tile's time and that which a call takes the CPU.

    Of a product that takes the GPU less than that nobody sees the loss.
    """
    return loss * seconds / (seconds + _CALL)


def _losses(
    sample: Sample, tiles: Sequence[Tile], served: Sequence[_Served]
) -> list[float]:
    """By what share of the fastest's time each tile is slower, with what serves there.

    One that was tried and has no time is taken for a fifth slower than it is at least,
    and of others it is what predictions say, beside the fastest that has a time.
    """
    alike = {replace(tile, stages=0): tile for tile in sample.tried}
    launched = [
        (alike.get(replace(one, stages=0), one) if tile.from_side else one, time)
        for tile, (one, time) in zip(tiles, served, strict=True)
    ]
    known = [time for tile, time in launched if tile in sample.times]
    fastest = min(known, default=min(time for _, time in launched))
    found = []
    for tile, time in launched:
        if tile in sample.times:
            found.append(sample.times[tile] / sample.best - 1)
        elif tile in sample.tried:
            found.append(1.2 * sample.least / sample.best - 1)
        else:
            found.append(max(0.0, time / fastest - 1))
    return found
