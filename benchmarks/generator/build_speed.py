"""Times the build as a user waits for it: whole processes, wall clock, medians.

    python benchmarks/generator/build_speed.py --json FILE.json --markdown FILE.md

Builds 100 kernels from nothing, builds them again unchanged, and asks for help. Run it
on an idle machine; the spread of each row tells whether it was.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = 100

# Twenty layouts and dtypes in five forms: the mix of a project's own spec.
FAMILIES = {
    "plain": "acc",
    "bias": "acc + bias[n]",
    "gelu": "gelu(acc + bias[n])",
    "silu": "silu(acc + bias[n]) + residual[m, n]",
    "scaled": "clamp(alpha[] * acc * scale[n], -6, 6)",
}
SPEC = "gemmgen: 1\nkernels:\n" + "".join(f"""\
  - name: {name}_{{layout}}_{{dtype}}
    for_each: {{layout: [NN, NT, TN, TT], dtype: [fp16, bf16, fp32, fp64]}}
    op: gemm
    epilogue: {epilogue}
  - name: {name}_linear_{{dtype}}
    for_each: {{dtype: [fp16, bf16, fp32, fp64]}}
    op: linear
    epilogue: {epilogue}
""" for name, epilogue in FAMILIES.items())


@dataclass(frozen=True)
class Row:
    """One job: median, fastest and slowest run in seconds, and what is aimed at."""

    job: str
    median: float
    fastest: float
    slowest: float
    aim: float
    runs: int


def gemmgen(*arguments: str, folder: Path) -> tuple[float, str]:
    """Seconds that a command took, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gemmgen.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, done.stdout


def from_nothing() -> tuple[float, float]:
    """Seconds of a first build, and of a second one that finds nothing to do."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.yaml").write_text(SPEC)
        first, _ = gemmgen("build", "spec.yaml", folder=folder)
        again, out = gemmgen("build", "spec.yaml", folder=folder)
        made = len(list((folder / "generated").glob("[!_]*/__init__.py")))
        assert made == KERNELS, f"built {made} kernels"
        assert " 0 written" in out, out
    return first, again


def row(job: str, seconds: list[float], aim: float) -> Row:
    """The figures of one job."""
    figures = statistics.median(seconds), min(seconds), max(seconds)
    return Row(job, *(round(one, 3) for one in figures), aim, len(seconds))


def measure(runs: int) -> list[Row]:
    """All rows, after one round that warms the file cache and compiles bytecode."""
    from_nothing()
    first, again = zip(*(from_nothing() for _ in range(runs)), strict=True)
    helped = [gemmgen("--help", folder=ROOT)[0] for _ in range(4 * runs)]
    return [
        row(f"build {KERNELS} kernels from nothing", list(first), 10.0),
        row("build again, unchanged", list(again), 1.0),
        row("gemmgen --help", helped, 0.2),
    ]


def environment() -> dict[str, str | int]:
    """What the figures hold for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return {
        "cores": cores or os.cpu_count() or 1,
        "python": platform.python_version(),
        "black": version("black"),
        "system": f"{platform.system()} {platform.machine()}",
    }


def markdown(rows: list[Row], facts: dict[str, str | int]) -> str:
    """The table, with what made it."""
    said = ", ".join(f"{name} {value}" for name, value in facts.items())
    lines = [
        "# Build times",
        "",
        f"Whole processes, wall clock, seconds; {said}. Made by `python "
        "benchmarks/generator/build_speed.py`.",
        "",
        "| job | median | fastest | slowest | aim | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.job} | {one.median:.2f} | {one.fastest:.2f} | {one.slowest:.2f} "
        f"| < {one.aim:g} | {one.runs} |"
        for one in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, write; 1 if a median misses its aim."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    rows, facts = measure(options.runs), environment()
    text = markdown(rows, facts)
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)
    if options.json:
        table = {**facts, "rows": [asdict(one) for one in rows]}
        options.json.write_text(json.dumps(table, indent=2) + "\n")
    return int(any(one.median > one.aim for one in rows))


if __name__ == "__main__":
    sys.exit(main())
