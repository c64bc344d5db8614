"""Predicted against real shared memory, over every tile that a table or `tune` has.

    python benchmarks/generator/shared_memory.py [--report FILE.md] [kernels ...]

Compiles for each target of the spec, with no GPU: all rows of the tables, and for the
kernels of benchmarks/speed/suite.yaml also every candidate that `tune` would time.
Exits with 1 if a tile takes more than was predicted.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import triton  # noqa: E402

from gemmgen.cost.resources import shared_memory  # noqa: E402
from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.schedules.parts.tile import Tile  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.spec import shapes  # noqa: E402
from gemmgen.tuning.trials.candidates import candidates  # noqa: E402
from gemmgen.verification.example.aligned import (  # noqa: E402
    compile_aligned,
    jit_function,
)

CLOSE = 128
"""Bytes of which a prediction may be too high."""
Task = tuple[str, str, Tile]
Found = tuple[Task, int, int]


@cache
def kernels() -> dict[str, Plan]:
    """The plans of the project's own spec."""
    return {plan.name: plan for plan in load(ROOT / "spec.yaml")}


def tasks(names: Sequence[str]) -> Iterator[Task]:
    """Every kernel, target and tile to compile."""
    suite = shapes.read(ROOT / "benchmarks" / "speed" / "suite.yaml", kernels())
    for name in names or kernels():
        plan = kernels()[name]
        tiles = list(plan.tiles)
        if name in suite:
            targets = [TARGETS[target] for target in plan.targets]
            tiles += [(one, tile) for one in targets for tile in candidates(plan, one)]
        for target, tile in dict.fromkeys(tiles):
            if tile.schedule in plan.schedules:
                yield name, target.name, tile


def measured(task: Task) -> Found | None:
    """The task, real bytes, predicted bytes; None if the tile does not compile."""
    name, target, tile = task
    plan, module = kernels()[name], importlib.import_module(f"generated.{name}")
    kernel = jit_function(module, plan, tile.schedule)
    try:
        made = compile_aligned(plan, kernel, TARGETS[target], tile)
    except Exception:  # what spills too much for ptxas, which `tune` leaves out as well
        return None
    predicted = shared_memory(tile, plan.product, TARGETS[target])
    return task, made.metadata.shared, predicted


def report(found: Sequence[Found], failed: int) -> str:
    """A table by schedule and target, in Markdown."""
    lines = [
        "Made by `python benchmarks/generator/shared_memory.py`: bytes of shared "
        f"memory that Triton {triton.__version__} gives, against those predicted.",
        "",
        f"{len(found)} compilations; {failed} candidates of `tune` do not compile.",
        "",
        "| schedule | target | compiled | predicted too low | exact "
        f"| at most {CLOSE} too high | largest excess |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    groups: dict[tuple[str, str], list[int]] = {}
    for (_, target, tile), real, predicted in found:
        groups.setdefault((tile.schedule, target), []).append(predicted - real)
    groups = dict(sorted(groups.items()))
    groups["all", "all"] = [over for each in groups.values() for over in each]
    for (schedule, target), each in groups.items():
        low = sum(over < 0 for over in each)
        exact = sum(over == 0 for over in each)
        close = sum(0 <= over <= CLOSE for over in each)
        lines.append(
            f"| {schedule} | {target} | {len(each)} | {low} | {exact / len(each):.1%} "
            f"| {close / len(each):.1%} | {max(each)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compile, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    todo = list(tasks(given.kernels))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(measured, todo, chunksize=8))
    found = [one for one in results if one]
    text = report(found, len(results) - len(found))
    print(text, end="")
    if given.report:
        given.report.write_text(text, encoding="utf-8")
    low = [one for one in found if one[1] > one[2]]
    for task, real, predicted in low:
        print(f"{task} takes {real} bytes, {predicted} were predicted")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
