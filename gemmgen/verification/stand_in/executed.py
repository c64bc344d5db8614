"""Runs a small kernel that was launched on the stand-in, by Triton's interpreter.

Launchers may try their own way of launching with one, and look at what it wrote.
"""

from typing import Any

import torch
from triton.runtime.interpreter import GridExecutor
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.stand_in.compiled import ELEMENTS, element_of
from gemmgen.verification.stand_in.driver import Launched
from gemmgen.verification.stand_in.record import Described, named
from gemmgen.verification.stand_in.tensors import Gpus

_INTEGERS = {"*i32": torch.int32, "*i64": torch.int64}


def run(gpus: Gpus, launched: Launched) -> None:
    """Do to the memory what a kernel does to the tensors that it takes."""
    if not launched.complete:
        raise Wrong("tried without the global memory that the kernel asks for")
    source = launched.function.compiled.src
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    values: list[Any] = []
    for name, value in named(launched).items():
        there = _memory(gpus, value, source.signature[name])
        if there is not None:
            copies.append((there, there.clone()))
            value = _passed(value, copies[-1][1])
        values.append(value)
    GridExecutor(source.fn.fn, source.fn.arg_names, launched.grid)(*values)
    for there, copy in copies:
        there.copy_(copy)


def _memory(gpus: Gpus, value: Any, kind: str) -> torch.Tensor | None:
    """All elements from an argument's address to the end of its memory."""
    if isinstance(value, Described):
        kind, value = f"*{element_of(kind)}", value.map.address
    if not kind.startswith("*"):
        return None
    memory = gpus.memory_of(value)
    block = gpus.block(memory.device, value) if memory else None
    if memory is None or block is None:
        raise Wrong(f"a kernel is passed {value} where there is no tensor")
    dtype = _INTEGERS.get(kind) or ELEMENTS[kind.removeprefix("*")]
    return memory.host[value - memory.start : block.end - memory.start].view(dtype)


def _passed(value: Any, copy: torch.Tensor) -> Any:
    if not isinstance(value, Described):
        return copy
    base = copy.as_strided(value.map.shape, value.map.strides)
    sides = list(value.map.shape), list(value.map.strides), list(value.map.block)
    return TensorDescriptor(base, *sides)
