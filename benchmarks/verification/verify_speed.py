"""How long `gemmgen verify` takes for one kernel on a GPU when nothing is compiled yet.

    python benchmarks/verification/verify_speed.py [--report FILE.md] [NAME...]

Each kernel is verified by a command of its own, whole process, with TRITON_CACHE_DIR an
empty folder; all modules have been imported before, as installing packages does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = (
    "linear_bf16",
    "linear_bias_gelu",
    "gemm_tt_fp32",
    "gemm_nn_fp64",
    "linear_gelu_aux",
)
AIM = 20


def verified(name: str) -> tuple[float, dict]:
    """Seconds of the whole command, and what it said."""
    command = "verify spec.yaml --profile quick --seed 1 --format json --only"
    with tempfile.TemporaryDirectory() as cache:
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "gemmgen.cli.main", *command.split(), name],
            cwd=ROOT,
            env={**os.environ, "TRITON_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
        )
        seconds = time.monotonic() - started
    return seconds, json.loads(done.stdout)


def row(name: str, seconds: float, told: dict) -> str:
    """A line of the table."""
    by_check = {one["check"]: one for one in told["outcomes"]}
    examples = by_check["properties"]["examples"]
    tiles = by_check["compiled"]["examples"]
    verdict = "passed" if told["ok"] else "FAILED"
    return f"| {name} | {tiles} | {examples} | {verdict} | {seconds:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", type=Path)
    parser.add_argument("kernels", nargs="*", default=KERNELS)
    options = parser.parse_args()
    used = ("api", "cli.main", "verification.run.properties")
    imports = ";".join(f"import gemmgen.{name}" for name in used)
    subprocess.run([sys.executable, "-c", imports], check=True)
    made = [(name, *verified(name)) for name in options.kernels]
    facts = {**made[0][2]["environment"], "cores": str(len(os.sched_getaffinity(0)))}
    lines = [
        "Made by `python benchmarks/verification/verify_speed.py`: seconds of `gemmgen "
        "verify",
        "spec.yaml --profile quick --seed 1 --only KERNEL`, the whole process, with",
        f"Triton's cache empty; aim: under {AIM}.",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        "| kernel | tiles compiled | examples | verdict | s |",
        "| --- | --- | --- | --- | --- |",
        *(row(*one) for one in made),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
