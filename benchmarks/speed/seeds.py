"""Times every kernel of generated/ against torch, and study_matmul as the slides did.

    python benchmarks/speed/seeds.py --json seeds.json --markdown seeds.md

One process, interleaved rounds, L2 flushed before every call, random data, medians.
The ratio is torch's time over ours: above 1 ours is faster.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
import triton

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import generated as g

SIZE = 4096
LINEAR = (4096, 6144, 4096)
DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}
Call = Callable[[], object]


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)


def gemm_pair(name: str) -> tuple[Call, Call]:
    """(ours, torch's) for gemm_<layout>_<dtype>."""
    _, layout, dtype = name.split("_")
    kernel, kind = getattr(g, name), DTYPES.get(dtype, torch.float32)
    a, b = randn(SIZE, SIZE, dtype=kind), randn(SIZE, SIZE, dtype=kind)
    left = a.t() if layout[0] == "t" else a
    right = b.t() if layout[1] == "t" else b
    out = torch.empty(SIZE, SIZE, device="cuda", dtype=kind)
    return lambda: kernel(a, b, out=out), lambda: torch.mm(left, right, out=out)


def linear_pairs() -> dict[str, tuple[Call, Call]]:
    """(ours, torch's eager form) for the linear kernels."""
    m, n, k = LINEAR
    half, brain = torch.float16, torch.bfloat16
    xh, wh = randn(m, k, dtype=half), randn(n, k, dtype=half)
    x, w, bias = (randn(*s, dtype=brain) for s in ((m, k), (n, k), (n,)))
    residual, residual_h = randn(m, n, dtype=brain), randn(m, n, dtype=half)
    bias_h, rows, columns = (
        randn(n, dtype=half),
        randn(m, dtype=torch.float32),
        randn(n, dtype=torch.float32),
    )
    x32, w32, limit = (randn(*s, dtype=torch.float32) for s in ((m, k), (n, k), (n,)))

    def aux() -> tuple[torch.Tensor, torch.Tensor]:
        pre = F.linear(x, w, bias)
        return F.gelu(pre), pre

    def clamp() -> torch.Tensor:
        acc = F.linear(x32, w32)
        return torch.where(acc > limit, acc, F.leaky_relu(acc, 0.01)).clamp(-6, 6)

    scale_rows, scale_columns = rows[:, None].half(), columns.half()
    return {
        "study_linear": (lambda: g.study_linear(xh, wh), lambda: F.linear(xh, wh)),
        "linear_bf16": (lambda: g.linear_bf16(x, w), lambda: F.linear(x, w)),
        "linear_bias": (
            lambda: g.linear_bias(x, w, bias),
            lambda: F.linear(x, w, bias),
        ),
        "linear_bias_relu": (
            lambda: g.linear_bias_relu(xh, wh, bias_h),
            lambda: F.relu(F.linear(xh, wh, bias_h)),
        ),
        "linear_bias_gelu": (
            lambda: g.linear_bias_gelu(x, w, bias),
            lambda: F.gelu(F.linear(x, w, bias)),
        ),
        "linear_bias_gelu_tanh": (
            lambda: g.linear_bias_gelu_tanh(x, w, bias),
            lambda: F.gelu(F.linear(x, w, bias), approximate="tanh"),
        ),
        "linear_bias_silu_residual": (
            lambda: g.linear_bias_silu_residual(x, w, bias, residual),
            lambda: F.silu(F.linear(x, w, bias)) + residual,
        ),
        "linear_residual": (
            lambda: g.linear_residual(xh, wh, residual_h),
            lambda: F.linear(xh, wh) + residual_h,
        ),
        "linear_scales": (
            lambda: g.linear_scales(xh, wh, rows, columns),
            lambda: F.linear(xh, wh) * scale_rows * scale_columns,
        ),
        "linear_clamp": (lambda: g.linear_clamp(x32, w32, limit), clamp),
        "linear_gelu_aux": (lambda: g.linear_gelu_aux(x, w, bias), aux),
    }


def other_pairs() -> dict[str, tuple[Call, Call]]:
    """(ours, torch's) for study_matmul and the gemm kernels of other names."""
    a, b = (randn(SIZE, SIZE, dtype=torch.float16) for _ in range(2))
    c, d = (randn(SIZE, SIZE, dtype=torch.bfloat16) for _ in range(2))
    addend = randn(SIZE, SIZE, dtype=torch.bfloat16)
    out = torch.empty_like(a)
    return {
        "study_matmul": (
            lambda: g.study_matmul(a, b, out=out),
            lambda: torch.mm(a, b, out=out),
        ),
        "gemm_nn_fp16_to_fp32": (
            lambda: g.gemm_nn_fp16_to_fp32(a, b),
            lambda: torch.mm(a, b).float(),
        ),
        "gemm_nn_bf16_alpha_beta": (
            lambda: g.gemm_nn_bf16_alpha_beta(c, d, 0.5, 2.0, addend),
            lambda: torch.addmm(addend, c, d, beta=2.0, alpha=0.5),
        ),
    }


def pairs() -> dict[str, tuple[Call, Call]]:
    """Every kernel of the package with its peer, in the package's order."""
    known = other_pairs() | linear_pairs()
    return {name: known.get(name) or gemm_pair(name) for name in g.__all__}


def race(
    ours: Call, theirs: Call, rounds: int, flush: torch.Tensor
) -> list[list[float]]:
    """Milliseconds of each call, the two taken in turn; L2 is flushed before each."""
    marks: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[], []]
    for _ in range(rounds):
        for which, call in enumerate((ours, theirs)):
            flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            marks[which].append((start, end))
    torch.cuda.synchronize()
    return [[start.elapsed_time(end) for start, end in one] for one in marks]


def measure(name: str, ours: Call, theirs: Call, rounds: int) -> dict[str, object]:
    """One row of the table; tf32 kernels race torch's tf32."""
    torch.backends.cuda.matmul.allow_tf32 = name in ("gemm_nn_tf32", "linear_clamp")
    flush = torch.empty(64 * 2**20, dtype=torch.int32, device="cuda")
    race(ours, theirs, 5, flush)
    mine, peer = race(ours, theirs, rounds, flush)
    ms, peer_ms = statistics.median(mine), statistics.median(peer)
    return {
        "kernel": name,
        "ms": round(ms, 4),
        "torch_ms": round(peer_ms, 4),
        "ratio": round(peer_ms / ms, 3),
        "spread": round((max(mine) - min(mine)) / ms, 3),
    }


def environment() -> dict[str, str]:
    """What the figures hold for."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
    }


def markdown(rows: list[dict[str, object]], facts: dict[str, str]) -> str:
    """The table, with what made it."""
    lines = [
        "Made by `python benchmarks/speed/seeds.py`: one process, interleaved rounds, "
        "L2",
        "flushed before every call, random data, medians. The ratio is torch's time",
        "over ours: above 1 ours is faster.",
        "",
        f"gemm: {SIZE}³, linear: {' x '.join(map(str, LINEAR))} (M x N x K); "
        + ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        "| kernel | ms | torch, ms | ratio |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row['kernel']} | {row['ms']} | {row['torch_ms']} | {row['ratio']} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for name, (ours, theirs) in pairs().items():
        rows.append(measure(name, ours, theirs, options.rounds))
        print(rows[-1], flush=True)
    facts = environment()
    if options.json:
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(rows, facts))


if __name__ == "__main__":
    main()
