"""The base class of kernels' nn.Modules, which has the parameters of nn.Linear."""

from typing import Any, ClassVar

import torch
from torch import nn


class KernelLinear(nn.Linear):  # type: ignore[misc]
    """An nn.Linear whose forward is a launcher, the `kernel`.

    The kernel decides whether there is a bias; a `bias` that disagrees raises
    ValueError. By default, or if `dtype` is the weight's, parameters have the dtypes
    that the kernel takes; another `dtype` is for torch.autocast. Training needs a
    kernel with `grad: true`: others refuse parameters that require a gradient.
    """

    bias: Any
    kernel: ClassVar[Any]
    weight_type: ClassVar[torch.dtype]
    bias_type: ClassVar[torch.dtype | None]
    activation: ClassVar[str | None]
    """The epilogue as a function of nn.Linear's result x; None if it is more."""

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
        module = cls(linear.in_features, linear.out_features, device="meta")
        module.weight, module.bias = linear.weight, linear.bias
        for name, value in vars(linear).items():
            module.__dict__.setdefault(name, value)
        return module.train(linear.training)

    @classmethod
    def why_not(cls, linear: nn.Linear) -> str:
        """Return why it cannot replace an nn.Linear; empty if it can."""
        for name in ("weight", "bias"):
            one, wanted = getattr(linear, name), getattr(cls, f"{name}_type")
            found = None if one is None else one.dtype
            if found != wanted:
                return f"{name} is {found}, not {wanted}"
        learns = any(one.requires_grad for one in linear.parameters())
        if learns and linear.training and cls.kernel.gradient is None:
            return "it is in training, for which the kernel needs grad: true"
        return ""
