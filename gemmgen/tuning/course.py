"""A layer over its rows: the time of each tile, and the tiles that its calls take.

Tiles were timed at the rows of a ladder. Between two of these a tile takes what the
model predicts, times how far that was off at both, so that waves of tiles count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from gemmgen.cost.resources import spills
from gemmgen.cost.time import predicted_time
from gemmgen.hardware.targets import Target
from gemmgen.runtime.tile import ROWS
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.serving import otherwise
from gemmgen.select.tuned.decision_list import CANNOT
from gemmgen.select.tuned.layers import Pin
from gemmgen.select.tuned.tuning_file import Times
from gemmgen.spec.shapes import Layer, Shape
from gemmgen.tuning.trials.candidates import AS_SLOW

_STEPS = 32
"""Of rows in an octave, in which one tile serves; of `ROWS` at least."""
_LEAST_LOSS = 0.02
"""What the tile that calls else take may lose, as a share, and nobody minds."""
_PRICE = 0.005
"""What a row of the table must save: that share over a quarter of an octave."""
_HABIT = 1e-3
"""What a tile loses that is not the usual one: as good as that, it serves nothing."""
_ROUND = 0.125
"""Octaves that a row of the ladder counts for: calls come at round numbers."""


def course_of(
    plan: Plan, target: Target, layer: Layer, times: Times
) -> "Course | None":
    """A layer over its rows, by times at some of them; None if there are none."""
    known = {
        shape.m: {
            tile: at for tile, at in each.items() if not spills(tile, plan.product)
        }
        for shape, each in times.items()
        if shape.layer == layer
    }
    known = {rows: each for rows, each in sorted(known.items()) if each}
    return Course(plan, target, layer, known) if known else None


@dataclass(frozen=True)
class Course:
    """A layer's times over its rows: those `known`, and what follows in between."""

    plan: Plan
    target: Target
    layer: Layer
    known: Mapping[int, Mapping[Tile, float]]

    def pins(self) -> Iterator[Pin]:
        """The tiles for rows at which calls lose too much else.

        Each has a row of the ladder at which it was timed as the better one.
        """
        ends = zip(self.steps, self.served(), strict=True)
        for tile, run in groupby(ends, key=lambda pair: pair[1]):
            if tile is None:
                continue
            steps = [step for step, _ in run]
            least, most = steps[0][0] + 1, steps[-1][1]
            gains = {
                rows: (self.usual(rows) / self.known[rows][tile], rows)
                for rows in self.known
                if least <= rows <= most and tile in self.known[rows]
            }
            gain, at = max(gains.values(), default=(1.0, 0))
            if gain > 1 + _LEAST_LOSS:
                seconds = self.known[at][tile]
                yield Pin(least, most, tile, at, seconds, self.usual(at))

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """Ranges of rows, each from above the first number up to the second."""
        ends, rows = {1, *self.known}, 0
        while (rows := rows + _step(rows)) < max(self.known):
            ends.add(rows)
        return [*pairwise([0, *sorted(ends)])]

    @cached_property
    def tiles(self) -> list[Tile]:
        """All that were timed."""
        return list(
            dict.fromkeys(tile for each in self.known.values() for tile in each)
        )

    @cached_property
    def off(self) -> Mapping[int, Mapping[Tile, float]]:
        """How far the model is off at the rows of the ladder: logarithms."""
        return {
            rows: {
                tile: math.log(time / self.modelled(tile, rows))
                for tile, time in each.items()
            }
            for rows, each in self.known.items()
        }

    def served(self) -> list[Tile | None]:
        """The tile of each step, None for that which calls else take.

        The cheapest of all ways through the steps: what is lost, and a price a change.
        """
        ways: Sequence[Tile | None] = (None, *self.tiles)
        spent = {way: 0.0 if way is None else math.inf for way in ways}
        came: list[dict[Tile | None, Tile | None]] = []
        for step in self.steps:
            cheapest = min(ways, key=spent.__getitem__)
            changed = spent[cheapest] + _PRICE
            entered = dict.fromkeys(ways, changed) | {None: spent[cheapest]}
            lost = self.losses(step)
            came.append({
                way: way if spent[way] <= entered[way] else cheapest for way in ways
            })  # fmt: skip
            spent = {way: min(spent[way], entered[way]) + lost[way] for way in ways}
        found = [min(ways, key=spent.__getitem__)]
        for back in reversed(came[1:]):
            found.append(back[found[-1]])
        return found[::-1]

    def losses(self, step: tuple[int, int]) -> dict[Tile | None, float]:
        """What each way loses in a step of rows."""
        rows = step[1]
        octaves = math.log2(rows / max(step[0], 1)) + _ROUND * (rows in self.known)
        times = {tile: self.seconds(tile, rows) for tile in self.tiles}
        best = min(times.values())
        found: dict[Tile | None, float] = {
            tile: octaves * (_HABIT + min(CANNOT, time / best - 1))
            for tile, time in times.items()
        }
        usual = self.seconds(self.choice(rows), rows)
        loss = (usual if usual < math.inf else AS_SLOW * best) / best - 1
        return {**found, None: octaves * loss if loss > _LEAST_LOSS else 0.0}

    def usual(self, rows: int) -> float:
        """Seconds at a row of the ladder of the tile that calls else take.

        One without a time takes so long at least that it was not kept.
        """
        known = self.known[rows]
        return known.get(self.choice(rows), AS_SLOW * min(known.values()))

    def choice(self, rows: int) -> Tile:
        """The tile that calls else take."""
        shape = Shape(rows, *self.layer)
        row = otherwise(self.plan, shape, self.target)
        return row.tile_for(shape.sizes, self.plan.product)

    def seconds(self, tile: Tile, rows: int) -> float:
        """What a tile takes for so many rows; infinite if nothing near them says so."""
        below = max((at for at in self.known if at <= rows), default=0)
        above = min(at for at in self.known if at >= rows)
        near = [at for at in (below, above) if tile in self.off.get(at, {})]
        if not near:
            return math.inf
        first, last = near[0], near[-1]
        low, high = self.off[first][tile], self.off[last][tile]
        share = math.log(rows / first) / math.log(last / first) if last > first else 0
        return math.exp(low + share * (high - low)) * self.modelled(tile, rows)

    def modelled(self, tile: Tile, rows: int) -> float:
        """What the model predicts."""
        sizes = rows, *self.layer
        return predicted_time(sizes, tile, self.plan.product, self.target)


def _step(rows: int) -> int:
    """By how many rows a step goes on from so many."""
    return max(ROWS, (1 << rows.bit_length()) // (2 * _STEPS))
