"""From times at some shapes to what each tile costs at any: constants, fitted.

The form is that of `runtime/tile.py`, by which launchers choose.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemmgen.cost.resources import programs_at_a_time
from gemmgen.cost.time import row_starts
from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.tile import (
    GROUP_M,
    Product,
    Rates,
    Tile,
    Work,
    duration,
)
from gemmgen.select.tuned.costs import Cost, Costs, rates_of
from gemmgen.select.tuned.epilogues import fetching, hides_epilogues, instructions
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.fitting.standing import known_of

_NEAR = 0.2
"""How much slower than the fastest a tile counts half."""
_SLOW = 1.3
"""A tile that takes so many times as long is not to be predicted faster than that: by
how much it loses is no matter."""
_OUTLIER = 0.1
"""Errors, as logarithms, from which on they count in proportion, not squared."""
_PULL = 1e-4
"""Weight of what constants are before, where no time says anything of them."""
_HELD = 1e-1
"""That of rates which are known."""
_STEPS = 400

_BEFORE = Rates(
    *(2, 2, 2.5, 4.5e6, 18e6, 3e6, 1.3, 2.4),
    *(2.0, 8e4, 0.15, 4e8, 1e8, 150.0),
)
_COSTS = Cost(0.3, 2.0, 3.0, 1e-4)
"""What an H200 has and what its tiles of bf16 cost, about: where the search begins."""


@dataclass(frozen=True)
class Sample:
    """A product, a shape, and the seconds of tiles there, the fastest of all tried.

    Of the tiles that were `tried` those without a time take `least` at least.
    """

    product: Product
    shape: Shape
    times: Mapping[Tile, float]
    least: float
    tried: Collection[Tile]

    @property
    def best(self) -> float:
        """The least time."""
        return min(self.times.values())


def fitted(
    samples: Sequence[Sample],
    tiles: Sequence[Tile],
    target: Target,
    known: Rates | None = None,
) -> Costs:
    """What the tiles cost, by all of their times on a GPU of the target.

    Rates of that which are `known` from a kind of more times hardly change.
    """
    fit = _Fit(samples, tiles, target, known)
    fit.run()
    return fit.costs(tiles)


def _alone(tile: Tile) -> Tile:
    """The tile whose costs it shares: in any parts of K, and groups of any size."""
    return replace(tile, split_k=1, group_m=GROUP_M)


def _launch(tile: Tile) -> tuple[str, bool]:
    """What tiles are alike in whose launches cost the same.

    Where consumers take turns with tiles, one writes while another multiplies, but for
    the last tile: what that adds is the launch's.
    """
    return tile.schedule, hides_epilogues(tile)


class _Fit:
    """The pairs of shape and tile, as arrays, and the constants under way.

    Tiles alike share what a launch costs, and an instruction of the epilogue.
    One that stands for others has their times, each with a `share` of its block.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        tiles: Sequence[Tile],
        target: Target,
        known: Rates | None,
    ) -> None:
        self.tiles = list(dict.fromkeys(map(_alone, tiles)))
        self.launches = list(dict.fromkeys(map(_launch, self.tiles)))
        rows: list[list[float]] = []
        for sample in samples:
            rates, sizes = rates_of(sample.product, _BEFORE), sample.shape.sizes
            starts = row_starts(sizes, sample.product)
            for (tile, own), weight in _weights(sample, tiles).items():
                time = sample.times.get(tile, sample.least)
                programs = programs_at_a_time(tile, sample.product, target)
                launched = tile.launched._replace(resident=programs, starts=starts)
                rows.append([
                    *launched.work(*sizes, target.sms, rates),
                    own.share(tile),
                    instructions(own, sample.product),
                    fetching(own, sample.product),
                    self.tiles.index(_alone(own)),
                    self.launches.index(_launch(tile)),
                    1e6 * min(time, _SLOW * sample.best),
                    weight,
                    _is_slow(sample, tile),
                ])  # fmt: skip
        columns = torch.tensor(rows, dtype=torch.float64).T
        count = len(Work._fields)
        self.work = Work(*columns[:count])
        self.share, self.instructions, self.fetching, *rest = columns[count:]
        place, launch, self.times, self.weights, slow = rest
        self.place, self.launch = place.long(), launch.long()
        hides = torch.tensor([hides for _, hides in self.launches])
        self.hides = hides[self.launch]
        self.slow = slow.bool()
        self.before, self.pull = self._begin(known)
        self.constants = self.before.clone().requires_grad_()

    def _begin(self, known: Rates | None) -> tuple[Any, Any]:
        """The constants to begin with, as logarithms, and how much each is held."""
        each = [_COSTS.block] * len(self.tiles) + [_COSTS.once] * len(self.tiles)
        of_launches = [_COSTS.launch] * len(self.launches)
        of_launches += [_COSTS.operation] * len(self.launches)
        of_gpu = list(known or _BEFORE)[2:]
        before = [*of_gpu, *each, *of_launches]
        constants = torch.tensor(before, dtype=torch.float64).log()
        pull = torch.full_like(constants, _PULL)
        pull[: len(of_gpu)] = _HELD if known else _PULL
        return constants, pull

    def split(self) -> tuple[Rates, Any, Any, Any, Any]:
        """Rates, and costs of tiles and of launches."""
        tiles, launches = len(self.tiles), len(self.launches)
        sizes = [len(_BEFORE) - 2, tiles, tiles, launches, launches]
        rates, *costs = self.constants.exp().split(sizes)
        block, once, launch, operation = costs
        return Rates(2, 2, *rates), block, once, launch, operation

    def loss(self) -> Any:
        """How far predictions are off, in all; those of slow tiles if they are low."""
        rates, block, once, launch, operation = self.split()
        epilogue = operation[self.launch] * self.instructions
        once = once[self.place] + epilogue * ~self.hides
        launch = launch[self.launch] + epilogue * self.hides + self.fetching
        block = block[self.place] * self.share
        found = duration(self.work, block, once, launch, rates)
        off = (found / self.times).log()
        off = torch.where(self.slow, off.clamp(max=0), off)
        error = torch.nn.functional.huber_loss(
            off, torch.zeros_like(off), reduction="none", delta=_OUTLIER
        )
        pull = self.pull * (self.constants - self.before) ** 2
        return (self.weights * error).sum() + pull.sum()

    def run(self) -> None:
        """Find the constants of the least loss."""
        search = torch.optim.LBFGS(
            [self.constants],
            max_iter=_STEPS,
            history_size=30,
            line_search_fn="strong_wolfe",
        )

        def step() -> Any:
            search.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        search.step(step)

    def costs(self, tiles: Sequence[Tile]) -> Costs:
        """The constants, for every tile."""
        with torch.no_grad():
            rates, block, once, launch, operation = self.split()
        found = {}
        for tile in tiles:
            place = self.tiles.index(_alone(tile))
            alike = self.launches.index(_launch(tile))
            costs = (block[place], once[place], launch[alike], operation[alike])
            found[tile] = Cost(*map(float, costs))
        return Costs(Rates(2, 2, *map(float, rates[2:])), found)


def _is_slow(sample: Sample, tile: Tile) -> bool:
    """Whether a tile takes so long that its own time is no matter; unknown ones do."""
    time = sample.times.get(tile)
    return time is None or time > _SLOW * sample.best


def _weights(sample: Sample, tiles: Sequence[Tile]) -> dict[tuple[Tile, Tile], float]:
    """How much times count, of those tried and of what stands for them.

    That of slow ones as that of the best; those of a sample as much as one in all.
    """
    weights = {
        (one, tile): (
            1.0
            if _is_slow(sample, one)
            else 1 / (1 + ((sample.times[one] / sample.best - 1) / _NEAR) ** 2)
        )
        for tile in tiles
        for one in known_of(tile, sample.tried)
    }
    known = (weight for (one, _), weight in weights.items() if one in sample.times)
    total = max(1.0, sum(known))
    return {pair: weight / total for pair, weight in weights.items()}
