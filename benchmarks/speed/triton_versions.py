"""Races the kernels under several Tritons on one GPU, and times calls under each.

    python benchmarks/speed/triton_versions.py --triton FOLDER ... [--report FILE.md]

Each FOLDER holds an unpacked wheel of Triton; the one that Python finds by itself comes
first. Every Triton has a process of its own, which is asked for a few rounds at a time,
so that all meet the same clocks. Of a call the CPU's time is measured in the process,
against `F.linear`: remembered, by keyword, and at sizes that the launcher has not seen.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SPEC = ROOT / "spec.yaml"
KERNELS = {
    "linear_bf16": "4096x4096x4096 512x4096x4096 64x8192x8192",
    "gemm_nn_fp16": "2048x2048x2048 1000x3000x2000",
    "linear_bias_silu_residual": "2048x6144x4096 16x14336x4096",
    "linear_gelu_aux": "2048x4096x4096 300x4096x1024",
    "gemm_nt_tf32": "4096x4096x4096 256x4096x4096",
}
"""Kernels and shapes that all schedules take part in."""
CALLED = (
    "linear_bf16",
    "linear_bias_gelu",
    "linear_bias_silu_residual",
    "gemm_nn_fp16",
)
ROUNDS, AT_ONCE = 12, 10
ROW_COUNTS = 5000, 10000
"""Of which a launcher remembers all, and none until it comes again."""
NEW = 50, 95
"""Percentiles of the first calls with each number of rows."""
_NEW = "new, {} %".format


class Peer:
    """A process under one Triton."""

    def __init__(self, folder: str | None) -> None:
        paths = [folder] if folder else []
        path = os.pathsep.join([*paths, str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version: str = self.ask("version")

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer to a question, by the name of a function of this file."""
        assert self.process.stdin and self.process.stdout
        print(json.dumps([what, *arguments]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self.version} ended")
        return json.loads(answer)


@dataclass(frozen=True)
class Row:
    """Median microseconds at a shape, by Triton."""

    kernel: str
    shape: str
    times: dict[str, float]


def raced(peers: list[Peer], kernel: str, shape: str) -> Row:
    """One kernel at one shape, the Tritons in turn, in shuffled order."""
    times: dict[str, list[float]] = {one.version: [] for one in peers}
    for one in peers:
        if wrong := one.ask("prepare", kernel, shape):
            raise RuntimeError(f"{kernel} at {shape}, Triton {one.version}: {wrong}")
    shuffled, order = random.Random(0), list(peers)
    for _ in range(ROUNDS):
        shuffled.shuffle(order)
        for one in order:
            times[one.version] += one.ask("timed", AT_ONCE)
    medians = {name: 1e6 * statistics.median(each) for name, each in times.items()}
    return Row(kernel, shape, medians)


# What a process answers.


class Server:
    """What one Triton's process knows between questions."""

    def version(self) -> str:
        """Its Triton."""
        import triton

        return str(triton.__version__)

    def prepare(self, kernel: str, shape: str) -> str:
        """Make the inputs and judge a call; what is wrong with it, if anything."""
        from gemmgen.benchmark.contest import ours, results_of
        from gemmgen.measurement import Gpu, judge, problem
        from gemmgen.select.plan import load
        from gemmgen.spec.shapes import Shape
        from gemmgen.verification.example import subject

        plan = next(one for one in load(SPEC) if one.name == kernel)
        given = problem(plan, Shape(*map(int, shape.split("x"))))
        launcher = subject.launcher_in(ROOT / "generated", plan)
        self.call = ours(given, launcher)
        self.device = Gpu()
        for _ in range(3):
            judged = judge(given, {"ours": results_of(self.call)})["ours"]
            if judged.outside:
                return f"{judged.outside} elements beyond the bound"
        return ""

    def timed(self, count: int) -> list[float]:
        """The seconds of so many calls, the L2 cache flushed before each."""
        self.device.cover(2e-4)
        later = [self.device.timed(self.call) for _ in range(count)]
        self.device.synchronize()
        return [seconds() for seconds in later]

    def calls(self, kernel: str) -> dict[str, float]:
        """CPU time of a call, in several ways, over that of `F.linear`, and that."""
        import torch
        import torch.nn.functional as functional

        from gemmgen.measurement import cpu_time, problem
        from gemmgen.select.plan import load
        from gemmgen.spec.shapes import Shape
        from gemmgen.verification.example import subject

        plan = next(one for one in load(SPEC) if one.name == kernel)
        launcher = subject.launcher_in(ROOT / "generated", plan)
        given = problem(plan, Shape(16, 16, 16)).arguments
        names = plan.argument_names
        named = dict(zip(names, given, strict=True))
        x, w = (torch.randn(16, 16, device="cuda", dtype=torch.bfloat16) for _ in "xw")
        others = itertools.cycle([[given[0].clone(), *given[1:]] for _ in range(1000)])
        clones = itertools.cycle([x.clone() for _ in range(1000)])
        some, unseen = (self._in_turn(launcher, plan, rows) for rows in ROW_COUNTS)
        torch_some = self._rows_of_linear(w, ROW_COUNTS[0])
        linear = partial(functional.linear, x, w)
        new = sorted(self._seconds(unseen) for _ in range(max(ROW_COUNTS)))
        pairs = {  # what makes the launcher forget the others comes last
            "same tensors": (partial(launcher, *given), linear),
            "by keyword": (partial(launcher, **named), linear),
            "other tensors": (
                lambda: launcher(*next(others)),
                lambda: functional.linear(next(clones), w),
            ),
            "5,000 row counts": (some, torch_some),
            # 10,000 row counts are more than cuBLAS keeps either, at 130 us a call.
            "not remembered": (unseen, linear),
            "decided anew": (partial(launcher.__wrapped__, *given), linear),
        }
        ratios = {}
        for name, (ours, theirs) in pairs.items():
            beside = {"ours": ours, "F.linear": theirs}
            timings = cpu_time(beside, torch.cuda.synchronize, batch=1000)
            base = timings["F.linear"].median
            ratios[name] = timings["ours"].median / base
            ratios.setdefault("F.linear", 1e6 * base)
        return ratios | {_NEW(at): 1e6 * new[len(new) * at // 100] for at in NEW}

    @staticmethod
    def _rows_of_linear(w: Any, most: int) -> Any:
        """`F.linear` with another number of rows each time, up to so many."""
        import torch
        import torch.nn.functional as functional

        whole = torch.randn(most, 16, device="cuda", dtype=w.dtype)
        following = itertools.cycle([whole[:rows] for rows in range(1, most + 1)])
        return lambda: functional.linear(next(following), w)

    @staticmethod
    def _seconds(call: Any) -> float:
        """What one call takes of the CPU's time, compilation included."""
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    @staticmethod
    def _in_turn(launcher: Any, plan: Any, most: int) -> Any:
        """A call with another number of rows each time, up to so many."""
        from gemmgen.measurement import problem
        from gemmgen.spec.shapes import Shape

        whole = problem(plan, Shape(most, 16, 16))
        by_rows = {plan.contraction.lhs.name} | {
            one.name for one in plan.tensors if "m" in one.axes
        }
        values = {**whole.tensors, **whole.numbers}
        names = plan.argument_names
        given = [
            [values[n][:rows] if n in by_rows else values[n] for n in names]
            for rows in range(1, most + 1)
        ]
        following: Iterator[list[Any]] = itertools.cycle(given)
        return lambda: launcher(*next(following))


def serve() -> None:
    """Answer questions until there are no more."""
    server = Server()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        print(json.dumps(getattr(server, what)(*arguments)), file=answers, flush=True)


def report(rows: list[Row], calls: dict[str, Any], facts: dict[str, str]) -> str:
    """Both tables in Markdown."""
    first, *others = rows[0].times
    lines = [
        "Made by `python benchmarks/speed/triton_versions.py`: one process for each "
        "Triton, in turn, inputs normal, L2 flushed, medians.",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        f"| kernel | M x N x K | Triton {first}, µs | "
        + " | ".join(f"{one} / {first}" for one in others)
        + " |",
        "| --- | --- | --- |" + " --- |" * len(others),
    ]
    for row in rows:
        base = row.times[first]
        ratios = " | ".join(f"{row.times[one] / base:.3f}" for one in others)
        lines.append(f"| {row.kernel} | {row.shape} | {base:.1f} | {ratios} |")
    lines += [
        "",
        "CPU time of a call at 16x16x16, over that of `F.linear` called in the same "
        "way beside it (its own time: with the same tensors): with the "
        "same tensors by position and by keyword, with 1,000 tensors in turn, with "
        "5,000 row counts in turn, with row counts that are not remembered (10,000 in "
        "turn, of which 8,192 are kept), and with all decided anew at each call; the "
        "last two over `F.linear` with the same tensors. Then, in µs, the first call "
        "with each of 10,000 row counts: the median and the 95th percentile.",
        "",
        "| Triton | kernel | `F.linear`, µs | same tensors | by keyword "
        "| other tensors | 5,000 row counts | not remembered | decided anew "
        "| new, µs | new, 95 %, µs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for version, by_kernel in calls.items():
        for kernel, each in by_kernel.items():
            base, *first = (each.pop(name) for name in ("F.linear", *map(_NEW, NEW)))
            ratios = " | ".join(f"{ratio:.2f}" for ratio in each.values())
            new = " | ".join(f"{one:.0f}" for one in first)
            lines.append(f"| {version} | {kernel} | {base:.1f} | {ratios} | {new} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Race, time, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--triton", nargs="*", default=[], metavar="FOLDER")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    from gemmgen.measurement import environment

    peers = [Peer(folder) for folder in (None, *options.triton)]
    rows = [
        raced(peers, kernel, shape)
        for kernel, shapes in KERNELS.items()
        for shape in shapes.split()
    ]
    calls = {
        peer.version: {kernel: peer.ask("calls", kernel) for kernel in CALLED}
        for peer in peers
    }
    text = report(rows, calls, environment())
    print(text, end="")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
