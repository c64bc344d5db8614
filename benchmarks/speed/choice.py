"""How much longer the chosen tile takes than the fastest that could have been chosen.

    python benchmarks/speed/choice.py [--only NAME] [--count N] [--report FILE.md]
        [--shapes FILE.yaml] [--beside]

At shapes drawn at random, none of which was tuned for: rows log-uniform from 1 to
16384, N and K from 256 to 32768; N and K are multiples of 8 or 64, as rows are too, or
any number. Or at those that a file, as `gemmgen bench` takes it, lists for the kernel.
Every tile of the table that serves such a call, and that is predicted to take at most
`NEAR` times as long as the chosen one, is timed; then the chosen one beside the seven
fastest, in interleaved rounds of one process. The regret is the chosen tile's time over
the least, less 1. With --beside torch is timed too. Each shape is told at once, and the
report is written anew with it.
"""

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.benchmark.peers import returning  # noqa: E402
from gemmgen.measurement import Device, Gpu, environment, problem, race  # noqa: E402
from gemmgen.measurement.race import Call  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.spec.shapes import Shape, read  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402

SPEC = ROOT / "spec.yaml"
ROWS, COLUMNS = (1, 16384), (256, 32768)
LARGEST = 2**41
"""Multiplications of the largest products, which take about 6 ms each."""
FIRST_S, FINAL_S, FINALISTS = 0.02, 0.08, 8
"""Seconds of the races, among all and among the fastest."""
NEAR = 1.3
SHOWN = 15
TORCH = "torch"


@dataclass(frozen=True)
class Row:
    """A shape; the tile chosen there and the fastest; microseconds, torch's or 0."""

    shape: Shape
    chosen: str
    fastest: str
    taken: float
    least: float
    tiles: int
    torch: float

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
    """The tile that the launcher chooses for a call, and those that may be faster."""
    table = subject.runtime(module, "table")
    launches, sizes = module.LAUNCHES, given.shape.sizes
    device, starts = tensors[0].device, table.row_starts(*tensors[:2])
    via_tma = partial(launches.via_tma, tensors)
    _, n, k = sizes
    able = list(table.serving(launches.tiles, device, n, k, starts, via_tma))
    chosen = table.select(launches.tiles, device, sizes, starts, via_tma)
    if chosen.rates is None:
        return chosen, [chosen]
    timed_ = [tile for tile in able if tile.rates and tile.from_rows <= given.shape.m]
    sms = subject.runtime(module, "support").num_sms(device)
    most = NEAR * chosen.predicted(*sizes, sms)
    return chosen, [tile for tile in timed_ if tile.predicted(*sizes, sms) <= most]


def rows(
    plan: Plan, device: Device, shapes: Iterable[Shape], beside: bool
) -> Iterator[Row]:
    """One a shape."""
    module = subject.load(ROOT / "generated" / file_of(plan))
    for shape in shapes:
        given = problem(plan, shape, device.kind)
        tensors = (*given.arguments, *given.outputs())
        chosen, tiles = tiles_at(module, given, tensors)
        arguments = module.LAUNCHES.arguments
        calls: dict[Any, Call] = {
            tile: arguments[tile.schedule].launch(tile, shape.sizes, tensors).enter
            for tile in tiles
        }
        with ThreadPoolExecutor() as pool:  # which compiles them side by side
            list(pool.map(lambda call: call(), calls.values()))
        first = timed(calls, device, FIRST_S)
        fastest = sorted(first, key=first.__getitem__)[: FINALISTS - 1]
        finals = {tile: calls[tile] for tile in dict.fromkeys([chosen, *fastest])}
        if beside:
            finals[TORCH] = returning(given).call
        found = timed(finals, device, FINAL_S)
        torchs = found.pop(TORCH, 0.0)
        best = min(found, key=found.__getitem__)
        named = (_named(chosen), _named(best))
        yield Row(shape, *named, found[chosen], found[best], len(first), torchs)


def timed(calls: Mapping[Any, Call], device: Device, budget: float) -> dict[Any, float]:
    """The microseconds of calls that were raced for so many seconds."""
    found = race(calls, device, budget_s=budget, least_rounds=5, warm_up_s=0.01)
    return {one: 1e6 * timing.median for one, timing in found.items()}


def _named(tile: Any) -> str:
    sides = f"{tile.m}x{tile.n}x{tile.k}" + f" c{tile.ctas}" * (tile.ctas > 1)
    return f"{tile.schedule} {sides} k{tile.split_k} s{tile.stages} w{tile.warps}"


def report(options: argparse.Namespace, found: list[Row], facts: dict[str, str]) -> str:
    """The sums, and the shapes that lose most."""
    worst = sorted(found, key=lambda row: row.regret, reverse=True)
    regrets = [row.regret for row in reversed(worst)]
    mean = sum(regrets) / len(regrets)
    drawn_ = "listed there" if options.shapes else "drawn at random"
    given = f" --shapes {options.shapes}" if options.shapes else ""
    lines = [
        f"Made by `python benchmarks/speed/choice.py --only {options.only}{given}`: "
        f"{len(found)} shapes {drawn_}, none of them tuned for.",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        f"The chosen tile takes {mean:.1%} longer than the fastest of those that the "
        f"launcher could choose from, and that are predicted to take up to {NEAR} "
        "times as long, in the mean, at most "
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


def _told(row: Row) -> str:
    """A row as it is told at once; with torch's time over ours and over the least."""
    text = f"{row.shape}: {row.chosen} {row.taken:.1f}, {row.fastest} {row.least:.1f}"
    if row.torch:
        text += f", torch {row.torch / row.taken:.3f} {row.torch / row.least:.3f}"
    return text


def main() -> None:
    """Race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="linear_bf16", metavar="NAME")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20260102)
    parser.add_argument("--shapes", type=Path, help="as `gemmgen bench` takes them")
    parser.add_argument("--beside", action="store_true", help="time torch too")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    plans = {plan.name: plan for plan in load(SPEC)}
    if options.shapes:
        shapes = list(read(options.shapes, plans)[options.only])
    else:
        shapes = drawn(options.count, options.seed)
    found: list[Row] = []
    facts, text = environment(), ""
    with suppress(KeyboardInterrupt):  # what was measured is told
        for row in rows(plans[options.only], Gpu(), shapes, options.beside):
            found.append(row)
            print(_told(row), flush=True)
            text = report(options, found, facts)
            if options.report:
                options.report.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
