"""Share a transformer block of generated kernels among processes, beside a whole one.

    torchrun --nproc-per-node 2 -m examples.shard_block [--steps N] [--width N]
        [--tokens N] [--dtype bf16|fp32] [--compile]

Each process has a part of every linear layer: the rows of the weights of queries, keys,
values and of the wide layer, and the columns of the weights of those behind them, whose
results are added up. So each step sends two tensors forward and two backward. The
result and gradients of the first step, and the losses in the end, are compared with
those of the same block in one process. Processes use NCCL where each has a GPU; else
gloo, and kernels run in Triton's interpreter, in fp32 and slowly.
"""

import argparse
import os
import sys
import tempfile
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional

from examples.train_block import (
    APART,
    LOSSES,
    SPEC,
    TYPES,
    Block,
    Generated,
    difference,
)


def shared(whole: Generated, kernels: Any, mesh: DeviceMesh) -> nn.Module:
    """A copy of a block of which this process has a part of every layer."""
    styles = import_module(f"{kernels.__name__}._runtime.layers.parallel")
    block = deepcopy(whole)
    block.heads //= mesh.size()
    for one in block.projected.parameters():
        one.data = by_process(one.data, mesh.size())
    layers = {
        "projected": styles.ColwiseKernel(),
        "attended": styles.RowwiseKernel(),
        "widened": styles.ColwiseKernel(),
        "narrowed": styles.RowwiseKernel(),
    }
    return parallelize_module(block, mesh, layers)


def by_process(rows: Tensor, processes: int) -> Tensor:
    """Rows of queries, keys and values, those of the first process first.

    It has some heads of each: a contiguous part of all would have queries alone.
    """
    return rows.unflatten(0, (3, processes, -1)).transpose(0, 1).flatten(0, 2)


def apart(part: nn.Module, whole: nn.Module, processes: int) -> float:
    """The largest share by which a gradient differs from that in one process."""
    found, pairs = 0.0, zip(part.named_parameters(), whole.parameters(), strict=True)
    for (name, mine), other in pairs:
        grad, wanted = mine.grad, other.grad
        grad = grad.full_tensor() if isinstance(grad, DTensor) else grad
        wanted = by_process(wanted, processes) if "projected" in name else wanted
        found = max(found, difference(grad, wanted))
    return found


def train(kernels: Any, given: argparse.Namespace, mesh: DeviceMesh) -> None:
    """Train both blocks; raise AssertionError where they part."""
    device, dtype = mesh.device_type, TYPES[given.dtype]
    torch.manual_seed(0)  # the same in all processes, as are the data
    teacher, block = (
        Block(given.width, given.width // 16).to(device, dtype) for _ in range(2)
    )
    whole = Generated(block, kernels, given.dtype.capitalize())
    part = shared(whole, kernels, mesh)
    models = torch.compile(part, fullgraph=True) if given.compile else part, whole
    # One by one: DTensors and the plain parameters of norms are no list for torch.
    optimizers = [torch.optim.AdamW(one.parameters(), foreach=False) for one in models]
    first = 0.0
    for step in range(given.steps):
        x = torch.randn(2, given.tokens, given.width, device=device, dtype=dtype)
        target = teacher(x).detach()
        results = [one(x) for one in models]
        losses = [functional.mse_loss(one, target) for one in results]
        for loss in losses:
            loss.backward()
        if step == 0:
            first = difference(*(one.detach() for one in results))
            first = max(first, apart(part, whole, mesh.size()))
            assert first < APART[dtype], f"a gradient is {first:.1e} apart"
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    loss, expected = (one.item() for one in losses)
    assert abs(loss / expected - 1) < LOSSES[dtype], f"losses {loss}, {expected}"
    if mesh.get_rank() == 0:
        print(
            f"{given.steps} steps in {mesh.size()} processes on {device}: losses "
            f"{loss:.4f} and, in one, {expected:.4f}; gradients at first {first:.1e} "
            "apart"
        )


def main() -> None:
    """Build the kernels and train."""
    import gemmgen

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    usual = "bf16" if torch.cuda.is_available() else "fp32"
    parser.add_argument("--dtype", choices=TYPES, default=usual)
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    with tempfile.TemporaryDirectory() as folder:
        gemmgen.build([SPEC], Path(folder) / "block_kernels")
        sys.path.insert(0, folder)
        import block_kernels

        train(block_kernels, given, mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
