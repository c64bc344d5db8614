"""Styles for parallelize_module: modules of kernels, cut by columns or by rows.

torch's own do for a module that takes one tensor, and pass no further ones on. Whoever
imports this imports torch.distributed.tensor, which takes a second.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.placement_types import Placement

from ..operators.sharding import cut, dims
from ..repeats import several
from .base import KernelLinear


class KernelParallel(ParallelStyle):  # type: ignore[misc]
    """A module of a kernel, cut `along` an axis of its product.

    `input_layouts` says how the plain tensors of a call are laid out: the placement of
    x, or one for each argument that calls bring, in their order. Where it says nothing,
    x is cut as the product is, and an operand is the same everywhere; what is a DTensor
    knows it. Results get `output_layouts`, and are plain tensors if `use_local_output`.
    """

    along: ClassVar[str]
    result: ClassVar[Placement]
    """What results are laid out as by default."""

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__()
        one = isinstance(input_layouts, Placement)
        self.input_layouts: Any = [input_layouts] if one else input_layouts or ()
        self.output_layouts = output_layouts or self.result
        self.use_local_output = use_local_output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        """Cut a module's parameters, and what comes and goes at each call."""
        if not isinstance(module, KernelLinear):
            kind, own = type(module).__name__, type(self).__name__
            raise TypeError(
                f"{own}: {kind} is no module of a kernel; use torch's style"
            )
        entered = partial(self.entered, device_mesh)
        module.register_forward_pre_hook(entered, with_kwargs=True)
        module.register_forward_hook(self.left)
        return distribute_module(module, device_mesh, self.partition)

    def partition(self, _: str, module: Any, mesh: DeviceMesh) -> None:
        """Cut the parameters of a module."""
        for name, argument in held(module).items():
            whole = getattr(module, name)
            made = distribute_tensor(
                whole.data,
                mesh,
                [self.placed(axes_of(module)[argument])],
                src_data_rank=self.src_data_rank,
            )
            setattr(module, name, nn.Parameter(made, whole.requires_grad))

    def entered(
        self, mesh: DeviceMesh, module: Any, given: Sequence, named: Mapping[str, Any]
    ) -> tuple[Sequence, Mapping[str, Any]]:
        """Return the arguments of a call, by name, as the DTensors that it takes."""
        axes = axes_of(module)
        names = [name for name in axes if name not in held(module).values()]
        values = {**dict(zip(names, given, strict=False)), **named}
        leading = values[names[0]].ndim - 1 if names[0] in values else 1
        layouts = dict(zip(names, self.input_layouts, strict=False))
        for name in names:
            one = values.get(name)
            if not isinstance(one, Tensor):
                continue
            wanted = self.placed(axes[name], leading)
            if not isinstance(one, DTensor):
                usual = wanted if name == names[0] else Replicate()
                layout = [layouts.get(name) or usual]
                one = DTensor.from_local(one, mesh, layout, run_check=False)
            values[name] = one.redistribute(placements=[wanted], async_op=True)
        return given[len(names) :], values

    def left(self, module: nn.Module, given: Any, returned: Any) -> Any:
        """Return results, one or several, as they are wanted."""
        made = [
            one.redistribute(placements=[self.output_layouts], async_op=True)
            for one in several(returned)
        ]
        if self.use_local_output:
            made = [one.to_local() for one in made]
        return tuple(made) if len(made) > 1 else made[0]

    def placed(self, axes: str, leading: int = 1) -> Placement:
        """Return how an argument of such axes goes into the product."""
        return cut(dims(axes, leading), self.along, Replicate())


class ColwiseKernel(KernelParallel):
    """By columns of the result: those of the weight's rows, and of the bias."""

    along, result = "n", Shard(-1)


class RowwiseKernel(KernelParallel):
    """By columns of x, and of the weight; what all compute of them is added up.

    A kernel whose epilogue is not linear in the product gathers x and weight instead.
    """

    along, result = "k", Replicate()


def axes_of(module: Any) -> Mapping[str, str]:
    """Return the axes of each argument of a module's kernel."""
    return module.kernel.operator.axes.arguments


def held(module: Any) -> dict[str, str]:
    """Return the names of a module's parameters, and the arguments that they are."""
    _, weight, *_ = axes_of(module)
    return {"weight": weight} | ({} if module.bias is None else {"bias": "bias"})
