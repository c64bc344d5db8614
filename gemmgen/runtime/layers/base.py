"""What the nn.Modules of launchers have in common: the parameters of nn.Linear."""

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

Self = TypeVar("Self", bound="KernelLinear")


class KernelLinear(nn.Linear):  # type: ignore[misc]
    """An nn.Linear whose product, and what becomes of it, is a launcher's.

    Whether there is a bias the `kernel` decides: a `bias` that says otherwise raises
    ValueError. `dtype` is that of the parameters; without one, or with the weight's,
    each has the type that the kernel takes. Others are for torch.autocast. `state_dict`
    and `reset_parameters` are nn.Linear's. Training takes a kernel with `grad: true`;
    any other raises the launcher's error where a parameter requires a gradient.
    """

    bias: Any
    kernel: ClassVar[Callable[..., Any]]
    weight_type: ClassVar[torch.dtype]
    bias_type: ClassVar[torch.dtype | None]
    activation: ClassVar[str | None]
    """What becomes of nn.Linear's result x, None if a call is not that alone."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        has_bias = self.bias_type is not None
        if bias not in (None, has_bias):
            kind, kernel = type(self).__name__, self.kernel.__name__
            does = "adds one" if has_bias else "adds none"
            raise ValueError(f"{kind}: bias must be {has_bias}, for {kernel} {does}")
        weight_type = dtype or self.weight_type
        super().__init__(in_features, out_features, has_bias, device, weight_type)
        if has_bias and weight_type == self.weight_type != self.bias_type:
            self.bias = nn.Parameter(self.bias.detach().to(self.bias_type))

    @classmethod
    def of(cls: type[Self], linear: nn.Linear) -> Self:
        """Return a module with an nn.Linear's parameters, shared and not copied."""
        made = cls(linear.in_features, linear.out_features, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        own = {
            name: one for name, one in vars(linear).items() if name not in vars(made)
        }
        made.__dict__.update(own)
        return made.train(linear.training)

    @classmethod
    def why_not(cls, linear: nn.Linear) -> str:
        """Return what keeps it from taking an nn.Linear's place, empty if nothing."""
        for name in ("weight", "bias"):
            one, wanted = getattr(linear, name), getattr(cls, f"{name}_type")
            if (one is None) != (wanted is None):
                return "it has no bias" if one is None else "it has a bias"
            if one is not None and one.dtype != wanted:
                return f"{name} is {one.dtype}, not {wanted}"
        if linear.training and linear.weight.requires_grad and not cls.trains():
            return "it is in training, for which the kernel needs grad: true"
        return ""

    @classmethod
    def trains(cls) -> bool:
        """Return whether the kernel has a backward."""
        return getattr(cls.kernel, "gradient", None) is not None
