"""What each launch of a call must be, from its tensors alone.

Knows nothing of how a launcher decides or remembers; raises `Wrong`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gemmgen.select.plan import Plan
from gemmgen.tables.layouts import Matrix
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.launches.calls import Call, Facts
from gemmgen.verification.oracle.reference import torch_dtype
from gemmgen.verification.stand_in.compiled import TF32, host_type
from gemmgen.verification.stand_in.driver import PROCESSORS, Launched
from gemmgen.verification.stand_in.record import Described, check_assumptions, named

_MANY_TILES = ("_persistent_kernel", "_warp_specialized_kernel")


@dataclass(frozen=True)
class Expected:
    """Where a call's kernels are to run, and what they are to be passed."""

    device: int
    stream: int
    tensors: Mapping[str, torch.Tensor]
    numbers: Mapping[str, float]


def check_launch(plan: Plan, expected: Expected, launched: Launched) -> None:
    """Where and with what one kernel was launched; of several, the first's tensors."""
    where, wanted = (launched.function.device, launched.device), expected.device
    if where != (wanted, wanted):
        raise Wrong(f"a kernel of cuda:{where[0]} was launched on cuda:{where[1]}")
    if launched.stream != expected.stream:
        raise Wrong(f"launched on stream {launched.stream}")
    if not launched.complete:
        raise Wrong("launched without the global memory that the kernel asks for")
    values = named(launched)
    check_assumptions(launched, values)
    for name, value in expected.numbers.items():
        found = values[name]
        same = value == found or (math.isnan(value) and math.isnan(found))
        if not same or math.copysign(1, value) != math.copysign(1, found):
            raise Wrong(f"{name} is {value}, passed is {found}")
    for name, tensor in expected.tensors.items():
        _check_tensor(plan, name, tensor, values)
    _check_index(expected.tensors, values)
    _check_programs(launched, values)


def _check_tensor(
    plan: Plan, name: str, tensor: torch.Tensor, values: Mapping[str, Any]
) -> None:
    pointer, maps = values.get(f"{name}_ptr"), descriptions(name, values)
    if pointer is None and not maps:
        raise Wrong(f"{name} is not passed")
    if maps and values[f"{name}_desc"] is None:
        raise Wrong(f"{name} has a descriptor of its last box alone")
    for address in [pointer] if not maps else [one.map.address for one in maps]:
        if address != tensor.data_ptr():
            raise Wrong(f"{name} is at {tensor.data_ptr()}, passed is {address}")
    for described in maps:
        _check_description(plan, name, tensor, described)


def descriptions(name: str, values: Mapping[str, Any]) -> list[Described]:
    """The descriptors that a tensor is passed as: of its boxes, of the last one."""
    passed = (values.get(f"{name}_desc"), values.get(f"{name}_rest_desc"))
    return [one for one in passed if isinstance(one, Described)]


def _check_description(
    plan: Plan, name: str, tensor: torch.Tensor, described: Described
) -> None:
    if described.shape[-1] != tensor.shape[-1] or described.strides[-1] != 1:
        raise Wrong(f"{name} is {list(tensor.shape)}, described as {described}")
    inputs = [one.name for one in plan.contraction.inputs]
    rounds = plan.product.mma.rounds and name in inputs
    wanted = TF32 if rounds else host_type(tensor.dtype)
    if described.map.element != wanted:
        raise Wrong(f"{name}: elements of kind {described.map.element} are described")


def check_matrices(
    plan: Plan, tensors: Mapping[str, torch.Tensor], launched: Launched
) -> None:
    """Sizes, strides and shapes of a launch for plain matrices."""
    values = named(launched)
    wanted: dict[str, int] = {}
    for tensor in plan.inputs[: len(plan.contraction.inputs)]:
        wanted |= zip(tensor.sizes, tensors[tensor.name].shape, strict=True)
    matrices = [*plan.contraction.inputs, *(one.matrix for one in plan.results)]
    matrices += [Matrix(one.name, ("m", "n")) for one in plan.tensors if one.is_matrix]
    for matrix in matrices:
        strides = dict(
            zip(matrix.stored_axes, tensors[matrix.name].stride(), strict=True)
        )
        wanted |= zip(
            matrix.strides, (strides[axis] for axis in matrix.axes), strict=True
        )
    for one in plan.tensors:
        if not one.is_matrix:
            wanted |= zip(one.strides, tensors[one.name].stride(), strict=True)
    for name, value in wanted.items():
        if name in values and values[name] != value:
            raise Wrong(f"{name} is {value}, passed is {values[name]}")
    _check_alignment(plan, tensors, values)
    for matrix in matrices:
        tensor = tensors[matrix.name]
        for described in descriptions(matrix.name, values):
            if described.map.shape != tuple(tensor.shape):
                sizes = list(tensor.shape)
                raise Wrong(f"{matrix.name} is {sizes}, described {described}")
            if described.map.strides != tensor.stride():
                strides_ = tensor.stride()
                raise Wrong(f"{matrix.name} has strides {strides_}: {described}")


def _check_alignment(
    plan: Plan, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]
) -> None:
    """What the compiler is told of rows of A and B, if more than an element is read."""
    if (told := values.get("ALIGN")) is None:
        return
    for one in plan.contraction.inputs:
        tensor = tensors[one.name]
        if values.get(f"BLOCK_{one.contiguous_axis.upper()}") == 1:
            continue
        if tensor.shape[1] % told or tensor.stride(0) % told:
            raise Wrong(f"rows of {one.name} are no multiples of {told}")


def _check_index(
    tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]
) -> None:
    if str(values.get("INDEX")) != "int32":
        return
    for name, tensor in tensors.items():
        sides = list(zip(tensor.shape, tensor.stride(), strict=True))
        while len(sides) > 2 and math.prod(n for n, _ in sides[:-1]) > values["M"]:
            del sides[0]  # along which there is a launch for each
        last = sum((n - 1) * s for n, s in sides) if tensor.numel() else 0
        if f"{name}_ptr" in values and last >= 2**31:
            raise Wrong(f"{name} has more than 2^31 elements, its offsets 32 bits")


def _check_programs(launched: Launched, values: Mapping[str, Any]) -> None:
    """Of kernels whose programs take many tiles each SM has one, of some part of K."""
    if not launched.function.compiled.name.endswith(_MANY_TILES):
        return
    tiles = math.ceil(values["M"] / values["BLOCK_M"])
    tiles *= math.ceil(values["N"] / values["BLOCK_N"])
    at_a_time = PROCESSORS // launched.function.compiled.metadata.num_ctas
    if launched.grid[0] != min(tiles, max(1, at_a_time // launched.grid[1])):
        raise Wrong(f"{launched.grid[0]} programs for {tiles} tiles")


def check_returned(
    plan: Plan, facts: Facts, call: Call, returned: Any, alive: Sequence[Any]
) -> None:
    """The results: those given, or new ones of the right shape, type and place."""
    results = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    if (len(plan.results) == 1) != isinstance(returned, torch.Tensor):
        raise Wrong(f"{type(returned).__name__} is returned")
    if call.outputs is not None:
        if any(
            one is not mine for one, mine in zip(results, call.outputs, strict=True)
        ):
            raise Wrong("the launcher does not return the out it was given")
        return
    lhs = plan.contraction.lhs
    shape = (*call.inputs[lhs.name].shape[:-1], facts.n)
    if lhs.transposed:
        shape = (call.inputs[lhs.name].shape[1], facts.n)
    taken = {one.untyped_storage().data_ptr() for one in (*call.tensors, *alive)}
    for one, result in zip(results, plan.results, strict=True):
        found = tuple(one.shape), one.dtype, one.get_device(), one.is_contiguous()
        if found != (shape, torch_dtype(result.dtype), facts.device, True):
            raise Wrong(f"{result.name} is made {found}")
        if one.untyped_storage().data_ptr() in taken:
            raise Wrong(f"{result.name} is made where another tensor is")
        taken.add(one.untyped_storage().data_ptr())
