"""Races the tuned kernels against those built where no tuning file lies.

    python benchmarks/speed/auto_race.py [--report FILE.md] [--budget SECONDS] [NAME...]

The suite's kernels are built twice, beside the tuning file and in a folder without
one, and timed in interleaved rounds of one process. The ratio is the tuned kernel's
time over the other's: what `tiles: auto` reaches of a tuned table, by the costs of
tiles that come with gemmgen where there are some, else by the model.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.benchmark.contest import Launcher, ours, results_of  # noqa: E402
from gemmgen.benchmark.results import geometric_mean  # noqa: E402
from gemmgen.measurement import (  # noqa: E402
    Device,
    Gpu,
    environment,
    judge,
    problem,
    race,
)
from gemmgen.output import builder  # noqa: E402
from gemmgen.select.plan import Plan, load  # noqa: E402
from gemmgen.spec import shapes  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402

SPEC = ROOT / "spec.yaml"
SUITE = ROOT / "benchmarks" / "speed" / "suite.yaml"
AIM = 0.95


@dataclass(frozen=True)
class Row:
    """Microseconds of both at a shape."""

    kernel: str
    shape: Shape
    tuned: float
    auto: float

    @property
    def ratio(self) -> float:
        """What `auto` reaches of the tuned kernel's speed."""
        return self.tuned / self.auto


def launchers(folder: Path, plans: Sequence[Plan]) -> dict[str, Launcher]:
    """The functions of the modules in a folder, by kernel."""
    return {plan.name: subject.launcher_in(folder, plan) for plan in plans}


def without_tuning(folder: Path) -> Path:
    """The project's kernels, built where no tuning file lies beside the spec."""
    spec = Path(shutil.copy(SPEC, folder))
    return builder.build([spec]).folder


def raced(
    plan: Plan,
    shape: Shape,
    tuned: Launcher,
    auto: Launcher,
    device: Device,
    budget_s: float,
) -> Row:
    """Both kernels at one shape; raises RuntimeError if one of them is wrong."""
    given = problem(plan, shape, device.kind)
    calls = {"tuned": ours(given, tuned), "auto": ours(given, auto)}
    results = {name: results_of(call) for name, call in calls.items()}
    for name, judged in judge(given, results).items():
        if judged.outside:
            raise RuntimeError(f"{plan.name} at {shape}, {name}: wrong results")
    timings = race(calls, device, budget_s=budget_s)
    tuned_us, auto_us = (1e6 * timings[name].median for name in ("tuned", "auto"))
    return Row(plan.name, shape, tuned_us, auto_us)


def report(rows: Sequence[Row], facts: dict[str, str]) -> str:
    """A table by kernel, then one by shape, in Markdown."""
    lines = [
        "Made by `python benchmarks/speed/auto_race.py`: the suite with tables built "
        "without a tuning file (auto) and with those of the tuning file (tuned), "
        "interleaved.",
        f"Aim: a geometric mean of {AIM} over the suite.",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        "| kernel | shapes | auto reaches, geometric mean | lowest |",
        "| --- | --- | --- | --- |",
    ]
    names = list(dict.fromkeys(row.kernel for row in rows))
    groups = {name: [row for row in rows if row.kernel == name] for name in names}
    for name, each in {**groups, "all": list(rows)}.items():
        ratios = [row.ratio for row in each]
        mean, lowest = geometric_mean(ratios), min(ratios)
        lines.append(f"| {name} | {len(each)} | {mean:.3f} | {lowest:.3f} |")
    lines += ["", "| kernel | M x N x K | tuned, µs | auto, µs | ratio |"]
    lines.append("| --- | --- | --- | --- | --- |")
    lines += [
        f"| {row.kernel} | {row.shape} | {row.tuned:.1f} | {row.auto:.1f} "
        f"| {row.ratio:.3f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Build, race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--budget", type=float, default=0.15)
    options = parser.parse_args()
    plans = {plan.name: plan for plan in load(SPEC)}
    suite = shapes.read(SUITE, plans)
    names = options.kernels or list(suite)
    chosen = [plans[name] for name in names]
    device, rows = Gpu(), []
    with tempfile.TemporaryDirectory() as folder:
        auto = launchers(without_tuning(Path(folder)), chosen)
        tuned = launchers(ROOT / "generated", chosen)
        for plan in chosen:
            both = tuned[plan.name], auto[plan.name]
            for shape in suite[plan.name]:
                rows.append(raced(plan, shape, *both, device, options.budget))
    text = report(rows, environment())
    print(text, end="")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
