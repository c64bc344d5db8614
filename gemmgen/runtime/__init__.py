"""What generated launchers share: copied into every output folder as it stands.

It needs torch and Triton, 3.6 to 3.9. Importing one kernel imports no other. Rules of
every launcher:

- Tensors may have any strides and sizes, also 0. They lie on one GPU; the launch is on
  its current stream. Sparse and nested tensors and negated views are refused.
- A launcher is also an operator, `torch.ops.<package>.<kernel>`. Calls that torch has
  to see, as under torch.compile, torch.vmap, autocast or a mode, go through it.
- An input that requires a gradient is refused, unless gradients are off or the launcher
  has a backward, which does not go with `out`.
- Numbers are Python's or NumPy's. A finite one that overflows the type in which it is
  used is refused. Epilogues are IEEE arithmetic: 0 times NaN is NaN, also for a `beta`
  that is 0, where BLAS skips the product.
- `out=` is written and returned. It has the shape and type of the result, any strides
  without overlap, and shares no memory with an input or another result; an operand
  [m, n] may be `out` itself.
- ValueError says what is wrong with an argument, before anything is written;
  RuntimeError says that no tile of the table runs on the GPU.
- `warmup`, called like the launcher, compiles all that calls like this one need that
  have as many rows or fewer.

Where a kernel has an nn.Module, that is a name of the package too.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose names in `__all__` are imported when they are first asked for.

    Each is the launcher of the submodule of that name or, if it is in `MODULES`, the
    nn.Module of the kernel given there.
    """

    __all__: Iterable[str]

    def __getattr__(self, name: str) -> Any:
        """Import a launcher or an nn.Module."""
        if name not in self.__dict__.get("__all__", ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        kernel = self.__dict__.get("MODULES", {}).get(name)
        place = name if kernel is None else f"{kernel}.module"
        return getattr(importlib.import_module(f"{self.__name__}.{place}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind a name; one of `__all__` to the launcher, not to the submodule.

        Python binds a submodule's name to the submodule when that has been imported.
        """
        if isinstance(value, ModuleType) and name in self.__dict__.get("__all__", ()):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})
