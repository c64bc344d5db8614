"""What the compiler makes of a kernel, for every tile and target, with no GPU.

Checks the instruction, spills, asynchronous copies and shared memory of the path that
aligned, contiguous operands take. Runs where Triton compiles, never interprets.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmgen.dtypes import DTYPES
from gemmgen.model import Tile, instruction, shared_memory
from gemmgen.plan import Plan
from gemmgen.targets import Target

_TRITON_NAMES = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp64": "fp64"}
_PTX_INSTRUCTION = {
    "wgmma": r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.{acc}\.{operand}",
    "mma": r"mma\.sync\.aligned\.m\d+n\d+k\d+\.row\.col\.{acc}\.{operand}",
    "tcgen05": r"tcgen05\.mma\.cta_group::1\.kind::{kind}",
    "fma": r"fma\.rn\.{acc}",
}
_PTX_OPERAND = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "tf32x3": "tf32"}
_TCGEN05_KIND = {"fp16": "f16", "bf16": "f16", "tf32": "tf32", "tf32x3": "tf32"}


@dataclass(frozen=True)
class Compiled:
    """One compilation: what the compiler used and what of it is wrong."""

    target: str
    tile: Tile
    registers: int
    spilled_bytes: int
    shared_bytes: int
    predicted_bytes: int
    problems: tuple[str, ...]


def check_kernel(plan: Plan, module: ModuleType) -> Iterator[Compiled]:
    """Compile the kernel of a generated module for all its tiles and targets."""
    kernel = jit_function(module, plan.name)
    for target, tile in plan.tiles:
        yield check_tile(plan, kernel, target, tile)


def jit_function(module: ModuleType, name: str) -> Any:
    """The kernel of a module, from under an autotuner if it has one."""
    kernel = getattr(module, f"{name}_kernel")
    return kernel.fn if isinstance(kernel, triton.runtime.Autotuner) else kernel


def check_tile(plan: Plan, kernel: Any, target: Target, tile: Tile) -> Compiled:
    """Compile one tile for one target and hold the result against the plan."""
    made = compile_aligned(plan, kernel, target, tile)
    usage = resource_usage(made.asm["cubin"])
    predicted = shared_memory(tile, plan.product, target)
    return Compiled(
        target.name,
        tile,
        registers=usage["REG"],
        spilled_bytes=usage["STACK"],
        shared_bytes=made.metadata.shared,
        predicted_bytes=predicted,
        problems=tuple(
            _problems(plan, target, tile, made.asm["ptx"], usage, made.metadata.shared)
        ),
    )


def compile_aligned(plan: Plan, kernel: Any, target: Target, tile: Tile) -> Any:
    """Compile for contiguous operands whose sizes and addresses divide by 16."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    pointers, ones = _pointer_types(plan), _unit_strides(plan)
    numbers = {one.name: one.arithmetic for one in plan.operands if one.is_number}
    values = {
        "INDEX": tl.int32,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP_M": tile.group_m,
    } | dict.fromkeys(ones, 1)
    for position, parameter in enumerate(kernel.params):
        name = parameter.name
        if name in values:
            signature[name] = "constexpr"
            constants[(position,)] = values[name]
        elif name in numbers:
            signature[name] = numbers[name]
        else:
            signature[name] = f"*{pointers[name]}" if name in pointers else "i32"
            if not parameter.do_not_specialize:
                attributes[(position,)] = [["tt.divisibility", 16]]
    return triton.compile(
        ASTSource(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", target.architecture, 32),
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )


def _pointer_types(plan: Plan) -> dict[str, str]:
    types = {plan.a.name: plan.dtype, plan.b.name: plan.dtype}
    types |= {one.name: one.dtype for one in plan.tensors}
    types |= {one.name: one.dtype for one in plan.results}
    return {f"{name}_ptr": _TRITON_NAMES[dtype] for name, dtype in types.items()}


def _unit_strides(plan: Plan) -> list[str]:
    """The stride arguments that are 1 when every tensor is contiguous."""
    matrices = [plan.a, plan.b, *(one.matrix for one in plan.results)]
    units = [m.strides[m.axes.index(m.contiguous_axis)] for m in matrices]
    return units + [one.strides[-1] for one in plan.operands if one.axes]


def resource_usage(cubin: bytes) -> dict[str, int]:
    """Registers (REG) and bytes of stack (STACK) of a compiled kernel."""
    tools = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [os.path.join(tools, "cuobjdump"), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True)
    return {key: int(n) for key, n in re.findall(r"(REG|STACK):(\d+)", text.stdout)}


def _problems(
    plan: Plan,
    target: Target,
    tile: Tile,
    ptx: str,
    usage: dict[str, int],
    shared: int,
) -> Iterator[str]:
    unit = instruction(tile, plan.product, target)
    if not re.search(_pattern(plan, unit), ptx):
        yield f"no {unit} instruction for {plan.product.kind} in the PTX"
    if usage["STACK"]:
        yield f"spills {usage['STACK']} bytes of registers"
    if tile.stages > 1 and "cp.async" not in ptx:
        yield "loads are not asynchronous"
    predicted = shared_memory(tile, plan.product, target)
    if shared > predicted:
        yield f"takes {shared} bytes of shared memory, {predicted} were predicted"
    if shared > target.shared_per_block:
        yield f"takes {shared} bytes of shared memory of {target.shared_per_block}"


def _pattern(plan: Plan, unit: str) -> str:
    """The instruction in PTX, for the accumulator and operand types of the plan."""
    kind = plan.product.kind
    accumulator = f"f{8 * DTYPES[plan.accumulator].bytes}"
    return _PTX_INSTRUCTION[unit].format(
        acc=accumulator,
        operand=_PTX_OPERAND.get(kind, accumulator),
        kind=_TCGEN05_KIND.get(kind, ""),
    )
