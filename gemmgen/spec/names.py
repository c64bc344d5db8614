"""What a kernel may be called: the name is also a file's, a module's, a function's."""

import builtins
import keyword

from gemmgen.base.errors import quoted
from gemmgen.gate.reserved import IN_MODULES
from gemmgen.spec.value_types import Identifier
from gemmgen.tables.functions import OPS

_KIND = Identifier("name")

# Words that only some Python versions, or only interactive ones, know.
_LATER = {"type", "aiter", "anext", "copyright", "credits", "exit", "license", "quit"}

_TAKEN: dict[str, frozenset[str]] = {
    "a keyword of Python": frozenset([*keyword.kwlist, *keyword.softkwlist]),
    "a builtin of Python": frozenset([*dir(builtins), *_LATER]),
    "a function of epilogues": frozenset(OPS),
    # A package that imports `sys` has it where the launcher would be.
    "a name that generated modules use": frozenset(["gemmgen", "sys", *IN_MODULES]),
    "the name of a device on Windows": frozenset(
        ["con", "prn", "aux", "nul"]
        + [f"{port}{digit}" for port in ("com", "lpt") for digit in range(10)]
    ),
}


def why_not(name: str) -> str | None:
    """The reason against a kernel's name, if there is one."""
    if not _KIND.accepts(name):
        return _KIND.wording(name)
    for what, names in _TAKEN.items():
        if name in names:
            return f"name {quoted(name)} is {what}"
    return None
