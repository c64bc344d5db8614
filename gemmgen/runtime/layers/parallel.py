"""Styles of parallelize_module for kernels' modules, by columns or by rows.

Unlike torch's own they pass on more than one tensor. The import of this module takes a
second, for torch.distributed.tensor.
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
    """A kernel's module, cut `along` an axis of its product.

    `input_layouts` is the placement of x, or one for each argument of a call, in order;
    DTensors have theirs. By default x is cut as the product needs it, and operands are
    replicated. Results get `output_layouts`, and are plain tensors if
    `use_local_output`.
    """

    along: ClassVar[str]
    result: ClassVar[Placement]
    """The default of `output_layouts`."""

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
        """Cut a module's parameters, and hook into its calls."""
        if not isinstance(module, KernelLinear):
            kind, own = type(module).__name__, type(self).__name__
            raise TypeError(
                f"{own}: {kind} is no module of a kernel; use torch's style"
            )
        prepare_inputs = partial(self.prepare_inputs, device_mesh)
        module.register_forward_pre_hook(prepare_inputs, with_kwargs=True)
        module.register_forward_hook(self.prepare_outputs)
        return distribute_module(module, device_mesh, self.partition)

    def partition(self, _: str, module: Any, mesh: DeviceMesh) -> None:
        """Cut the parameters of a module."""
        for name, argument in parameters_of(module).items():
            whole = getattr(module, name)
            made = distribute_tensor(
                whole.data,
                mesh,
                [self.placement(axes_of(module)[argument])],
                src_data_rank=self.src_data_rank,
            )
            setattr(module, name, nn.Parameter(made, whole.requires_grad))

    def prepare_inputs(
        self, mesh: DeviceMesh, module: Any, given: Sequence, named: Mapping[str, Any]
    ) -> tuple[Sequence, Mapping[str, Any]]:
        """Return the arguments of a call, by name, as the DTensors that it needs."""
        axes = axes_of(module)
        names = [name for name in axes if name not in parameters_of(module).values()]
        values = {**dict(zip(names, given, strict=False)), **named}
        leading = values[names[0]].ndim - 1 if names[0] in values else 1
        layouts = dict(zip(names, self.input_layouts, strict=False))
        for name in names:
            one = values.get(name)
            if not isinstance(one, Tensor):
                continue
            wanted = self.placement(axes[name], leading)
            if not isinstance(one, DTensor):
                usual = wanted if name == names[0] else Replicate()
                layout = [layouts.get(name) or usual]
                one = DTensor.from_local(one, mesh, layout)
            values[name] = one.redistribute(placements=[wanted], async_op=True)
        return given[len(names) :], values

    def prepare_outputs(self, module: nn.Module, given: Any, returned: Any) -> Any:
        """Return one or several results with the wanted placement."""
        made = [
            one.redistribute(placements=[self.output_layouts], async_op=True)
            for one in several(returned)
        ]
        if self.use_local_output:
            made = [one.to_local() for one in made]
        return tuple(made) if len(made) > 1 else made[0]

    def placement(self, axes: str, leading: int = 1) -> Placement:
        """Return the placement of an argument of these axes."""
        return cut(dims(axes, leading), self.along, Replicate())


class ColwiseKernel(KernelParallel):
    """Cuts the columns of the result: the weight's rows and the bias."""

    along, result = "n", Shard(-1)


class RowwiseKernel(KernelParallel):
    """Cuts the columns of x and of the weight, and adds up the results.

    Where the epilogue is not linear, x and weight are gathered instead.
    """

    along, result = "k", Replicate()


def axes_of(module: Any) -> Mapping[str, str]:
    """Return the axes of each argument of a module's kernel."""
    return module.kernel.operator.axes.arguments


def parameters_of(module: Any) -> dict[str, str]:
    """Return the argument of the kernel that each of a module's parameters is."""
    _, weight, *_ = axes_of(module)
    return {"weight": weight} | ({} if module.bias is None else {"bias": "bias"})
