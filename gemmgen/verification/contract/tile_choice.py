"""The module's own choice of a tile, called for sizes up to 2^31 on every GPU.

Nothing is launched: tensors have sizes and strides but no memory, and what is known of
the device is replaced. The kernels' own properties are verified with tiles forced.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.schedules import SCHEDULES, described
from gemmgen.schedules.parts.tile import FULL, Tile
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row
from gemmgen.verification.contract.choice_sizes import MOST, SMS, Sizes, sizes_for
from gemmgen.verification.contract.reckoning import parts_of, predicted, tiles_of
from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.example.subject import package_of
from gemmgen.verification.interpret.hardware import (
    Refused,
    check_described,
    check_grid,
    check_stored,
)
from gemmgen.verification.oracle.reference import torch_dtype

_PADS: dict[str, Callable[[int, int], int]] = {
    "whole": lambda columns, place: 0,
    "odd": lambda columns, place: 1,
    "even": lambda columns, place: 4,
    "padded": lambda columns, place: -columns % 16,
    "uneven": lambda columns, place: ((8 << place) - columns) % (16 << place),
}
"""How many elements lie between rows, of so many columns, by the place of their tensor:
none, one, four, up to a multiple of 16 elements, up to an odd one of 8, of 16, 32."""
_ROWS = ("whole", *_PADS)
_NEWER = 0.75
"""Share of calls under a Triton that launches clusters."""
_SMALL = (64, 64, 64)
"""Sizes that the last tile of a table is seldom the first for."""
_ROUNDING = 1e-9
"""How far sums of a prediction may be apart that are added in another order."""


@dataclass(frozen=True)
class _Call:
    """A GPU, and the sizes and tensors of a call; whether its Triton has clusters."""

    gpu: Target
    sms: int
    sizes: Sizes
    rows: str
    clusters: bool

    def __str__(self) -> str:
        m, n, k = self.sizes
        return (
            f"the choice of a tile, M={m} N={n} K={k}, {self.rows} rows, "
            f"{self.gpu.name} with {self.sms} SMs"
            + ", without clusters" * (not self.clusters)
        )


def check_choice(plan: Plan, module: ModuleType, number: int) -> int:
    """Raise `Wrong` for a call without a tile, or with one that cannot serve it.

    How many calls were tried; none where an autotuner chooses.
    """
    if not plan.rows:
        return 0
    draw, count = random.Random(number), 0
    oldest = min(TARGETS[name].architecture for name in plan.targets)
    newer = [gpu for gpu in TARGETS.values() if gpu.architecture >= oldest]
    with gpus(module) as tell:
        for gpu in newer:
            for sizes in sizes_for(module.TILES, draw):
                sms = draw.choice((*SMS, gpu.sms))
                rows, clusters = draw.choice(_ROWS), draw.random() < _NEWER
                call = _Call(gpu, sms, sizes, rows, clusters)
                tell(call)
                _check(plan, module, call)
                count += 1
            call = _Call(gpu, gpu.sms, _SMALL, "whole", True)
            tell(call)
            _check_another(plan, module, call)
    return count


def _check_another(plan: Plan, module: ModuleType, call: _Call) -> None:
    """Raise `Wrong` unless another table's tile serves the same call of another kernel.

    The last serves any, so one of it alone may be the table.
    """
    _check(plan, module, call)
    last = module.TILES[-1]
    with patch.object(module.LAUNCHES, "tiles", (last,)):
        found = _chosen(plan, module, call).tile
    if _alike(found) != _alike(last):
        raise Wrong(f"{found} is taken, {last} is all there is\n{call}")


def _check(plan: Plan, module: ModuleType, call: _Call) -> None:
    try:
        launch = _chosen(plan, module, call)
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}\n{call}") from error
    row, gpu = SCHEDULES[launch.tile.schedule], call.gpu
    if row.unit not in (None, gpu.unit) or (row.described and not gpu.tensor_maps):
        raise Wrong(f"{row.name} does not run on {gpu.name}\n{call}")
    if not all(call.sizes):
        return
    m, n, k = call.sizes
    wanted = _best(plan, module, call)
    if _alike(launch.tile) not in wanted:
        raise Wrong(f"{launch.tile} is taken, {wanted} is to be\n{call}")
    at_a_time = call.sms // launch.tile.ctas
    parts = parts_of(launch.tile, tiles_of(launch.tile, m, n), k, at_a_time)
    if launch.split_k not in ((), (parts,)):
        raise Wrong(f"K comes in {launch.split_k} parts, {parts} are to be\n{call}")
    try:
        check_grid(launch.programs)
        for tensor in launch.tensors:
            if hasattr(tensor, "matrix"):
                for box in filter(None, tensor.boxes):
                    check_described(tensor.matrix, box)
    except Refused as refused:
        raise Wrong(f"{refused}\n{call}") from refused


def _best(plan: Plan, module: ModuleType, call: _Call) -> list[Any]:
    """The tile that is to serve a call, by what the columns of a table mean.

    That is the first; where it has costs, the fastest of all that have: as fast as any,
    since sums may be rounded in another order.
    """
    able = _serving(plan, call)
    place = next(able, None)
    if place is None:
        raise Wrong(f"no row of the table serves\n{call}")
    if plan.rows[place].timed is None:
        return [_alike(module.TILES[place])]
    timed = [place, *(other for other in able if plan.rows[other].timed)]
    first, second = islice(_arguments(plan, call), 2)
    apart = _apart(first), _apart(second)
    call_of = plan.product, call.sizes, apart, call.sms
    times = {
        _alike(
            module.TILES[other],
            m=tile.m,
            n=tile.n,
            stages=tile.stages,
            split_k=tile.split_k,
        ): time
        for other in timed
        for tile, time in predicted(plan.rows[other], *call_of).items()
        if tiles_of(tile, *call.sizes[:2]) <= MOST
    }
    least = min(times.values())
    return [tile for tile, time in times.items() if time <= least * (1 + _ROUNDING)]


def _alike(tile: Any, **own: int) -> Any:
    """A tile of a table, or one that it stands for, without what follows from a call.

    Each of these has what its own blocks take.
    """
    return tile._replace(block=0, from_side=0, deep=(), starts=(), **own)


def _apart(matrix: Any) -> int:
    """The bytes from a row to the next."""
    rows, _ = matrix.stride()
    return int(rows * matrix.element_size())


def _serving(plan: Plan, call: _Call) -> Iterator[int]:
    """The rows that can serve a call, in their order."""
    roles = [one.role for one in plan.passed]
    tensors = [
        argument for argument in _arguments(plan, call) if isinstance(argument, Tensor)
    ]
    for place, row in enumerate(plan.rows):
        schedule = SCHEDULES[row.tile.schedule]
        asked = described(row.tile.schedule, plan.product.kind)
        if (
            row.architecture <= call.gpu.architecture
            and schedule.unit in (None, call.gpu.unit)
            and row.runs_on(call.gpu, plan.product)
            and _holds(row, call.sizes)
            and row.tile.ctas <= (call.sms if call.clusters else 1)
            and tiles_of(row.tile, *call.sizes[:2]) <= MOST
            and (not row.full or _fills(row.tile, call))
            and all(
                _describable(tensor)
                for tensor, role in zip(tensors, roles, strict=True)
                if role in asked
            )
        ):
            yield place


def _holds(row: Row, sizes: Sizes) -> bool:
    """Whether the sizes are within a row's limits, or those of the layer that it is."""
    if row.pin:
        return row.pin.least <= sizes[0] <= row.pin.most and sizes[1:] == row.limits[1:]
    limits = zip(sizes, row.limits, strict=True)
    return all(most is None or size <= most for size, most in limits)


def _fills(tile: Tile, call: _Call) -> bool:
    """Whether the waves of its tiles are full to the share that tables ask for."""
    m, n, _ = call.sizes
    tiles = tiles_of(tile, m, n)
    return tiles / (math.ceil(tiles / call.sms) * call.sms) >= FULL


def _describable(matrix: Tensor) -> bool:
    """Whether a descriptor can describe it, to its last column.

    Kernels have coordinates of 32 bits, one of which is the sign.
    """
    if max(matrix.shape) > MOST:
        return False
    with suppress(Refused):
        check_described(matrix, (1, 16))
        check_stored(matrix.shape[-1] * matrix.element_size())
        return True
    return False


def _chosen(plan: Plan, module: ModuleType, call: _Call) -> Any:
    """The launch that the module makes of a call, whose GPU it was told."""
    return module.LAUNCHES.launch(*_arguments(plan, call))


@contextmanager
def gpus(module: ModuleType) -> Iterator[Callable[[_Call], None]]:
    """Replace what the module's folder finds out about a GPU, by that of each call."""
    known: dict[str, int] = {}

    def told(call: _Call) -> None:
        known["compute_capability"] = call.gpu.architecture
        known["num_sms"] = call.sms
        known["shared_memory"] = call.gpu.shared_per_block
        for one in launching:
            one.CLUSTERS = call.clusters

    package = package_of(module)
    folder = [one for name, one in sys.modules.items() if name.startswith(package)]
    launching: list[Any] = [one for one in folder if hasattr(one, "CLUSTERS")]
    with ExitStack() as stack:
        for one in launching:
            stack.enter_context(patch.object(one, "CLUSTERS", True))
        for one in folder:
            for name in ("compute_capability", "num_sms", "shared_memory"):
                if hasattr(one, name):
                    answer = patch.object(one, name, lambda _, name=name: known[name])
                    stack.enter_context(answer)
        yield told


def _arguments(plan: Plan, call: _Call) -> Iterator[Tensor | float]:
    """Matrices as the launcher hands them on, of no memory."""
    sizes = dict(zip("mnk", call.sizes, strict=True))

    def tensor(axes: tuple[str, ...], dtype: str, place: int = 0) -> Tensor:
        shape = [sizes[axis] for axis in axes]
        wide = [*shape[:-1], shape[-1] + _PADS[call.rows](shape[-1], place)]
        made = torch.empty(wide, dtype=torch_dtype(dtype), device="meta")
        return made[..., : shape[-1]]

    for place, matrix in enumerate(plan.contraction.inputs):
        yield tensor(matrix.stored_axes, plan.dtype, place)
    for operand in plan.operands:
        yield 1.0 if operand.is_number else tensor(operand.axes, operand.dtype)
    for result in plan.results:
        yield tensor(("m", "n"), result.dtype)
