"""From what each tile costs at many shapes to a short table: which tile serves which.

The table is a decision list: the first row whose limits hold a shape gives its tile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gemmgen.model import Tile

Sizes = tuple[int, int, int]
Limits = tuple[float, float, float]

ANY = float("inf")
M_LIMITS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, ANY)
N_LIMITS = (512, 1024, 2048, 4096, 8192, ANY)
K_LIMITS = (1024, 2048, 4096, 8192, ANY)
_BEYOND = 2
"""An open class is judged at this multiple of its last limit."""


@dataclass(frozen=True)
class Point:
    """A shape, the cost of each tile there relative to the cheapest, and its weight.

    A tile without a cost cannot serve it.
    """

    sizes: Sizes
    costs: Mapping[Tile, float]
    weight: float = 1.0


@dataclass(frozen=True)
class Rule:
    """Sizes up to `limits` are served by `tile`."""

    limits: Limits
    tile: Tile

    def holds(self, sizes: Sizes) -> bool:
        """Whether a shape is within the limits."""
        return all(size <= most for size, most in zip(sizes, self.limits, strict=True))


def grid() -> list[Sizes]:
    """A shape for each class of M, N and K: its largest, or beyond the last limit."""
    axes = [
        [int(limit if limit != ANY else _BEYOND * limits[-2]) for limit in limits]
        for limits in (M_LIMITS, N_LIMITS, K_LIMITS)
    ]
    return [sizes for sizes in product(*axes)]  # type: ignore[misc]


def decide(
    points: Sequence[Point], most_rules: int = 20, least_gain: float = 0.001
) -> list[Rule]:
    """The rules that cost little over all points, sorted by their limits.

    Greedy: begins with the one tile that is best for everything, then adds the rule
    that saves most, until none saves `least_gain` of the whole weight. Where a tile
    cannot serve a point, that counts as ten times the cheapest.
    """
    tiles = list(dict.fromkeys(tile for point in points for tile in point.costs))
    table = _Table(points, tiles)
    rules = [Rule((ANY, ANY, ANY), table.best_everywhere())]
    while len(rules) < most_rules:
        gain, rule = table.best_addition(rules)
        if rule is None or gain < least_gain * table.weight:
            break
        rules = sorted([*rules, rule], key=lambda one: one.limits)
    return table.pruned(rules)


_CANNOT = 10.0


class _Table:
    """Costs by point and tile, and how well rules do."""

    def __init__(self, points: Sequence[Point], tiles: Sequence[Tile]) -> None:
        self.points = points
        self.tiles = tiles
        self.costs = [
            [point.weight * point.costs.get(tile, _CANNOT) for tile in tiles]
            for point in points
        ]
        self.weight = sum(point.weight for point in points)
        self.boxes = [
            (limits, [i for i, point in enumerate(points) if _within(point, limits)])
            for limits in product(M_LIMITS, N_LIMITS, K_LIMITS)
        ]

    def best_everywhere(self) -> Tile:
        """The tile of the least total cost."""
        totals = [sum(row[i] for row in self.costs) for i in range(len(self.tiles))]
        return self.tiles[totals.index(min(totals))]

    def served(self, rules: Sequence[Rule]) -> list[tuple[Limits, float]]:
        """For each point, the limits of the rule that serves it and the cost."""
        numbers = {tile: i for i, tile in enumerate(self.tiles)}
        found = []
        for point, row in zip(self.points, self.costs, strict=True):
            rule = next(one for one in rules if one.holds(point.sizes))
            found.append((rule.limits, row[numbers[rule.tile]]))
        return found

    def best_addition(self, rules: Sequence[Rule]) -> tuple[float, Rule | None]:
        """The rule that saves most when put where its limits belong."""
        served = self.served(rules)
        taken = {rule.limits for rule in rules}
        best: tuple[float, Rule | None] = (0.0, None)
        for limits, inside in self.boxes:
            if limits in taken:
                continue
            mine = [i for i in inside if served[i][0] > limits]
            now = sum(served[i][1] for i in mine)
            if now - sum(min(self.costs[i]) for i in mine) <= best[0]:
                continue
            rows = [self.costs[i] for i in mine]
            totals = [sum(column) for column in zip(*rows, strict=True)]
            gain = now - min(totals)
            if gain > best[0]:
                tile = self.tiles[totals.index(min(totals))]
                best = gain, Rule(limits, tile)
        return best

    def pruned(self, rules: list[Rule]) -> list[Rule]:
        """The rules without those whose absence costs nothing."""
        cost = sum(one for _, one in self.served(rules))
        for rule in rules[:-1]:
            fewer = [one for one in rules if one is not rule]
            if sum(one for _, one in self.served(fewer)) <= cost:
                rules = fewer
        return rules


def _within(point: Point, limits: Limits) -> bool:
    return all(size <= most for size, most in zip(point.sizes, limits, strict=True))
