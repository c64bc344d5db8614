"""Races the kernels of two output folders against each other, schedule by schedule.

    python benchmarks/speed/two_builds.py OLD NEW [--report FILE.md] [--json FILE]
        [--shapes COUNT] [--budget SECONDS] [--only SCHEDULE] [NAME...]

For who changes a template: OLD and NEW are folders that `gemmgen build spec.yaml -o`
wrote before and after. Each schedule of a kernel is launched with tiles that its tables
in both folders have for this GPU, and timed at shapes that are drawn for it;
results are held against each other bit for bit. Each schedule has COUNT shapes over all
kernels.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from gemmgen.benchmark.results import geometric_mean  # noqa: E402
from gemmgen.measurement import Gpu, environment, problem, race  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402

SIZES = (512, 768, 1024, 1536, 2048, 2816, 4096, 5120, 8192)
ROWS = {
    "gemv": (1, 2, 3, 4),
    "tma": (1, 8, 16, 48, 64, 128, 200, 384, 512),
    "split_k": (1, 16, 33, 64, 128, 256),
    "tiled": (64, 200, 512, 1000, 2048, 4096),
}
"""Rows by schedule; of those that are not here, as of `tiled`."""


@dataclass(frozen=True)
class Pair:
    """A tile at a shape: microseconds of both, whether results are the same bits."""

    kernel: str
    schedule: str
    tile: str
    shape: str
    old: float
    new: float
    same: bool

    @property
    def ratio(self) -> float:
        """The old time over the new: above 1 the new one is faster."""
        return self.old / self.new


@dataclass(frozen=True)
class Job:
    """What is to be timed: a row of the table, and where."""

    plan: Plan
    row: Any
    shape: Shape


def launched(row: Any) -> tuple[Any, ...]:
    """What of a tile decides its launch."""
    sides = (row.m, row.n, row.k, row.group_m)
    return (row.schedule, row.sm, *sides, row.split_k, row.stages, row.warps)


def rows_of(module: ModuleType) -> dict[tuple[Any, ...], Any]:
    """The rows of a kernel's table, by what decides a launch."""
    return {launched(row): row for row in getattr(module, "TILES", ())}


def jobs(
    plans: Sequence[Plan],
    folders: Sequence[dict[str, ModuleType]],
    count: int,
    only: str | None,
) -> Iterator[Job]:
    """For each schedule so many shapes, each with one of the kernels that have it."""
    drawn = random.Random(0)
    major, minor = torch.cuda.get_device_capability()
    by_schedule: dict[str, list[tuple[Plan, Any]]] = {}
    for plan in plans:
        old, new = (rows_of(modules[plan.name]) for modules in folders)
        for key, row in new.items():
            if row.sm == 10 * major + minor and key in old:
                by_schedule.setdefault(row.schedule, []).append((plan, row))
    for schedule, able in by_schedule.items():
        kernels = sorted({plan.name for plan, _ in able})
        for number in range(count if only in (None, schedule) else 0):
            own = [one for one in able if one[0].name == kernels[number % len(kernels)]]
            plan, row = drawn.choice(own)
            m = drawn.choice(ROWS.get(schedule, ROWS["tiled"]))
            if (
                plan.contraction.lhs.transposed
            ):  # whose rows are to be 16 bytes, or more of them
                m = -(-m // 16) * 16
            yield Job(plan, row, Shape(m, drawn.choice(SIZES), drawn.choice(SIZES)))


def prepared(job: Job, module: ModuleType) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """What launches a job by one folder's kernel, and where its results come."""
    given = problem(job.plan, job.shape)
    outs = given.outputs()
    row = rows_of(module)[launched(job.row)]
    launch = module.LAUNCHES.arguments[row.schedule].launch(
        row, job.shape.sizes, (*_rows(job.plan, given.arguments), *outs)
    )
    return launch.enter, outs


def _rows(plan: Plan, arguments: Sequence[Any]) -> list[Any]:
    """The arguments as a launch takes them: vectors of rows are columns."""
    columns = {one.name for one in plan.tensors if one.axes == ("m",)}
    names = plan.argument_names
    return [
        value.unsqueeze(-1) if name in columns else value
        for name, value in zip(names, arguments, strict=True)
    ]


def raced(job: Job, folders: Sequence[ModuleType], gpu: Gpu, budget_s: float) -> Pair:
    """Both folders' kernels with one tile at one shape."""
    (old, old_outs), (new, new_outs) = (prepared(job, one) for one in folders)
    times = race({"old": old, "new": new}, gpu, budget_s=budget_s, warm_up_s=0.01)
    same = all(
        torch.equal(mine, other) for mine, other in zip(old_outs, new_outs, strict=True)
    )
    row = job.row
    tile = f"{row.m}x{row.n}x{row.k} s{row.stages} w{row.warps} split_k {row.split_k}"
    sizes = "x".join(map(str, job.shape.sizes))
    before, after = (times[name].median * 1e6 for name in ("old", "new"))
    return Pair(job.plan.name, row.schedule, tile, sizes, before, after, same)


def table(pairs: Sequence[Pair]) -> list[str]:
    """A row a schedule: how the new kernels compare with the old."""
    lines = [
        "| schedule | shapes | old / new, mean | median | lowest | same bits |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for schedule in dict.fromkeys(pair.schedule for pair in pairs):
        own = [pair for pair in pairs if pair.schedule == schedule]
        ratios = [pair.ratio for pair in own]
        lines.append(
            f"| {schedule} | {len(own)} | {geometric_mean(ratios):.3f} | "
            f"{statistics.median(ratios):.3f} | {min(ratios):.3f} | "
            f"{sum(pair.same for pair in own)} |"
        )
    return lines


def main() -> None:
    """Race, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--budget", type=float, default=0.15)
    parser.add_argument("--only")
    asked = parser.parse_args()
    plans = [
        plan
        for plan in load(ROOT / "spec.yaml")
        if plan.rows and (not asked.names or plan.name in asked.names)
    ]
    folders = [
        {plan.name: subject.load(folder / file_of(plan)) for plan in plans}
        for folder in (asked.old, asked.new)
    ]
    wanted = list(jobs(plans, folders, asked.shapes, asked.only))
    with ThreadPoolExecutor() as pool:  # compile side by side
        for modules in folders:
            list(pool.map(partial(_compiled, modules), wanted))
    gpu, pairs = Gpu(), []
    for job in wanted:
        own = [modules[job.plan.name] for modules in folders]
        pairs.append(raced(job, own, gpu, asked.budget))
        if asked.json:
            asked.json.write_text(json.dumps([asdict(pair) for pair in pairs]))
    lines = table(pairs)
    slow = sorted(pairs, key=lambda pair: pair.ratio)[:10]
    lines += ["", "The ten lowest:", ""]
    lines += [
        f"- {pair.kernel} {pair.schedule} {pair.tile} at {pair.shape}: "
        f"{pair.old:.1f} and {pair.new:.1f} us, {pair.ratio:.3f}"
        for pair in slow
    ]
    print("\n".join(lines))
    if asked.report:
        told = ", ".join(f"{key} {value}" for key, value in environment().items())
        asked.report.write_text("\n".join([told, "", *lines, ""]))


def _compiled(modules: dict[str, ModuleType], job: Job) -> None:
    prepared(job, modules[job.plan.name])[0]()


if __name__ == "__main__":
    main()
