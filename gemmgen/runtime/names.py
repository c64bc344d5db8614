"""What names stand for: those of an output folder, and of a kernel's parameters.

A folder's are launchers, imported when asked for: importing one kernel runs no other's
module, and does not fail where another's would. The generator reads this module too.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

# A kernel's constants, and what of the tile they are.
CONSTANTS = {
    "BLOCK_M": "m",
    "BLOCK_N": "n",
    "BLOCK_K": "k",
    "GROUP_M": "group_m",
    "STAGES": "stages",
    "NUM_WGS": "warpgroups",
}


def stride_name(tensor: str, axis: str) -> str:
    """`stride_am` for a tensor of a one-letter name, `stride_bias_n` for others."""
    return f"stride_{tensor}{axis}" if len(tensor) == 1 else f"stride_{tensor}_{axis}"


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
