"""Races training steps of a transformer block: generated kernels against torch's.

    python benchmarks/speed/training_block.py [--width N] [--tokens N]
        [--report FILE.md] [--budget SECONDS]

The block and its kernels are those of examples/train_block.py, in bf16, with heads of
128. A step is the forward, a mean of squares and all gradients, without an optimizer.
First the gradients are held against those of the block in float32, beside torch's. Then
steps are timed in interleaved rounds of one process, eager and compiled.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.speed.backward import peak  # noqa: E402
from gemmgen.measurement import Gpu, environment, race  # noqa: E402
from gemmgen.output import builder  # noqa: E402

SPEC = ROOT / "examples" / "block.yaml"
HEAD = 128
MORE = 1.5
"""By what factor a gradient's error may exceed that of torch's own block."""
BATCH = 2

Step = Callable[[], Any]


def step(model: Any, leaves: list[Any], x: Any, target: Any) -> Step:
    """All gradients of a model at an input."""
    import torch
    from torch.nn import functional

    def run() -> Any:
        return torch.autograd.grad(functional.mse_loss(model(x), target), leaves)

    return run


def models(kernels: Any, width: int) -> tuple[Any, Any]:
    """Torch's block, and the same of generated kernels, whose parameters it shares."""
    import torch

    from examples.train_block import Block, Generated

    torch.manual_seed(0)
    block = Block(width, width // HEAD).to("cuda", torch.bfloat16)
    return block, Generated(block, kernels, "Bf16")


def check(block: Any, generated: Any, x: Any, target: Any) -> str:
    """The largest errors against float32; RuntimeError where ours is too large."""
    leaves = list(block.parameters())
    exact = deepcopy(block).float()
    wanted = step(exact, list(exact.parameters()), x.float(), target.float())()
    worst = [0.0, 0.0]
    names = [name for name, _ in block.named_parameters()]
    found = (step(model, leaves, x, target)() for model in (generated, block))
    for name, want, ours, torchs in zip(names, wanted, *found, strict=True):
        errors = [
            float((one.float() - want).norm() / want.norm()) for one in (ours, torchs)
        ]
        if errors[0] > MORE * errors[1]:
            raise RuntimeError(f"gradient of {name}: {errors[0]}, torch's {errors[1]}")
        worst = [max(pair) for pair in zip(worst, errors, strict=True)]
    return f"largest error of a gradient {worst[0]:.1e}, torch's {worst[1]:.1e}"


def report(kernels: Any, width: int, tokens: int, budget_s: float) -> str:
    """The table in Markdown."""
    import torch

    block, generated = models(kernels, width)
    leaves = list(block.parameters())
    x, target = (
        torch.randn(BATCH, tokens // BATCH, width, device="cuda", dtype=torch.bfloat16)
        for _ in range(2)
    )
    errors = check(block, generated, x, target)
    steps = {
        name: step(model, leaves, x, target)
        for name, model in {
            "generated, compiled": torch.compile(generated, fullgraph=True),
            "torch, compiled": torch.compile(block, fullgraph=True),
            "generated": generated,
            "torch": block,
        }.items()
    }
    times = race(steps, Gpu(), budget_s=budget_s)
    best = min(times[name].median for name in ("torch, compiled", "torch"))
    facts = ", ".join(f"{key} {value}" for key, value in environment().items())
    lines = [
        f"Made by `python benchmarks/speed/training_block.py`: width {width}, heads of "
        f"{HEAD}, {tokens} tokens, bf16; interleaved rounds, L2 flushed, medians. "
        f"{errors[0].upper()}{errors[1:]}.",
        "", facts, "",
        "| step of | ms | torch's best / it | MiB at its peak |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {1e3 * one.median:.3f} | {best / one.median:.3f} | "
            f"{peak(steps[name]):.0f} |"
            for name, one in times.items()
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    """Build, check, race, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--budget", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        builder.build([SPEC], Path(folder) / "block_kernels")
        sys.path.insert(0, folder)
        import block_kernels

        text = report(block_kernels, options.width, options.tokens, options.budget)
    print(text, end="")
    if options.report:
        options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
