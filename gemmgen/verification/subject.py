"""The kernel under test: its module, imported from its file, and its tiles."""

import importlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gemmgen.plan import Plan
from gemmgen.verification.comparison import Block

_numbers = itertools.count()


@dataclass(frozen=True)
class Variant:
    """One tile of a module: the name that is replaced to force it, and by what."""

    block: Block
    attribute: str
    value: Any

    @contextmanager
    def forced(self, module: ModuleType) -> Iterator[None]:
        """Make every launch use this tile."""
        before = getattr(module, self.attribute)
        setattr(module, self.attribute, self.value)
        try:
            yield
        finally:
            setattr(module, self.attribute, before)


def load(path: Path) -> ModuleType:
    """Import a generated module from its file, with its folder as a package.

    The folder's other kernels are left alone: one that does not import fails by itself.
    """
    package = ModuleType(f"generated_{next(_numbers)}")
    package.__path__ = [str(path.parent)]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.{path.stem}")


def launcher(plan: Plan, module: ModuleType) -> Callable[..., Any]:
    """The module's public function."""
    found = getattr(module, plan.name)
    assert callable(found)
    return found  # type: ignore[no-any-return]


def variants(plan: Plan, module: ModuleType, device: torch.device) -> list[Variant]:
    """Every tile that this device can be made to use, the cheapest first."""
    if plan.configs:
        found = _configured(module, f"{plan.name}_kernel")
    else:
        found = _tabled(module.TILES, _architecture(device))
    if device.type == "cpu":  # warps and stages mean nothing to the interpreter
        found = list({one.block: one for one in found}.values())
    return sorted(found, key=lambda one: one.block.m * one.block.n * one.block.k)


def _architecture(device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return int(10 * major + minor)


def _tabled(table: Any, architecture: int | None) -> list[Variant]:
    """The tiles of a table; on a GPU, those of the first rows that serve it."""
    found = {}
    for row in table:
        if architecture is not None and row.sm > architecture:
            continue
        anywhere = row._replace(sm=0, M=math.inf, N=math.inf)
        block = Block(row.m, row.n, row.k)
        found[anywhere] = Variant(block, "TILES", (anywhere,))
        if architecture is not None and row.M == row.N == math.inf:
            break
    return list(found.values())


def _configured(module: ModuleType, attribute: str) -> list[Variant]:
    kernel = getattr(module, attribute)
    return [
        Variant(
            Block(*(config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")),
            attribute,
            _Configured(kernel.fn, config),
        )
        for config in kernel.configs
    ]


class _Configured:
    """An autotuned kernel with its configuration settled."""

    def __init__(self, kernel: Any, config: Any) -> None:
        self.kernel = kernel
        self.meta = config.all_kwargs()

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *arguments: self.kernel[grid](*arguments, **self.meta)
