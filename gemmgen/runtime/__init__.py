"""What generated launchers share: copied into every output folder as it stands.

It needs torch and Triton, 3.6 to 3.9, and is the same for every spec: it has what any
kernel may need. A launcher is imported when it is asked for: importing one kernel runs
no other's module, and does not fail where another's would. How launchers are called:

- Tensors may have any strides, and sizes 0. They lie on one GPU, of whose current
  stream the launch is one. Those that kernels cannot read are refused: sparse, nested,
  views that torch negates as it reads them.
- A launcher is `torch.ops.<package>.<kernel>` too. Calls that torch has to see, as of
  torch.compile, torch.vmap, autocast or a mode, are made as that operator.
- An input that requires a gradient is refused, unless gradients are off or the launcher
  has a backward; then it is given no `out`.
- Numbers are Python's or NumPy's. One that is finite and becomes infinite in the type
  that it is used as is refused. Epilogues are IEEE arithmetic as they are written: a
  factor 0 does not skip what it multiplies, as beta = 0 does in BLAS.
- `out=` is written and returned. Each tensor has the shape and type of the result, any
  strides, no two elements in the same memory, and shares none with an input or another
  result; an operand [m, n] may be `out` itself.
- ValueError says what is wrong with an argument, before anything is written;
  RuntimeError, that no tile of the table runs on the GPU.
- `warmup`, called like the launcher, compiles what calls need that are like this one
  and have as many rows or fewer.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class Launchers(ModuleType):
    """A package in which each name of `__all__` is the launcher of that submodule."""

    __all__: Iterable[str]

    def __getattr__(self, name: str) -> Any:
        """The launcher of a kernel that nobody has asked for yet."""
        if name not in self.__dict__.get("__all__", ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{self.__name__}.{name}"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Bind a name; one of `__all__` to the launcher, not to the submodule.

        Python binds a submodule's name to the submodule when that has been imported.
        """
        if isinstance(value, ModuleType) and name in self.__dict__.get("__all__", ()):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})
