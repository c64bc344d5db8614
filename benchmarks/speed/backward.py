"""Races a kernel with `grad: true` against torch: whole steps and single gradients.

    python benchmarks/speed/backward.py [--report FILE.md] [--budget SECONDS]

The kernel is `mlp_up` of examples/training.yaml, gelu(x @ w.T + bias) in bf16, built
into a folder of its own. Calls that share a table are timed in interleaved rounds of
one process; gradients are compared with float64 first. Of calls that only cost the CPU
time, at 16x16x16, that is measured.
"""

import argparse
import importlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gemmgen.measurement import Gpu, cpu_time, environment, race  # noqa: E402
from gemmgen.output import builder  # noqa: E402

SPEC, NAME = ROOT / "examples" / "training.yaml", "mlp_up"
STEP = (8192, 14336, 4096)
"""M, N, K of whole steps."""
GRADIENTS = (
    (4096, 14336, 4096), (16384, 14336, 4096), (4096, 8192, 8192), (16384, 8192, 8192),
)  # fmt: skip
CHECKED = ((300, 520, 257), (1024, 1024, 512), (4096, 2048, 1024))
MORE = 1.5
"""By what factor an error may exceed that of torch's own gradients."""

Calls = Mapping[str, Callable[[], Any]]


def inputs(m: int, n: int, k: int) -> tuple[Any, ...]:
    """x, w and bias, which learn, and the gradient of the result, all normal."""
    import torch

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    leaves = normal(m, k), normal(n, k) / k**0.5, normal(n)
    return *(one.requires_grad_() for one in leaves), normal(m, n)


def eager(x: Any, w: Any, bias: Any) -> Any:
    """What `mlp_up` computes, as torch's users write it."""
    from torch.nn import functional

    return functional.gelu(functional.linear(x, w, bias))


def check(kernel: Any) -> None:
    """Raise RuntimeError where a gradient is further from float64 than torch's."""
    import torch

    for sizes in CHECKED:
        *leaves, grad = inputs(*sizes)
        exact = [one.detach().double().requires_grad_() for one in leaves]
        wanted = torch.autograd.grad(eager(*exact), exact, grad.double())
        ours, torchs = (
            [
                float((one - want).norm() / want.norm())
                for one, want in zip(
                    torch.autograd.grad(call(*leaves), leaves, grad),
                    wanted,
                    strict=True,
                )
            ]
            for call in (kernel, eager)
        )
        for name, mine, theirs in zip(("x", "w", "bias"), ours, torchs, strict=True):
            if mine > MORE * theirs:
                raise RuntimeError(f"gradient of {name} at {sizes}: {mine}, {theirs}")


def steps(kernel: Any) -> dict[str, Calls]:
    """Whole steps, forwards that keep what a backward needs, and forwards alone."""
    import torch

    *leaves, grad = inputs(*STEP)
    plain = [one.detach() for one in leaves]
    compiled = torch.compile(eager)
    calls = {"generated": kernel, "eager": eager, "torch.compile": compiled}
    return {
        "forward and backward": {
            name: lambda call=call: torch.autograd.grad(call(*leaves), leaves, grad)
            for name, call in calls.items()
        },
        "forward with gradients": {
            name: lambda call=call: call(*leaves) for name, call in calls.items()
        },
        "forward without": {
            name: lambda call=call: call(*plain) for name, call in calls.items()
        },
    }


def gradients(m: int, n: int, k: int) -> dict[str, Calls]:
    """The gradients of x and of w alone, beside `torch.mm` in the same layouts."""
    import torch

    grad_x, grad_w = (
        getattr(importlib.import_module(f"built.{NAME}.{part}"), f"{NAME}_{part}")
        for part in ("grad_x", "grad_w")
    )
    x, w, _, grad = (one.detach() for one in inputs(m, n, k))
    return {
        "gradient of x": {
            "generated": lambda: grad_x(grad, w),
            "torch.mm": lambda: torch.mm(grad, w),
        },
        "gradient of w": {
            "generated": lambda: grad_w(grad, x),
            "torch.mm": lambda: torch.mm(grad.T, x),
        },
    }


def cpu(kernel: Any) -> dict[str, Calls]:
    """Calls without and with gradients, beside `F.linear`."""
    import torch
    from torch.nn import functional

    *leaves, _ = inputs(16, 16, 16)
    plain = [one.detach() for one in leaves]
    return {
        "call without gradients": {
            "generated": lambda: kernel(*plain),
            "F.linear": lambda: functional.linear(*plain),
        },
        "call under no_grad": {
            "generated": torch.no_grad()(lambda: kernel(*leaves)),
            "F.linear": torch.no_grad()(lambda: functional.linear(*leaves)),
        },
        "call with gradients": {
            "generated": lambda: kernel(*leaves),
            "F.linear": lambda: functional.linear(*leaves),
        },
    }


def peak(call: Callable[[], Any]) -> float:
    """MiB that a call takes at most beside what there was."""
    import torch

    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def row(what: str, sizes: str, times: Mapping[str, float]) -> str:
    """A line of a table: ours, the others, and the best of these over ours."""
    ours, *others = times.values()
    told = ", ".join(f"{name} {value:.1f}" for name, value in list(times.items())[1:])
    return f"| {what} | {sizes} | {ours:.1f} | {told} | {min(others) / ours:.3f} |"


def report(kernel: Any, budget_s: float) -> str:
    """All tables in Markdown."""
    import torch

    def races(each: Mapping[str, Calls], sizes: tuple[int, int, int]) -> list[str]:
        said = "x".join(map(str, sizes))
        return [
            row(what, said, {
                name: 1e6 * one.median
                for name, one in race(calls, device, budget_s=budget_s).items()
            })
            for what, calls in each.items()
        ]  # fmt: skip

    device, whole = Gpu(), steps(kernel)
    facts = ", ".join(f"{key} {value}" for key, value in environment().items())
    header = ["| what | M x N x K | generated | others | best / generated |"]
    header += ["| --- | --- | --- | --- | --- |"]
    lines = [
        "Made by `python benchmarks/speed/backward.py`: `mlp_up` of "
        "examples/training.yaml, gelu(x @ w.T + bias) in bf16, tables as built "
        "elsewhere than beside a tuning file; interleaved rounds, inputs normal, L2 "
        "flushed, medians in µs.",
        "", facts, "", *header, *races(whole, STEP),
    ]  # fmt: skip
    for sizes in GRADIENTS:
        lines += races(gradients(*sizes), sizes)
    lines += ["", "CPU time of a call at 16x16x16, µs.", "", *header]
    for what, calls in cpu(kernel).items():
        timings = cpu_time(calls, torch.cuda.synchronize, batch=1000)
        times = {name: 1e6 * one.median for name, one in timings.items()}
        lines.append(row(what, "16x16x16", times))
    lines += ["", "Memory at its peak in a step, MiB:"]
    both = whole["forward and backward"]
    lines += [f"- {name}: {peak(call):.0f}" for name, call in both.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Build, check, race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--report", type=Path)
    parser.add_argument("--budget", type=float, default=0.5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        builder.build([SPEC], Path(folder) / "built")
        kernel = getattr(importlib.import_module("built"), NAME)
        check(kernel)
        text = report(kernel, options.budget)
    print(text, end="")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
