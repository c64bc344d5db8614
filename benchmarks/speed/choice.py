"""How much longer the chosen tile takes than the fastest that could have been chosen.

    python benchmarks/speed/choice.py [--only NAME] [--count N] [--report FILE.md]

At shapes drawn at random, none of which was tuned for: rows log-uniform from 1 to
16384, N and K from 256 to 32768; N and K are multiples of 8 or 64, as rows are too, or
any number. Every tile of the table that serves such a call is timed beside the chosen
one, in interleaved rounds of one process. The regret is the chosen tile's time over the
least, less 1.
"""

import argparse
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.measurement import Device, Gpu, environment, problem, race  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402

SPEC = ROOT / "spec.yaml"
ROWS, COLUMNS = (1, 16384), (256, 32768)
LARGEST = 2**41
"""Multiplications of the largest products, which take about 6 ms each."""
BUDGET_S = 0.1
SHOWN = 15


@dataclass(frozen=True)
class Row:
    """A shape; the tile chosen there and the fastest, and their microseconds."""

    shape: Shape
    chosen: str
    fastest: str
    taken: float
    least: float
    tiles: int

    @property
    def regret(self) -> float:
        """By what share the chosen tile is slower."""
        return self.taken / self.least - 1


def drawn(count: int, seed: int) -> list[Shape]:
    """Different shapes of the ranges above."""
    source = random.Random(seed)
    found: dict[Shape, None] = {}
    while len(found) < count:
        m = _size(source, *ROWS, source.choice((1, 8, 64)))
        n, k = (_size(source, *COLUMNS, source.choice((8, 64))) for _ in "nk")
        if m * n * k <= LARGEST:
            found[Shape(m, n, k)] = None
    return list(found)


def _size(source: random.Random, least: int, most: int, multiple: int) -> int:
    size: float = least * (most / least) ** source.random()
    return max(1, round(size / multiple)) * multiple


def tiles_at(
    module: Any, given: Any, tensors: tuple[Any, ...]
) -> tuple[Any, list[Any]]:
    """The tile that the launcher chooses for a call, and all that could serve it."""
    table = subject.runtime(module, "table")
    launches, sizes = module.LAUNCHES, given.shape.sizes
    device, starts = tensors[0].device, table.row_starts(*tensors[:2])
    via_tma = partial(launches.via_tma, tensors)
    _, n, k = sizes
    able = list(table.serving(launches.tiles, device, n, k, starts, via_tma))
    chosen = table.select(launches.tiles, device, sizes, starts, via_tma)
    return chosen, [tile for tile in able if tile.rates or tile == chosen]


def rows(plan: Plan, device: Device, count: int, seed: int) -> Iterator[Row]:
    """One a shape."""
    module = subject.load(ROOT / "generated" / file_of(plan))
    for shape in drawn(count, seed):
        given = problem(plan, shape, device.kind)
        tensors = (*given.arguments, *given.outputs())
        chosen, tiles = tiles_at(module, given, tensors)
        arguments = module.LAUNCHES.arguments
        calls = {
            tile: arguments[tile.schedule].launch(tile, shape.sizes, tensors).enter
            for tile in tiles
        }
        with ThreadPoolExecutor() as pool:  # which compiles them side by side
            list(pool.map(lambda call: call(), calls.values()))
        found = race(calls, device, budget_s=BUDGET_S, least_rounds=5, warm_up_s=0.01)
        times = {tile: 1e6 * timing.median for tile, timing in found.items()}
        best = min(times, key=times.__getitem__)
        named = (_named(chosen), _named(best))
        yield Row(shape, *named, times[chosen], times[best], len(times))


def _named(tile: Any) -> str:
    sides = f"{tile.m}x{tile.n}x{tile.k}" + f" c{tile.ctas}" * (tile.ctas > 1)
    return f"{tile.schedule} {sides} k{tile.split_k} s{tile.stages} w{tile.warps}"


def report(name: str, found: list[Row], facts: dict[str, str]) -> str:
    """The sums, and the shapes that lose most."""
    worst = sorted(found, key=lambda row: row.regret, reverse=True)
    regrets = [row.regret for row in reversed(worst)]
    mean = sum(regrets) / len(regrets)
    lines = [
        f"Made by `python benchmarks/speed/choice.py --only {name}`: "
        f"{len(found)} shapes drawn at random, none of them tuned for.",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        f"The chosen tile takes {mean:.1%} longer than the fastest of those that the "
        f"launcher could choose from in the mean, at most "
        f"{regrets[int(0.95 * len(regrets))]:.1%} at 95 % of the shapes, at the worst "
        f"{regrets[-1]:.1%}.",
        "",
        "| M x N x K | chosen | µs | fastest | µs | regret | tiles |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *map(_line, worst[:SHOWN]),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    return (
        f"| {row.shape} | {row.chosen} | {row.taken:.1f} | {row.fastest} "
        f"| {row.least:.1f} | {row.regret:.1%} | {row.tiles} |"
    )


def main() -> None:
    """Race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="linear_bf16", metavar="NAME")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20260102)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    plan = next(one for one in load(SPEC) if one.name == options.only)
    found: list[Row] = []
    with suppress(KeyboardInterrupt):  # what was measured is told
        for row in rows(plan, Gpu(), options.count, options.seed):
            found.append(row)
    text = report(plan.name, found, environment())
    print(text, end="")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
