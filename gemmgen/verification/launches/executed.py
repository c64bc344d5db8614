"""Runs a small kernel that was launched on the stand-in, by Triton's interpreter."""

from typing import Any

import torch
from triton.runtime.interpreter import GridExecutor

from gemmgen.verification.launches.driver import Launched
from gemmgen.verification.launches.record import named
from gemmgen.verification.launches.tensors import Gpus

_DTYPES = {"*i32": torch.int32, "*fp32": torch.float32}


def run(gpus: Gpus, launched: Launched) -> None:
    """Do to the memory what a kernel does that takes the first elements of tensors."""
    source = launched.function.compiled.src
    elements: list[tuple[torch.Tensor, torch.Tensor]] = []
    values: list[Any] = []
    for name, value in named(launched).items():
        dtype = _DTYPES.get(source.signature[name])
        memory = gpus.memory_of(value) if dtype else None
        if memory is not None and dtype is not None:
            offset = value - memory.start
            there = memory.host[offset : offset + dtype.itemsize].view(dtype)
            value = there.clone()
            elements.append((there, value))
        values.append(value)
    GridExecutor(source.fn.fn, source.fn.arg_names, launched.grid)(*values)
    for there, value in elements:
        there.copy_(value)
