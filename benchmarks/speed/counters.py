"""What the hardware counters say of kernels and of torch's, read by Nsight Compute.

    python benchmarks/speed/counters.py [--report FILE.md]

Every kernel is compiled before; ncu then runs it alone, with caches emptied and at the
clock that the GPU chooses. Needs `ncu` and the right to read counters.
"""

import argparse
import csv
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.runtime.sides import SECTOR  # noqa: E402

CASES = (
    ("linear_bf16", 1000, 3000, 2000),
    ("linear_bf16", 256, 256, 32768),
    ("linear_bf16", 88, 3152, 3328),
    ("linear_bf16", 1, 28672, 4096),
    ("linear_bf16", 1, 4096, 14336),
    ("linear_bf16", 2048, 6144, 4096),
    ("linear_bias_gelu_tanh", 2048, 6144, 4096),
    ("linear_bf16", 512, 4096, 4096),
    ("linear_bias_gelu_tanh", 512, 4096, 4096),
    ("linear_bias_gelu_tanh", 16, 14336, 4096),
    ("gemm_nn_fp16", 1000, 3000, 2000),
)
OF_PEAK = ".avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "gpu__time_duration.sum": "µs",
    "launch__grid_size": "programs",
    "sm__pipe_tensor_op_hmma_cycles_active" + OF_PEAK: "tensor core %",
    "lts__t_sectors_op_read.sum": "read through L2, MB",
    "lts__throughput" + OF_PEAK: "L2 %",
    "dram__throughput" + OF_PEAK: "memory %",
    "smsp__issue_active" + OF_PEAK: "issue slots %",
    "sm__cycles_active" + OF_PEAK: "SMs busy %",
}
SCALES = {"lts__t_sectors_op_read.sum": SECTOR / 1e6, "gpu__time_duration.sum": 1e-3}


def play() -> None:
    """Call every kernel and torch's between marks; this is what ncu watches."""
    import torch

    from gemmgen.benchmark.peers import returning
    from gemmgen.measurement import problem
    from gemmgen.select.plan import load
    from gemmgen.spec.shapes import Shape
    from gemmgen.verification.example import subject

    plans = {plan.name: plan for plan in load(ROOT / "spec.yaml")}
    for name, *sizes in CASES:
        plan = plans[name]
        given = problem(plan, Shape(*sizes), "cuda")
        launcher = subject.launcher_in(ROOT / "generated", plan)
        calls = (partial(launcher, *given.arguments), returning(given).call)
        for call in calls:
            call()
        torch.cuda.synchronize()
        for call in calls:
            torch.cuda.profiler.start()
            call()
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()


def counted() -> list[dict[str, str]]:
    """A row for each kernel that ran, in order."""
    command = [
        *("ncu", "--csv", "--page", "raw", "--profile-from-start", "off"),
        *("--clock-control", "none", "--metrics", ",".join(METRICS)),
        *(sys.executable, __file__, "--play"),
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if done.returncode or not lines:
        raise SystemExit(f"ncu ended with {done.returncode}:\n{done.stdout}")
    return list(csv.DictReader(lines))[1:]  # the first row has the units


def row(found: dict[str, str]) -> str:
    """A line of the table."""
    cells = [found["Kernel Name"].split("(")[0][:60]]
    for metric in METRICS:
        value = float(found[metric].replace(",", "")) * SCALES.get(metric, 1)
        cells.append(f"{value:,.0f}" if value >= 100 else f"{value:.1f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=Path)
    parser.add_argument("--play", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.play:
        return play()
    from gemmgen.measurement import environment

    columns = ["kernel", *METRICS.values()]
    cases = ", ".join(f"{name} {m}x{n}x{k}" for name, m, n, k in CASES)
    lines = [
        "Made by `python benchmarks/speed/counters.py`: each kernel alone under Nsight",
        "Compute, caches emptied, clocks as the GPU chooses. Ours, then torch's.",
        "",
        f"Cases in order: {cases}.",
        "",
        ", ".join(f"{key} {value}" for key, value in environment().items()),
        "",
        f"| {' | '.join(columns)} |",
        f"| {' | '.join('---' for _ in columns)} |",
        *map(row, counted()),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
