"""What torch does with tensors of GPUs that are not there, without CUDA.

It takes them for its own. What has to do with numbers is done on the CPU, at the same
addresses.
"""

import ctypes
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from gemmgen.verification.stand_in.tensors import Gpus

_CUDA, _META = 1, 14
"""Kinds of device, as c10 numbers them."""
_KEPT: list[Any] = []
"""What torch was told holds as long as the libraries live that told it."""


def pose(gpus: Gpus) -> None:
    """Let torch take tensors of device `cuda` for its own."""
    torch.cuda._lazy_init = lambda: None
    torch._C._ensureCUDADeviceGuardSet()
    if not torch.backends.cuda.is_built():
        # Nothing guards the current device then; nothing need, as for meta tensors.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(
            library, "_ZN3c104impl26device_guard_impl_registryE"
        )
        guards[_CUDA] = guards[_META]
    aten = torch.library.Library("aten", "IMPL", "CUDA")
    every = torch.library.Library("_", "IMPL", "CUDA")
    _KEPT[:] = aten, every
    numeric = _on_the_cpu(gpus)
    every.fallback(numeric, "CUDA")
    functions = {name: partial(_named, numeric, name) for name in _with_kernels()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are replaced
        for name, function in (functions | _Functions(gpus).by_name()).items():
            aten.impl(name, function, allow_override=True)


def _with_kernels() -> list[str]:
    """The functions for which torch has kernels of its own, that need a GPU.

    Many if it was built with CUDA; without, what has none falls back by itself.
    """
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    return [name.removeprefix("aten::") for name in names if name.startswith("aten::")]


def _named(numeric: Callable[..., Any], name: str, *given: Any, **named: Any) -> Any:
    """A function of torch by its name and overload."""
    function, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, function), overload or "default")
    return numeric(operation, *given, **named)


class _Functions:
    """What torch must do to tensors of GPUs beside their numbers."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus

    def by_name(self) -> dict[str, Callable[..., Any]]:
        """Each by the name that torch knows it by."""
        return {
            "as_strided": self.as_strided,
            "view": self.view,
            "empty.memory_format": self.empty,
            "empty_strided": self.empty_strided,
            "zero_": self.zero_,
            "copy_": self.copy_,
            "_local_scalar_dense": self.item,
        }

    def as_strided(
        self, tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None
    ) -> torch.Tensor:
        """The same storage in another shape."""
        offset = tensor.storage_offset() if offset is None else offset
        return tensor.detach().as_strided_(size, stride, offset)

    def view(self, tensor: torch.Tensor, size: Any) -> torch.Tensor:
        """Another shape, if the strides allow it."""
        like = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        like = like.view(size)
        return self.as_strided(tensor, like.shape, like.stride())

    def empty(
        self, size: Any, *, dtype: Any = None, device: Any = None, **_: Any
    ) -> torch.Tensor:
        """A new tensor without gaps."""
        strides = torch.empty(size, device="meta").stride()
        return self.empty_strided(size, strides, dtype=dtype, device=device)

    def empty_strided(
        self, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any
    ) -> torch.Tensor:
        """A new tensor on a device or, without a number, the current one."""
        index = torch.device(device).index
        index = torch.cuda.current_device() if index is None else index
        return self.gpus.empty(size, stride, dtype or torch.get_default_dtype(), index)

    def zero_(self, tensor: torch.Tensor) -> torch.Tensor:
        """Zeros."""
        self.gpus.memories[tensor.get_device()].zero(tensor)
        self.gpus.on_zeros(tensor.data_ptr())
        return tensor

    def copy_(
        self, tensor: torch.Tensor, other: torch.Tensor, _: bool = False
    ) -> torch.Tensor:
        """Another's elements."""
        self.gpus.as_host(tensor).copy_(self.gpus.as_host(other))
        return tensor

    def item(self, tensor: torch.Tensor) -> Any:
        """The only element, for which the CPU waits."""
        self.gpus.on_wait()
        return self.gpus.as_host(tensor).item()


def _on_the_cpu(gpus: Gpus) -> Callable[..., Any]:
    """Any other function of torch: its result is a new tensor, or one of its own."""

    def run(operation: Any, *arguments: Any, **named: Any) -> Any:
        passed = (*arguments, *named.values())
        given = [value for value in passed if isinstance(value, torch.Tensor)]
        hosts = [gpus.as_host(tensor) for tensor in given]
        known = dict(zip(map(id, given), hosts, strict=True))
        inside = [
            known.get(id(argument), gpus.as_host(argument)) for argument in arguments
        ]
        named = {k: known.get(id(v), gpus.as_host(v)) for k, v in named.items()}
        device = next((tensor.get_device() for tensor in given if tensor.is_cuda), 0)

        def back(value: Any) -> Any:
            for one, host in zip(given, hosts, strict=True):
                if value is host:
                    return one
            if not isinstance(value, torch.Tensor):
                gpus.on_wait()  # the CPU has it
                return value
            made = gpus.empty(value.shape, value.stride(), value.dtype, device)
            gpus.as_host(made).copy_(value)
            return made

        return tree_map(back, operation(*inside, **named))

    return run
