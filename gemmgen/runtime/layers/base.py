"""What the nn.Modules of launchers have in common: the parameters of nn.Linear."""

from typing import Any, ClassVar

import torch
from torch import nn


class KernelLinear(nn.Linear):  # type: ignore[misc]
    """An nn.Linear whose product, and what becomes of it, is a launcher's.

    Whether there is a bias the `kernel` decides: a `bias` that says otherwise raises
    ValueError. `dtype` is that of the parameters; without one, or with the weight's,
    each has the type that the kernel takes. Others are for torch.autocast. `state_dict`
    and `reset_parameters` are nn.Linear's. Training takes a kernel with `grad: true`;
    any other raises the launcher's error where a parameter requires a gradient.
    """

    bias: Any
    kernel: ClassVar[Any]
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
            raise ValueError(f"{kind}: bias must be {has_bias}, as {kernel} takes it")
        weight_type = dtype or self.weight_type
        super().__init__(in_features, out_features, has_bias, device, weight_type)
        if has_bias and weight_type == self.weight_type != self.bias_type:
            self.bias = nn.Parameter(self.bias.detach().to(self.bias_type))

    @classmethod
    def of(cls, linear: nn.Linear) -> "KernelLinear":
        """Return a module with an nn.Linear's parameters, shared and not copied."""
        made = cls(linear.in_features, linear.out_features, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        for name, one in vars(linear).items():
            made.__dict__.setdefault(name, one)
        return made.train(linear.training)

    @classmethod
    def why_not(cls, linear: nn.Linear) -> str:
        """Return what keeps it from taking an nn.Linear's place, empty if nothing."""
        for name in ("weight", "bias"):
            one, wanted = getattr(linear, name), getattr(cls, f"{name}_type")
            found = None if one is None else one.dtype
            if found != wanted:
                return f"{name} is {found}, not {wanted}"
        learns = linear.training and linear.weight.requires_grad
        if learns and cls.kernel.gradient is None:
            return "it is in training, for which the kernel needs grad: true"
        return ""
