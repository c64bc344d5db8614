"""What generated launchers share: copied into every output folder as it stands.

The package of such a folder has launchers for names, imported when they are asked for:
importing one kernel runs no other's module, and does not fail where another's would.
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
