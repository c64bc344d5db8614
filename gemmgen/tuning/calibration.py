"""The model's constants of a GPU, fitted to measured times."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from gemmgen.base.errors import UsageError
from gemmgen.cost.time import predicted_time
from gemmgen.hardware.targets import TARGETS, Rates, Target
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.plan import Plan, load
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.costs import costed_as
from gemmgen.select.tuned.tuning_file import Tuning
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.record import measured, write

OnStep = Callable[[str], object]

_FIRST_STEP, _LAST_STEP = 1.2, 1.01
"""Factors by which constants are tried, at first and in the end."""
_TRUST = 0.002
"""What being apart from the target's own constants costs: what the times say little of
stays near them."""


@dataclass(frozen=True)
class Fit:
    """The constants, how many times they come from, and how far off the model is.

    The errors, `before` with the constants that the target had, are the mean of
    |log(measured / predicted)|, in which a tile counts by the square of its speed
    beside the fastest at its shape: what is never chosen need not be foretold well.
    """

    rates: Rates
    count: int
    before: float
    after: float


@dataclass(frozen=True)
class _Timing:
    shape: Shape
    tile: Tile
    product: Product
    seconds: float
    weight: float


def calibrate(specs: Sequence[Path], on_step: OnStep | None = None) -> dict[Path, Fit]:
    """Fit the model to the times in each tuning file; make its rules anew.

    Needs no GPU; costs of tiles stay as they are. `on_step` is told how far off the
    model is. Raises `UsageError` if there is no tuning file beside the first spec.
    """
    plans = {plan.name: plan for spec in specs for plan in load(spec)}
    paths = tuning_file.beside(specs[0])
    if not paths:
        raise UsageError(
            f"{specs[0]}: no tuning file beside it: run gemmgen tune first"
        )
    fits = {}
    for path in paths:
        tuning = tuning_file.read(path)
        target = TARGETS[tuning.target]
        fits[path] = fit(tuning, plans, target, on_step)
        target = replace(target, rates=fits[path].rates)
        tuning = replace(tuning, rates=target.rates)
        for name, known in tuning.kernels.items():
            if name in plans:
                costs = costed_as(plans[name].product) in tuning.costs
                again = measured(plans[name], target, known.times, known.layers, costs)
                tuning = write(path, tuning, name, again)
    return fits


def fit(
    tuning: Tuning,
    plans: Mapping[str, Plan],
    target: Target,
    on_step: OnStep | None = None,
) -> Fit:
    """The rates that foretell the times of a tuning file best.

    Coordinate descent: each constant is multiplied or divided by a step as long as that
    helps, then by smaller ones. `on_step` is told the error after each round.
    """
    timings = list(_timings(tuning, plans))

    def error(rates: Rates) -> float:
        there = replace(target, rates=rates)
        off = (timing.weight * abs(_off(timing, there)) for timing in timings)
        return sum(off) / sum(timing.weight for timing in timings)

    def cost(rates: Rates) -> float:
        return error(rates) + _TRUST * _apart(rates, target.rates)

    best, least = target.rates, error(target.rates)
    before = least
    steps = {field.name: _FIRST_STEP for field in fields(Rates)}
    while max(steps.values()) > _LAST_STEP:
        for name, step in steps.items():
            value = getattr(best, name)
            tried = [replace(best, **{name: value * by}) for by in (step, 1 / step)]
            errors = list(map(cost, tried))
            if min(errors) < least:
                least, best = min(errors), tried[errors.index(min(errors))]
            else:
                steps[name] = math.sqrt(step)
        if on_step:
            on_step(f"{100 * least:.1f} % off")
    return Fit(_rounded(best), len(timings), before, error(best))


def _apart(rates: Rates, others: Rates) -> float:
    """How far constants are from others: the sum of their squared logarithms."""
    ratios = (
        getattr(rates, field.name) / getattr(others, field.name)
        for field in fields(Rates)
    )
    return sum(math.log(ratio) ** 2 for ratio in ratios)


def _off(timing: _Timing, target: Target) -> float:
    sizes = timing.shape.sizes
    predicted = predicted_time(sizes, timing.tile, timing.product, target)
    return math.log(timing.seconds / predicted)


def _timings(tuning: Tuning, plans: Mapping[str, Plan]) -> list[_Timing]:
    return [
        _Timing(
            shape, tile, plans[name].product, time, (min(times.values()) / time) ** 2
        )
        for name, measured in tuning.kernels.items()
        if name in plans
        for shape, times in measured.times.items()
        for tile, time in times.items()
    ]


def _rounded(rates: Rates) -> Rates:
    """The constants to three digits: more is not known of them."""
    return Rates(
        **{
            field.name: float(f"{getattr(rates, field.name):.3g}")
            for field in fields(rates)
        }
    )
