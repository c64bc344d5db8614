"""The scripts of benchmarks/, imported; they are no package."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@cache
def script(name: str) -> ModuleType:
    """The module of a script, by its name without `.py`; always the same one.

    Classes of a second one would not be those that pickle finds by their names.
    """
    (path,) = FOLDER.glob(f"*/{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
