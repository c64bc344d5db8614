"""The kernel under test: its module, imported from its file, and its tiles."""

import importlib
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.render.names.parts import RUNTIME, file_of, stems
from gemmgen.schedules import SCHEDULES, described
from gemmgen.schedules.parts.tile import FALLBACK, Tile
from gemmgen.select.plan import Plan
from gemmgen.verification.example.configured import Configured
from gemmgen.verification.oracle.comparison import Block

_numbers = itertools.count()
_loaded: list[str] = []
_PARTS = 3
"""More than one: the first, the last and one between them."""
ANYWHERE = {
    **dict.fromkeys(
        ("sm", "shared", "waves", "block", "once", "launch", "from_rows", "from_side"),
        0,
    ),
    **dict.fromkeys("MNK", math.inf),
    "rates": None,
}
"""What makes a row serve every call, whatever it costs."""


@dataclass(frozen=True)
class Variant:
    """One tile of a kernel, and what forces it: a table, or a kernel with its sizes."""

    block: Block
    value: Any
    schedule: str = FALLBACK
    parts: int = 1

    def described(self, plan: Plan) -> frozenset[str]:
        """The roles of the tensors that descriptors must be able to describe."""
        return described(self.schedule, plan.product.kind)

    @property
    def raced(self) -> bool:
        """Whether it is a configuration of a kernel that is autotuned."""
        return isinstance(self.value, Configured)

    @property
    def specialized(self) -> bool:
        """Whether its warps have different parts, in a kernel written in Gluon."""
        return SCHEDULES[self.schedule].specialized

    @property
    def of_a_column(self) -> bool:
        """Whether several rows at a time stream past a column."""
        return SCHEDULES[self.schedule].memory_bound and self.block.m > 1

    @property
    def text(self) -> tuple[str, bool, bool]:
        """What variants of the same kernel text have in common: all but their sizes."""
        return self.schedule, self.parts > 1, self.of_a_column

    @property
    def name(self) -> str:
        """The tile in a word or two, for whoever reads of a fault."""
        return f"{self.schedule} tile {self.block}"

    def cut_to(self, block: Block, *, group_m: int = 0, parts: int = 0) -> "Variant":
        """The same kernel with a tile of other sides, which its table need not have.

        A group of tiles and the parts of K stay as they are unless they are given.
        """
        if self.raced:
            value: Any = self.value.cut_to(block, group_m)
            return replace(self, block=block, value=value)
        first, *others = self.value
        first = first._replace(
            m=block.m,
            n=block.n,
            k=block.k,
            group_m=group_m or first.group_m,
            split_k=parts or first.split_k,
        )
        parts = parts or self.parts
        return replace(self, block=block, value=(first, *others), parts=parts)

    @contextmanager
    def forced(self, module: ModuleType) -> Iterator[None]:
        """Make every launch use this tile, and remember nothing of others."""
        launches = module.LAUNCHES
        if self.raced:
            own = launches.arguments[self.schedule]
            forced = patch.object(own, "kernel", self.value)
        else:
            forced = patch.object(launches, "tiles", self.value)
        with forced, afresh(module):
            yield


@contextmanager
def afresh(module: ModuleType) -> Iterator[None]:
    """With a launcher that remembers no call; in the interpreter none remembers any."""
    name = _own_name(module)
    launcher = getattr(module, name)
    if not hasattr(launcher, "__wrapped__"):
        yield
        return
    with patch.object(module, name, remembering(module, launcher.__wrapped__)):
        yield


def remembering(module: ModuleType, launcher: Callable[..., Any]) -> Callable[..., Any]:
    """A launcher that remembers calls as the module's does, and none yet."""
    by_row = getattr(module, _own_name(module)).by_row
    cache = runtime(module, "launch_cache")
    return cache.launch_cache(*by_row)(launcher)  # type: ignore[no-any-return]


def _own_name(module: ModuleType) -> str:
    """That of a module's launcher, too."""
    return str(module.CHECK.kernel)


def load(path: Path) -> ModuleType:
    """Import a kernel's package from its launcher's file.

    The folder's other kernels are left alone: one that does not import fails by itself.
    """
    root = next(one for one in path.parents if (one / RUNTIME).is_dir())
    package = ModuleType(f"generated_{next(_numbers)}")
    package.__path__ = [str(root)]
    sys.modules[package.__name__] = package
    _loaded.append(package.__name__)
    below = ".".join(path.parent.relative_to(root).parts)
    return importlib.import_module(f"{package.__name__}.{below}")


def package(folder: Path) -> ModuleType:
    """Import an output folder as the package that it is."""
    name = f"generated_{next(_numbers)}"
    _loaded.append(name)
    return _imported(name, folder / "__init__.py", [str(folder)])


def part(module: ModuleType, stem: str) -> ModuleType:
    """One of the other modules of a kernel's package, such as that of a schedule."""
    return importlib.import_module(f"{module.__name__}.{stem}")


def parts(plan: Plan, module: ModuleType) -> list[ModuleType]:
    """A kernel's package and all modules in it."""
    return [module, *(part(module, stem) for stem in stems(plan)[1:])]


def forget() -> None:
    """Let go of every module that was loaded: a process may verify hundreds."""
    for name in list(sys.modules):
        if name.partition(".")[0] in _loaded:
            del sys.modules[name]
    _loaded.clear()


def runtime(module: ModuleType, name: str) -> ModuleType:
    """One of the modules that the launchers of a kernel's folder share."""
    return importlib.import_module(f"{package_of(module)}.{RUNTIME}.{name}")


def launches(module: ModuleType, tile: Tile) -> bool:
    """Whether this Triton has what a tile needs: clusters came with 3.8."""
    return tile.ctas == 1 or bool(runtime(module, "device").CLUSTERS)


def package_of(module: ModuleType) -> str:
    """The name of the package that a kernel's folder is in, or the folder of that."""
    return module.__name__.partition(".")[0]


def again(module: ModuleType) -> ModuleType:
    """Import a kernel's package once more, as another one of the same folder."""
    folder = module.__name__.rpartition(".")[0]
    name = f"{folder}.again_{next(_numbers)}"
    assert module.__file__ is not None
    return _imported(name, Path(module.__file__), list(module.__path__))


def _imported(name: str, path: Path, folders: list[str]) -> ModuleType:
    """Import a file under a name, with submodules from folders."""
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=folders
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def launcher(plan: Plan, module: ModuleType) -> Callable[..., Any]:
    """The module's public function."""
    found = getattr(module, plan.name)
    assert callable(found)
    return found  # type: ignore[no-any-return]


def launcher_in(folder: Path, plan: Plan) -> Callable[..., Any]:
    """The public function of a kernel's module in a folder."""
    return launcher(plan, load(folder / file_of(plan)))


def variants(plan: Plan, module: ModuleType, device: torch.device) -> list[Variant]:
    """Every tile that this device can be made to use, the cheapest first."""
    if plan.configs:
        found = _configured(module)
    else:
        found = _tabled(_reached(module.TILES, device), device.type == "cuda")
    return sorted(found, key=lambda one: one.block.m * one.block.n * one.block.k)


def _reached(table: Any, device: torch.device) -> list[Any]:
    """The rows of a table that calls on a device can get to; the interpreter, to all.

    Those that it can run, until one that takes whatever it is given, or until the last
    of those that stand together, of which a call takes the fastest.
    """
    if device.type != "cuda":
        return list(table)
    major, minor = torch.cuda.get_device_capability(device)
    room = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    serving = [row for row in table if row.runs_on(10 * major + minor, room)]
    last = next(index for index, row in enumerate(serving) if _takes_all(row))
    alike = itertools.takewhile(lambda row: row.rates, serving[last:])
    return serving[: last + max(1, len(list(alike)))]


def _takes_all(row: Any) -> bool:
    """Whether no call passes a row over."""
    schedule = SCHEDULES[row.schedule]
    anything = min(row.M, row.N, row.K) == math.inf and not row.waves
    return anything and not schedule.described


def _tabled(serving: list[Any], on_gpu: bool) -> list[Variant]:
    """The tiles of a table's rows.

    A tile that takes descriptors keeps the last row behind it, which any tensor will do
    for, as in the table.
    """
    found = {}
    members = (one for row in serving for one in row.members())
    for row in itertools.chain.from_iterable(map(_split, members)):
        anywhere = row._replace(**ANYWHERE)
        needs = SCHEDULES[row.schedule].described
        rows = (serving[-1]._replace(sm=0, shared=0),) if needs else ()
        block = Block(row.m, row.n, row.k)
        key = anywhere if on_gpu else _interpreted(anywhere)
        if key is not None and key not in found:
            value = (anywhere, *rows)
            found[key] = Variant(block, value, row.schedule, row.split_k)
    return list(found.values())


def _split(row: Any) -> Iterator[Any]:
    """The row, and with an explicit number of parts where it leaves that open.

    However small a case is, its K then comes in parts, at times more than its blocks.
    """
    if row.split_k < 0:
        yield row._replace(split_k=_PARTS)
    yield row


def _interpreted(row: Any) -> Any:
    """What of a row the interpreter can tell; None if it cannot run it at all."""
    if SCHEDULES[row.schedule].specialized:
        return None
    if row.split_k < 0:  # one tile shows how many parts that makes
        return row.schedule
    return row._replace(stages=1, warps=1)


def _configured(module: ModuleType) -> list[Variant]:
    kernel = module.LAUNCHES.arguments[FALLBACK].kernel
    return [
        Variant(
            Block(*(config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")),
            Configured(kernel.fn, config.all_kwargs()),
        )
        for config in kernel.configs
    ]
