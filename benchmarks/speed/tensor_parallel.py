"""Races two layers that several GPUs share against torch's own, cut in the same way.

    torchrun --nproc-per-node 2 benchmarks/speed/tensor_parallel.py [--tokens N]
        [--width N] [--rounds N] [--compile] [--json FILE]

The layers are linear + bias + gelu and linear + bias, bf16, of `width` and four times
that: kernels of examples/block.yaml, and nn.Linear, nn.GELU, nn.Linear, all of the same
parameters, under torch's ColwiseParallel and RowwiseParallel. First, results and
gradients of the kernels are held against float64, beside those of one GPU. Then calls
are timed in interleaved rounds, medians of the slowest process. Without GPUs they are
held in fp32, in Triton's interpreter, and nothing is timed.
"""

import argparse
import atexit
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

SPEC = ROOT / "examples" / "block.yaml"
TYPES = {"bf16": "bfloat16", "fp32": "float32"}
MORE = 1.2
"""By what factor an error may exceed √processes times that of one GPU: a process
rounds its part, and what it adds another's to."""

Calls = Mapping[str, Callable[[], Any]]


def models(kernels: Any, mesh: Any, width: int, dtype: str) -> dict[str, Any]:
    """Torch's layers and ours: in one process, and cut."""
    import torch
    from torch import nn
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    def cut(model: Any) -> Any:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return parallelize_module(deepcopy(model), mesh, plan)

    torch.manual_seed(0)  # the same in all processes
    whole = nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
    ).to(mesh.device_type, getattr(torch, TYPES[dtype]))
    first, second = (
        getattr(kernels, f"{name}{dtype.capitalize()}")
        for name in ("Widened", "Projected")
    )
    ours = nn.Sequential(first.of(whole[0]), nn.Identity(), second.of(whole[2]))
    return {
        "generated": cut(ours),
        "torch": cut(whole),
        "one process": ours,
        "float64": deepcopy(whole).double(),
    }


def flow(model: Any, x: Any, grad: Any) -> list[Any]:
    """What a model returns, and the gradients of x and of its parameters."""
    import torch

    learning = [x, *model.parameters()]
    y = model(x)
    return [arrived(one) for one in (y, *torch.autograd.grad(y, learning, grad))]


def arrived(one: Any) -> Any:
    """A tensor that other processes may still be sending, waited for."""
    return one.wait() if hasattr(one, "wait") else one


def check(
    every: Mapping[str, Any], x: Any, grad: Any, processes: int
) -> dict[str, dict[str, float]]:
    """The errors of each tensor against float64, as parts of its norm, by model.

    Raise RuntimeError where that of the kernels of several processes is too large.
    """
    exact = flow(every["float64"], x.detach().double().requires_grad_(), grad.double())
    errors = {
        name: map(distance, flow(model, x, grad), exact)
        for name, model in every.items()
        if name != "float64"
    }
    parameters = [f"grad {name}" for name, _ in every["torch"].named_parameters()]
    found = {
        tensor: dict(zip(errors, told, strict=True))
        for tensor, told in zip(
            ("y", "grad x", *parameters),
            zip(*errors.values(), strict=True),
            strict=True,
        )
    }
    for tensor, told in found.items():
        if told["generated"] > MORE * processes**0.5 * told["one process"]:
            raise RuntimeError(f"{tensor} is too far from float64: {told}")
    return found


def distance(one: Any, exact: Any) -> float:
    """By what part of its norm a tensor is off, of which there may be parts."""
    whole = one.full_tensor() if hasattr(one, "full_tensor") else one
    return float((whole - exact).detach().norm() / exact.detach().norm())


def calls(
    every: Mapping[str, Any], x: Any, grad: Any, compiles: bool
) -> dict[str, Calls]:
    """What is timed, by what it is called."""
    import torch

    raced = {name: every[name] for name in ("generated", "torch")}
    if compiles:
        raced |= {
            f"{name}, compiled": torch.compile(one) for name, one in raced.items()
        }
    plain = x.detach()

    def forward(model: Any) -> Any:
        with torch.no_grad():
            return arrived(model(plain))

    return {
        "forward": {name: lambda one=one: forward(one) for name, one in raced.items()},
        "forward and backward": {
            name: lambda one=one: flow(one, x, grad) for name, one in raced.items()
        },
    }


def timed(each: Mapping[str, Calls], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of every call: the median of the process in which it is the largest.

    All processes take the same rounds in the same order, for they wait for each other.
    """
    import torch
    import torch.distributed as dist

    from gemmgen.measurement import Gpu, race

    device, found = Gpu(), {}
    for what, raced in each.items():
        times = race(raced, device, budget_s=0.0, warm_up_s=0.0, least_rounds=rounds)
        medians = torch.tensor([one.median for one in times.values()], device="cuda")
        dist.all_reduce(medians, dist.ReduceOp.MAX)
        found[what] = dict(zip(times, medians.tolist(), strict=True))
    return found


def table(title: str, rows: Mapping[str, Mapping[str, float]], form: str) -> list[str]:
    """Figures in Markdown, a row for each name."""
    names = list(next(iter(rows.values())))
    lines = [f"| {title} | {' | '.join(names)} |", "| --- " * (1 + len(names)) + "|"]
    for name, told in rows.items():
        said = (format(value, form) for value in told.values())
        lines.append(f"| {name} | {' | '.join(said)} |")
    return lines


def compared(times: Mapping[str, float]) -> dict[str, float]:
    """Times in µs, and the best of torch's over the best of ours."""
    ours, torchs = (
        min(one for name, one in times.items() if name.startswith(kind))
        for kind in ("generated", "torch")
    )
    told = {name: 1e6 * one for name, one in times.items()}
    return told | {"torch / generated": torchs / ours}


def run(mesh: Any, given: argparse.Namespace) -> dict[str, Any]:
    """What was found out, as JSON has it."""
    import torch

    from gemmgen.measurement import environment

    width, device = given.width, mesh.device_type
    dtype = "bf16" if device == "cuda" else "fp32"
    every = models(built(), mesh, width, dtype)
    torch.manual_seed(1)
    x, grad = (
        torch.randn(
            given.tokens, width, device=device, dtype=getattr(torch, TYPES[dtype])
        )
        for _ in range(2)
    )
    x.requires_grad_()
    errors = check(every, x, grad, mesh.size())
    del every["float64"], every["one process"]
    found = {}
    if device == "cuda":
        found = timed(calls(every, x, grad, given.compile), given.rounds)
    return {
        "processes": mesh.size(),
        "tokens": given.tokens,
        "width": width,
        "dtype": dtype,
        "environment": environment() if device == "cuda" else {},
        "errors": errors,
        "seconds": found,
    }


def built() -> Any:
    """The package of kernels, which every process builds for itself."""
    import gemmgen

    folder = tempfile.mkdtemp(prefix="tensor-parallel-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    gemmgen.build([SPEC], Path(folder) / "block_kernels")
    sys.path.insert(0, folder)
    return importlib.import_module("block_kernels")


def main() -> None:
    """Check, race, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--compile", action="store_true", help="race torch.compile too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()

    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    mesh = init_device_mesh(device, (int(os.environ["WORLD_SIZE"]),))
    found = run(mesh, given)
    if mesh.get_rank() == 0:
        facts = {key: found[key] for key in ("processes", "tokens", "width", "dtype")}
        facts |= found["environment"]
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
        print("", *table("error of", found["errors"], ".2e"), sep="\n")
        if found["seconds"]:
            rows = {what: compared(one) for what, one in found["seconds"].items()}
            print("", *table("µs", rows, ".4g"), sep="\n")
        if given.json:
            given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
