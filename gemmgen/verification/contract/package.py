"""The package of an output folder: its names are launchers, whatever was imported."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from gemmgen.output.folder import PACKAGE
from gemmgen.render.names.parts import MODULE
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong

_NOBODY = "no_such_kernel"


def check_package(folder: Path, name: str) -> int:
    """Raise `Wrong` unless a kernel's launcher is what its name brings.

    How many ways were tried; none where a kernel lies in a folder of no package.
    """
    if not (folder / PACKAGE).exists():
        return 0
    ways = (_tells, _asked_for, _imported_first, _bound, _unknown)
    for way in ways:
        way(subject.package(folder), name)
    return len(ways)


def _tells(package: ModuleType, name: str) -> None:
    """Its names are told before anything is imported."""
    if {*dir(package)} != {*vars(package), *package.__all__}:
        raise Wrong(f"the package tells of {dir(package)}")
    if name not in dir(package):
        raise Wrong(f"the package does not tell of {name}")


def _asked_for(package: ModuleType, name: str) -> None:
    """A launcher is imported when it is asked for, and then it is there."""
    for _ in range(2):
        _check(package, name)


def _imported_first(package: ModuleType, name: str) -> None:
    """Whoever imports the kernel's module has the launcher of that name too."""
    importlib.import_module(f"{package.__name__}.{name}")
    _check(package, name)


def _bound(package: ModuleType, name: str) -> None:
    """A name may be given something else, as tests do; a module is no kernel's."""

    def other() -> None: ...

    for each, value in ((name, other), (_NOBODY, ModuleType(_NOBODY))):
        setattr(package, each, value)
        if getattr(package, each) is not value:
            raise Wrong(f"{each} of the package is not what it was set to")


def _unknown(package: ModuleType, name: str) -> None:
    """What there is no kernel of is an AttributeError, by which Python tells."""
    if hasattr(package, _NOBODY):
        raise Wrong(f"the package has {_NOBODY}")


def _check(package: ModuleType, name: str) -> None:
    for owned, place in ((name, name), *_modules(package, name)):
        found = getattr(package, owned)
        if found is not getattr(sys.modules[f"{package.__name__}.{place}"], owned):
            raise Wrong(f"{owned} of the package is {found}, not what {place} has")


def _modules(package: ModuleType, name: str) -> Iterator[tuple[str, str]]:
    """The class of a kernel's nn.Module, if the package tells of one, and its place."""
    for owned, kernel in vars(package).get("MODULES", {}).items():
        if kernel == name:
            yield owned, f"{name}.{MODULE}"
