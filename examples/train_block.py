"""Train a transformer block whose linear layers are generated kernels, beside torch's.

    python -m examples.train_block [--steps N] [--width N] [--tokens N]
        [--dtype bf16|fp32] [--compile]

The kernels of examples/block.yaml are built into a folder of their own, and their
modules take the place of the block's nn.Linear, whose parameters they share. At every
step the gradients of both are compared; a second block, trained by torch alone on the
same data, shows how far the losses part. At the end the trained block is exported. On a
machine without a GPU kernels run in Triton's interpreter, in fp32 and slowly.
"""

import argparse
import os
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

SPEC = Path(__file__).parent / "block.yaml"
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
APART = {torch.bfloat16: 3e-2, torch.float32: 1e-4}
"""By what share of its norm a gradient may differ from torch's. Those of bf16 pass
through some ten roundings of 2^-9 on their way, in both blocks."""
LOSSES = {torch.bfloat16: 5e-2, torch.float32: 1e-2}
"""The same of the losses in the end: small differences grow from step to step."""


class Block(nn.Module):
    """Attention and two layers behind it, each added to its input [..., T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.widened = nn.Linear(width, 4 * width)
        self.narrowed = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        """What heads see, before the layer that joins them."""
        parts = self.projected(x).chunk(3, -1)
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for one in parts
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return seen.transpose(-3, -2).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """The block of torch alone."""
        x = x + self.attended(self.attention(self.first(x)))
        return x + self.narrowed(functional.gelu(self.widened(self.second(x))))


class Generated(Block):
    """The same, of another block's parameters: activations and sums are fused."""

    def __init__(self, block: Block, kernels: Any, dtype: str) -> None:
        nn.Module.__init__(self)
        self.heads = block.heads
        self.first, self.second = block.first, block.second
        for name, kind in (
            ("projected", f"Projected{dtype}"),
            ("attended", f"Added{dtype}"),
            ("widened", f"Widened{dtype}"),
            ("narrowed", f"Added{dtype}"),
        ):
            setattr(self, name, getattr(kernels, kind).of(getattr(block, name)))

    def forward(self, x: Tensor) -> Tensor:
        """The block of generated kernels."""
        x = self.attended(self.attention(self.first(x)), x)
        return self.narrowed(self.widened(self.second(x)), x)


def gradients(model: nn.Module, block: Block, x: Tensor, target: Tensor) -> Any:
    """The loss of a model, and the gradients of the block's parameters."""
    loss = functional.mse_loss(model(x), target)
    return loss, torch.autograd.grad(loss, list(block.parameters()))


def stepped(optimizer: Any, block: Block, grads: Any) -> None:
    """Take a step of training."""
    for one, grad in zip(block.parameters(), grads, strict=True):
        one.grad = grad
    optimizer.step()


def difference(found: Tensor, wanted: Tensor) -> float:
    """By what share of its norm a tensor differs from another."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def train(kernels: Any, given: argparse.Namespace) -> None:
    """Train both blocks; raise AssertionError where they part."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = TYPES[given.dtype]
    torch.manual_seed(0)
    teacher, block = (
        Block(given.width, given.width // 16).to(device, dtype) for _ in range(2)
    )
    alone = deepcopy(block)
    generated = Generated(block, kernels, given.dtype.capitalize())
    model = torch.compile(generated, fullgraph=True) if given.compile else generated
    own, other = (torch.optim.AdamW(one.parameters(), 1e-3) for one in (block, alone))
    farthest = 0.0
    for step in range(given.steps):
        x = torch.randn(2, given.tokens, given.width, device=device, dtype=dtype)
        target = teacher(x).detach()
        ours, grads = gradients(model, block, x, target)
        _, wanted = gradients(block, block, x, target)
        apart = max(map(difference, grads, wanted))
        assert apart < APART[dtype], f"step {step}: a gradient is {apart:.1e} apart"
        farthest = max(farthest, apart)
        stepped(own, block, grads)
        torchs, grads = gradients(alone, alone, x, target)
        stepped(other, alone, grads)
    loss, expected = ours.item(), torchs.item()
    assert abs(loss / expected - 1) < LOSSES[dtype], f"losses {loss}, {expected}"
    with torch.no_grad():
        exported = torch.export.export(generated.eval(), (x,)).module()
        assert difference(exported(x), generated(x)) < APART[dtype]
    print(
        f"{given.steps} steps on {device}: losses {loss:.4f} and, by torch alone, "
        f"{expected:.4f}; gradients at most {farthest:.1e} apart"
    )


def main() -> None:
    """Build the kernels and train."""
    import gemmgen

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    usual = "bf16" if torch.cuda.is_available() else "fp32"
    parser.add_argument("--dtype", choices=TYPES, default=usual)
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gemmgen.build([SPEC], Path(folder) / "block_kernels")
        sys.path.insert(0, folder)
        import block_kernels

        train(block_kernels, given)


if __name__ == "__main__":
    main()
