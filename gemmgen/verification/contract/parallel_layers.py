"""A kernel's nn.Module that two devices share, as one of them has it.

The other is not there, for torch's backend "fake" sends nothing: what needs both is
held to its shape and placement alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.contract.layers import Held
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, several

_DEVICES = 2
_OWN = 1
"""The device that this process is: not the first, whose values others may have."""
_EVEN, _LEADING = Case((4,), 6, 8), Case((2, 4), 6, 8)
"""Sizes of which each device has as much, of a matrix and of several leading axes."""
_ROUNDINGS = 4
"""That a part may differ from the whole by: tiles lie elsewhere in it."""


def check_parallel_layer(plan: Plan, module: ModuleType, device: torch.device) -> int:
    """Raise `Wrong` for what is not as it must be; how many things were tried."""
    with _devices(device) as mesh, torch.no_grad():
        checks = _refuses, _parameters, _columns, _placed, _gathered, _rows
        cases = (_EVEN, _LEADING) if OPERATIONS[plan.op].leading else (_EVEN,)
        for case in cases:
            one = _Cut(plan, module, device, mesh, case)
            for check in checks:
                check(one)
    return len(checks) * len(cases)


@contextmanager
def _devices(device: torch.device) -> Iterator[Any]:
    """A mesh of devices of which this process is one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", FakeStore(), rank=_OWN, world_size=_DEVICES)
    try:
        yield init_device_mesh(device.type, (_DEVICES,))
    finally:
        dist.destroy_process_group()


class _Cut(Held):
    """A kernel's class, its call, and the styles that cut its modules."""

    def __init__(
        self,
        plan: Plan,
        module: ModuleType,
        device: torch.device,
        mesh: Any,
        case: Case,
    ) -> None:
        from torch.distributed import tensor

        super().__init__(plan, module, device, case)
        self.mesh, self.placements = mesh, tensor
        self.styles: Any = subject.runtime(module, "layers.parallel")
        self.wanted = several(self.filled(self.made())(*self.given))

    def cut(self, style: Any, module: Any = None) -> Any:
        """A module that is cut in this style; each device has the whole before."""
        from torch.distributed.tensor.parallel import parallelize_module

        whole = module or self.filled(self.made())
        return parallelize_module(whole, self.mesh, style, src_data_rank=None)

    def by_columns(self, **named: Any) -> Any:
        """A module that is cut along its columns."""
        return self.cut(self.styles.ColwiseKernel(**named))

    def columns(self, tensor: Tensor) -> Tensor:
        """This device's part along the last axis."""
        return tensor.tensor_split(_DEVICES, -1)[_OWN]


def _refuses(one: _Cut) -> None:
    """What is no module of a kernel is refused by the style's name."""
    for style in (one.styles.ColwiseKernel(), one.styles.RowwiseKernel()):
        try:
            one.cut(style, nn.Linear(2, 2))
        except TypeError as error:
            if not str(error).startswith(
                f"{type(style).__name__}: Linear is no module"
            ):
                raise Wrong(f"nn.Linear: {error}") from error
        else:
            raise Wrong("nn.Linear is cut as a module of a kernel")


def _parameters(one: _Cut) -> None:
    """Parameters are cut along the style's axis, and learn if they did."""
    styles, whole = one.styles, one.filled(one.made())
    for style, cuts in (
        (styles.ColwiseKernel, {"weight": 0, "bias": 0}),
        (styles.RowwiseKernel, {"weight": 1, "bias": None}),
    ):
        for learns in (True, False):
            made = one.cut(style(), one.filled(one.made()).requires_grad_(learns))
            for name, parameter in made.named_parameters():
                axis, full = cuts[name], getattr(whole, name).detach()
                part = full if axis is None else full.tensor_split(_DEVICES, axis)[_OWN]
                if not torch.equal(parameter.detach().to_local(), part):
                    raise Wrong(f"{name} of {style.__name__} is another part")
                if parameter.requires_grad != learns:
                    raise Wrong(f"{name} of {style.__name__} learns: {not learns}")


def _columns(one: _Cut) -> None:
    """By columns a call returns this device's, of plain tensors or DTensors."""
    made, names = one.by_columns(), one.names
    x, *rest = one.given
    spread = one.placements.DTensor.from_local(
        x, one.mesh, [one.placements.Replicate()]
    )
    for returned in (
        made(*one.given),
        made(spread, *rest),
        made(x, **dict(zip(names[1:], rest, strict=True))),
        made(**dict(zip(names, one.given, strict=True))),
    ):
        _alike(several(returned), [one.columns(want) for want in one.wanted])
        if isinstance(returned, Tensor) != (len(one.wanted) == 1):
            raise Wrong(f"a module that is cut returns {type(returned)}")
    for given in ((*one.given, x), ()):
        try:
            made(*given)
        except TypeError:
            continue
        raise Wrong(f"a module that is cut takes {len(given)} arguments")


def _alike(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for got, want in zip(found, wanted, strict=True):
        if (type(got), got.shape, got.dtype) != (Tensor, want.shape, want.dtype):
            raise Wrong(f"a part is {type(got)} {got.dtype} {tuple(got.shape)}")
        room = _ROUNDINGS * torch.finfo(want.dtype).eps * want.abs().max()
        if not bool(((got - want).abs() <= room).all()):
            raise Wrong("a part has other values than the whole")


def _placed(one: _Cut) -> None:
    """Results have the placement that was asked for, or the style's own."""
    last, every = one.wanted[0].ndim - 1, one.placements.Replicate()
    sharded = one.placements.Shard
    for named, wanted in (
        ({}, sharded(last)),
        ({"output_layouts": every}, every),
        ({"output_layouts": sharded(0)}, sharded(0)),
    ):
        made = one.by_columns(use_local_output=False, **named)
        _held_to(made(*one.given), wanted, one.wanted)


def _held_to(returned: Any, placement: Any, wanted: Sequence[Tensor]) -> None:
    for got, want in zip(several(returned), wanted, strict=True):
        if got.shape != want.shape or got.placements != (placement,):
            raise Wrong(f"a result is {got.placements} of {tuple(got.shape)}")


def _gathered(one: _Cut) -> None:
    """An input of which each device says that it has some rows is gathered."""
    if any(isinstance(value, Tensor) and value.ndim > 1 for value in one.given[1:]):
        return  # which would have to have as many rows
    rows = one.placements.Shard(0)
    for layouts in (rows, [rows], [rows, None]):
        made = one.by_columns(input_layouts=layouts, use_local_output=False)
        (first, *_), (want, *_) = several(made(*one.given)), one.wanted
        if first.shape[0] != _DEVICES * want.shape[0]:
            raise Wrong(f"rows of both devices are {first.shape[0]}")


def _rows(one: _Cut) -> None:
    """By rows of the weight a call takes this device's columns of x."""
    made = one.cut(one.styles.RowwiseKernel(use_local_output=False))
    x, *rest = one.given
    _held_to(made(one.columns(x), *rest), one.placements.Replicate(), one.wanted)
