"""Compiles a kernel for the arguments that its fast path takes, with no GPU.

Contiguous tensors whose addresses and sizes divide by 16, as Triton would see them, or
sizes that divide by less.
"""

from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import NVMMASharedLayout

from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, schedule_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix
from gemmgen.verification.example import subject

WHOLE = 16
"""The divisor of sizes and addresses that Triton makes kernels of their own for."""


def jit_function(module: ModuleType, plan: Plan, schedule: str) -> Any:
    """The kernel of a schedule, from under an autotuner if it has one."""
    row = SCHEDULES[schedule]
    kernel = getattr(subject.part(module, row.file), plan.name + row.kernel_suffix)
    return kernel.fn if isinstance(kernel, triton.runtime.Autotuner) else kernel


def compile_aligned(
    plan: Plan, kernel: Any, target: Target, tile: Tile, align: int = WHOLE
) -> Any:
    """The compiled kernel of a tile for a target, and sizes that divide by `align`."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    tensors = _tensor_types(plan, kernel, tile)
    values = {**_constants(plan, tile), "ALIGN": align}
    numbers = {one.name: one.arithmetic for one in plan.operands if one.is_number}
    for position, parameter in enumerate(kernel.params):
        name = parameter.name
        if name in values or (name.endswith("_rest_desc") and name not in tensors):
            signature[name] = "constexpr"
            constants[(position,)] = values.get(name)
        elif name in numbers:
            signature[name] = numbers[name]
        else:
            signature[name] = tensors.get(name, "i32")
            described = name.endswith("_desc")
            divides = name.endswith("_ptr") or align == WHOLE
            if divides and not (described or parameter.do_not_specialize):
                attributes[(position,)] = [["tt.divisibility", 16]]
    source = GluonASTSource if kernel.is_gluon() else ASTSource
    return triton.compile(
        source(kernel, signature, constants, attributes),
        target=GPUTarget("cuda", target.architecture, 32),
        options={
            "num_warps": tile.launched.options["num_warps"],
            "num_stages": tile.stages,
            "num_ctas": tile.ctas,
            "enable_fp_fusion": True,
        },
    )


def _constants(plan: Plan, tile: Tile) -> dict[str, Any]:
    """Compile-time parameters, and the strides that are 1 when all is contiguous."""
    values: dict[str, Any] = {
        "INDEX": tl.int32,
        "BLOCK_M": tile.m,
        "BLOCK_N": tile.n,
        "BLOCK_K": tile.k,
        "GROUP_M": tile.group_m,
        "STAGES": tile.stages,
        "NUM_WGS": tile.warpgroups,
    }
    if tile.split_k == 1:
        values["SPLIT_K"] = 1  # Triton makes a constant of any argument that is 1
    return values | dict.fromkeys(_unit_strides(plan), 1)


def _unit_strides(plan: Plan) -> list[str]:
    matrices = [*plan.contraction.inputs, *(one.matrix for one in plan.results)]
    units = [m.strides[m.axes.index(m.contiguous_axis)] for m in matrices]
    return units + [one.strides[-1] for one in plan.operands if one.axes]


def _tensor_types(plan: Plan, kernel: Any, tile: Tile) -> dict[str, str]:
    """The type of each parameter that is a tensor, as a pointer and as a descriptor."""
    dtypes = {one.name: one.dtype for one in plan.passed}
    types = {"partials_ptr": "*fp32", "counters_ptr": "*i32"}
    matrices = [*plan.contraction.inputs, *(one.matrix for one in plan.results)]
    matrices += [Matrix(one.name, ("m", "n")) for one in plan.tensors if one.is_matrix]
    shared = ""
    if kernel.is_gluon():
        shared = "n" if schedule_of(tile).transposes(tile, plan.product) else "m"
    clusters = tile.ctas > 1
    for name, dtype in dtypes.items():
        types[f"{name}_ptr"] = f"*{_element(dtype)}"
    for matrix in matrices:
        beside = matrix not in plan.contraction.inputs
        boxes = tile.launched.boxes(matrix.stored_axes, shared, beside)
        for suffix, box in zip(("_desc", "_rest_desc"), boxes, strict=False):
            halves = [int(axis == shared) for axis in matrix.stored_axes] * clusters
            described = _descriptor(box, dtypes[matrix.name], kernel.is_gluon(), halves)
            types[f"{matrix.name}{suffix}"] = described
    return types


def _descriptor(
    box: tuple[int, ...], dtype: str, in_gluon: bool, halves: list[int]
) -> str:
    """`tensordesc<bf16[64, 64]>`, in Gluon with the layout in shared memory.

    Of a cluster each CTA has `halves` of a box.
    """
    block, element = list(box), _element(dtype)
    if not in_gluon:
        return f"tensordesc<{element}{block}>"
    layout = NVMMASharedLayout.get_default_for(
        block, element, cga_layout=[halves] if halves else []
    )
    return f"tensordesc<{element}{block},{layout!r}>"


def _element(dtype: str) -> Any:
    """What Triton calls a dtype, in text too."""
    return getattr(tl, DTYPES[dtype].triton)
