"""Which tiles that auto may take go by way of the stack, and whether in the K loop.

    python benchmarks/generator/spills.py FILE.json [--jobs N] [--only GLOB]
        [--targets sm_90 ...]
    python benchmarks/generator/spills.py --report FILE.md FILE.json ...

The first compiles every such tile of a grid of kernels with the Triton at hand, with no
GPU: each dtype, layout and epilogue of a list, and each function. Put another Triton
before the installed one on PYTHONPATH for its own file. The second makes one report of
several files. Exits with 1 if a tile spills in its K loop or takes more shared memory
than its target has.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import triton  # noqa: E402

from gemmgen.hardware.targets import TARGETS  # noqa: E402
from gemmgen.output import alone  # noqa: E402
from gemmgen.render.names.parts import file_of  # noqa: E402
from gemmgen.select.plan import Plan, plans  # noqa: E402
from gemmgen.select.tuned.tile_text import format_tile, parse_tile  # noqa: E402
from gemmgen.spec.parse import parse  # noqa: E402
from gemmgen.tables.functions import OPS  # noqa: E402
from gemmgen.tables.layouts import LAYOUTS  # noqa: E402
from gemmgen.verification.example import subject  # noqa: E402
from gemmgen.verification.example.aligned import (  # noqa: E402
    compile_aligned,
    jit_function,
)
from gemmgen.verification.machine.machine_code import dump, usage  # noqa: E402
from gemmgen.verification.machine.machine_loops import Spills, spills  # noqa: E402

KINDS = {
    "bf16": "dtype: bf16",
    "fp16_fp32": "dtype: {a: fp16, b: fp16, out: fp32}",
    "tf32": "dtype: fp32, precision: tf32",
    "tf32x3": "dtype: fp32, precision: tf32x3",
    "ieee": "dtype: fp32",
    "fp64": "dtype: fp64",
}
EPILOGUES = {
    "plain": "acc",
    "bias": "acc + bias[n]",
    "bias_residual": "acc + bias[n] + residual[m, n]",
    "bias_gelu": "gelu(acc + bias[n])",
    "all_operands": "silu(alpha[] * acc * s[n] + bias[n]) * r[m] + residual[m, n]",
    "gelu_residual": "gelu(acc * s[m] + bias[n]) + residual[m, n]",
    "two_residuals": "clamp(acc + x[m, n], -1, 1) * y[m, n]",
    "two_results": "pre = acc + bias[n]\\nout = gelu(pre)",
}

_FEW = 9
"""Kernels that a report names."""


@dataclass(frozen=True)
class Task:
    """A kernel of the grid, a target, a tile as it is written."""

    kernel: str
    target: str
    tile: str


@dataclass(frozen=True)
class Found:
    """What became of it: bytes of stack, instructions that use it; or why nothing."""

    kernel: str
    target: str
    tile: str
    stack: int = 0
    beside: int = 0
    in_k_loop: int = 0
    registers: int = 0
    over_shared: int = 0
    failure: str = ""


def entries() -> Iterator[tuple[str, str]]:
    """Names and entries of all kernels of the grid."""
    for kind, dtype in KINDS.items():
        for layout in LAYOUTS:
            for name, text in EPILOGUES.items():
                more = ", outputs: [out, pre]" if "pre" in text else ""
                yield f"{kind}_{layout.lower()}_{name}", (
                    f'op: gemm, layout: {layout}, {dtype}, epilogue: "{text}"{more}'
                )
    for name, function in OPS.items():
        arguments = ["acc", "0.1", "0.5"][: len(function.parameters)]
        if name == "where":
            arguments[0] = "acc > 0"
        text = f"{name}({', '.join(arguments)})"
        yield f"bf16_nt_{name}_only", (f'op: linear, dtype: bf16, epilogue: "{text}"')


@cache
def planned(name: str, targets: tuple[str, ...]) -> Plan:
    """The plan of one kernel of the grid."""
    head = f"gemmgen: 1\ntargets: [{', '.join(targets)}]\nkernels:\n"
    text = f"{head}  - {{name: {name}, {dict(entries())[name]}}}\n"
    (plan,) = plans(parse(text.encode(), "spec.yaml"))
    return plan


def tasks(names: Sequence[str], targets: tuple[str, ...]) -> Iterator[Task]:
    """Every tile of each kernel that the model may choose for a target."""
    for name in names:
        plan = planned(name, targets)
        for table in plan.tables:
            for tile in table.tiles:
                if tile.schedule in plan.schedules:
                    yield Task(name, table.target, format_tile(tile))


def write(folder: Path, names: Sequence[str], targets: tuple[str, ...]) -> None:
    """The kernels' modules, and what they import."""
    for name in names:
        alone.written(folder, planned(name, targets), "spec.yaml")


@cache
def module(path: Path) -> ModuleType:
    """A kernel's module."""
    return subject.load(path)


def compiled(task: Task, targets: tuple[str, ...], folder: Path) -> Found:
    """Compile one and look at its machine code."""
    plan, tile = planned(task.kernel, targets), parse_tile(task.tile)
    target = TARGETS[task.target]
    try:
        loaded = module(folder / file_of(plan))
        kernel = jit_function(loaded, plan, tile.schedule)
        made: Any = compile_aligned(plan, kernel, target, tile)
    except Exception as error:  # Triton's, of any kind
        return Found(**asdict(task), failure=f"{type(error).__name__}: {error}"[:200])
    used = usage(made.asm["cubin"])
    there = spills(dump(made.asm["cubin"], "-sass")) if used.stack else Spills(0, 0)
    return Found(
        **asdict(task),
        stack=used.stack if there.everywhere else 0,
        beside=there.everywhere - there.in_k_loop,
        in_k_loop=there.in_k_loop,
        registers=used.registers,
        over_shared=max(0, made.metadata.shared - target.shared_per_block),
    )


def measure(given: argparse.Namespace) -> int:
    """Compile all and write the file; print what is wrong."""
    targets = tuple(given.targets)
    names = [name for name, _ in entries() if fnmatchcase(name, given.only)]
    todo = list(tasks(names, targets))
    with TemporaryDirectory() as folder, ProcessPoolExecutor(given.jobs) as pool:
        write(Path(folder), names, targets)
        one = partial(compiled, targets=targets, folder=Path(folder))
        found = list(pool.map(one, todo, chunksize=4))
    plain = {"triton": triton.__version__, "found": [asdict(one) for one in found]}
    given.files[0].write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    bad = [one for one in found if one.in_k_loop or one.over_shared or one.failure]
    for one in bad:
        print(one)
    print(f"Triton {triton.__version__}: {len(found)} tiles, {len(bad)} to look at")
    return 1 if bad else 0


def report(runs: Sequence[tuple[str, Sequence[Found]]]) -> str:
    """A table by version, schedule and target, then the tiles whose K loop spills."""
    lines = [
        "Made by `python benchmarks/generator/spills.py`, with no GPU: tiles that auto "
        "may take",
        "for a grid of dtypes, layouts, epilogues and functions.",
        "",
        *map(_extent, runs),
        "",
        "| Triton | schedule | target | tiles | spill beside the K loop | most bytes "
        "| spill in it | do not compile | too much shared memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for version, found in runs:
        groups: dict[tuple[str, str], list[Found]] = defaultdict(list)
        for one in found:
            groups[one.tile.split()[0], one.target].append(one)
        for (schedule, target), each in sorted(groups.items()):
            beside = [one.stack for one in each if one.stack and not one.in_k_loop]
            cells = [
                *(version, schedule, target, len(each), len(beside)),
                max(beside, default=0),
                sum(one.in_k_loop > 0 for one in each),
                sum(bool(one.failure) for one in each),
                sum(one.over_shared > 0 for one in each),
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, "", *_listed(runs)]) + "\n"


def _extent(run: tuple[str, Sequence[Found]]) -> str:
    """How much of the grid was compiled; which kernels, where they are few."""
    names = sorted({one.kernel for one in run[1]})
    which = f": {', '.join(names)}" if len(names) < _FEW else ""
    return f"- Triton {run[0]}: {len(names)} of {len(list(entries()))} kernels{which}"


def _listed(runs: Sequence[tuple[str, Sequence[Found]]]) -> Iterator[str]:
    """Each tile that spills in its K loop, does not compile or does not fit."""
    for version, found in runs:
        for one in found:
            why = one.failure and f"does not compile: {one.failure}"
            if one.in_k_loop:
                why = f"{one.stack} bytes, {one.in_k_loop} instructions in the K loop"
            if one.over_shared:
                why = f"{one.over_shared} bytes more than a block may have"
            if why:
                yield f"- {version}, {one.target}, {one.kernel}: `{one.tile}`, {why}"


def read(path: Path) -> tuple[str, list[Found]]:
    """What was found with one Triton."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    return plain["triton"], [Found(**one) for one in plain["found"]]


def main() -> int:
    """Compile or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="*")
    default = ["sm_80", "sm_90", "sm_100", "sm_120"]
    parser.add_argument("--targets", nargs="+", default=default, choices=TARGETS)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    if not given.report:
        return measure(given)
    given.report.write_text(report([read(path) for path in given.files]), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
