"""YAML text → `Spec`: the kernels that a file asks for, each value with its place.

Fills in defaults and refuses what this version does not build. Knows nothing about
GPUs, and leaves the epilogue's text to its own parser.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmgen.base.errors import Location, Mistakes, not_built, one_of
from gemmgen.epilogue.shorthand import Piece, expand, step_at
from gemmgen.hardware.gpus import target_named
from gemmgen.schedules import SCHEDULES
from gemmgen.spec.for_each import Draft, check_size, drafts
from gemmgen.spec.schema import AUTO, VERSION, DtypeMap, Tile
from gemmgen.spec.validation import check
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.scalings import SCALINGS
from gemmgen.yaml.reader import load
from gemmgen.yaml.tree import UNKNOWN, Node

DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100")

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Dtypes:
    """The element types of one kernel; `acc` is None where the spec leaves it."""

    a: str
    b: str
    acc: str | None
    out: str


@dataclass(frozen=True)
class KernelSpec:
    """One kernel as the spec asks for it, defaults filled in.

    `outputs` pairs a name with a dtype or None; empty, it means the last statement.
    No `tiles` mean that the choice is free. `refused` are the keys that somebody
    complained of, in whose place something that is allowed stands.
    """

    name: str
    op: str
    dtype: Dtypes
    precision: str | None
    layout: str
    scaling: str
    epilogue: str
    operands: dict[str, str]
    outputs: tuple[tuple[str, str | None], ...]
    tiles: tuple[Tile, ...]
    schedule: tuple[str, ...]
    autotune: str | None
    grad: bool
    grad_accumulate: bool
    module: bool
    draft: Draft = field(repr=False, compare=False)
    pieces: tuple[Piece, ...] = field(repr=False, compare=False)
    refused: frozenset[str] = frozenset()

    def at(self, *path: str | int) -> Location:
        """The place of a value such as `("tiles", 0, "k")`, or of what is around it."""
        return _within(self.draft, path).location

    def inside_epilogue(self, offset: int) -> Location:
        """The place of a character of `epilogue`, or of the step that it stands for."""
        node = self.draft.node_of("epilogue")
        if isinstance(node.value, str):
            return node.inside(offset)
        step = step_at(self.pieces, offset)
        return self.at("epilogue") if step is None else self.at("epilogue", step)

    def at_name(self, name: str) -> Location:
        """The place of the kernel's name, or of a name that the epilogue uses."""
        found = re.search(rf"\b{name}\b", self.epilogue)
        return self.inside_epilogue(found.start()) if found else self.at("name")


@dataclass(frozen=True)
class Spec:
    """All kernels of a file, in order, and the architectures they are for."""

    file: str
    targets: tuple[str, ...]
    kernels: tuple[KernelSpec, ...]


def parse(text: str | bytes, file: str) -> Spec:
    """The spec in `text`; `file` is the name that messages show.

    Raises `SpecErrors` with every mistake that can be found.
    """
    mistakes = Mistakes()
    spec = read(text, file, mistakes)
    mistakes.stop_if_any()
    return spec


def read(text: str | bytes, file: str, mistakes: Mistakes) -> Spec:
    """The spec in `text`, with all that is wrong with it noted in `mistakes`.

    What is refused leaves the rest to be looked at. Raises `SpecErrors` where nothing
    more can be said.
    """
    root = load(text, file, mistakes)
    _check_version(root, mistakes)
    check_size(root, mistakes)
    check(root, mistakes)
    found = drafts(root, mistakes)
    return Spec(file, _targets(root), tuple(_kernel(one, mistakes) for one in found))


def _targets(root: Node) -> tuple[str, ...]:
    """The architectures that are named, by whichever name, each once."""
    names = [str(item.value) for item in root.at("targets").items]
    found = [target_named(name) for name in names]
    return tuple(dict.fromkeys(one for one in found if one)) or DEFAULT_TARGETS


def _check_version(root: Node, mistakes: Mistakes) -> None:
    """Another version is another language: nothing else would be worth saying."""
    version = root.child("gemmgen")
    if version and type(version.value) is int and version.value != VERSION:
        message = f"this gemmgen reads version {VERSION}, not {version.value}"
        mistakes.add(version.location, message)
        raise mistakes.errors()


def _within(draft: Draft, path: Path) -> Node:
    """The node that `path` leads to, as far down as there are any.

    A single tile or schedule stands for a list of one, so its index is passed over.
    """
    node = draft.node_of(str(path[0])) if path else draft.node
    for part in path[1:]:
        node = node.child(part) or node
    return node


def _given(draft: Draft, key: str) -> Any:
    """The value of a setting; None if it is left out or was refused."""
    setting = draft.settings.get(key)
    return None if setting is None or setting.value is UNKNOWN else setting.value


def _complaints(draft: Draft) -> Iterator[tuple[Path, str]]:
    """What is missing, contradictory or not built, and the path to it."""
    for key in ("op", "dtype"):
        if key not in draft.settings:
            yield (), f"kernel has no '{key}'"
    yield from _about_op(draft)
    for path, name in _dtype_names(draft):
        if name in DTYPES and not DTYPES[name].built:
            yield path, not_built(f"dtype '{name}'")
    for index, tile in enumerate(_tiles(draft)):
        yield from _about_tile(draft, index, tile)
    yield from _about_scaling(draft)
    yield from _about_grad(draft)
    if _given(draft, "batch_invariant"):
        yield ("batch_invariant",), not_built("batch_invariant: true")


def _about_op(draft: Draft) -> Iterator[tuple[Path, str]]:
    op, layout = _given(draft, "op"), _given(draft, "layout")
    if op is None:
        return
    operation = OPERATIONS[op]
    if not operation.built:
        yield ("op",), not_built(f"op '{op}'")
    elif operation.layout is None and "layout" not in draft.settings:
        yield (), f"kernel has no 'layout', which {op} needs {one_of(LAYOUTS)}"
    elif operation.layout and layout not in (None, operation.layout):
        yield ("layout",), f"{op} is always {operation.layout}, not {layout}"
    if _given(draft, "module") and operation.built and not operation.layer:
        able = one_of(name for name, row in OPERATIONS.items() if row.layer)
        yield ("module",), f"module: true needs another op than {op} {able}"


def _about_scaling(draft: Draft) -> Iterator[tuple[Path, str]]:
    scaling = SCALINGS[_scaling(draft)]
    if not scaling.built:
        yield ("scaling",), not_built(f"scaling '{scaling.name}'")
    elif scaling.lhs is not None and not DTYPES[_dtypes(draft).a].scaled:
        message = f"scaling is for fp8 and int8 inputs; dtype is {_dtypes(draft).a}"
        yield ("scaling",), message


def _about_grad(draft: Draft) -> Iterator[tuple[Path, str]]:
    if _given(draft, "grad"):
        inputs = _dtypes(draft).a
        if DTYPES[inputs].scaled:
            yield ("grad",), not_built(f"grad: true with {inputs} inputs")
    elif _given(draft, "grad_accumulate"):
        yield ("grad_accumulate",), "grad_accumulate needs grad: true"


def _about_tile(draft: Draft, index: int, tile: Tile) -> Iterator[tuple[Path, str]]:
    inputs = next((name for _, name in _dtype_names(draft)), None)
    least = DTYPES[inputs].smallest_dot_k if inputs else 0
    if tile.k < least:
        message = f"tile k={tile.k} is below {least}, the least for {inputs} inputs"
        yield ("tiles", index, "k"), message
    splitting = [
        name for name, row in SCHEDULES.items() if row.splits and not row.memory_bound
    ]
    if (tile.split_k or 1) > 1 and not {AUTO, *splitting} & set(_schedule(draft)):
        needed = " or ".join(splitting)
        message = f"tile split_k={tile.split_k} needs schedule {needed}"
        yield ("tiles", index, "split_k"), message


def _dtype_names(draft: Draft) -> list[tuple[Path, str]]:
    """The names that dtype gives, that of `a` first, each with the path to it."""
    value = _given(draft, "dtype")
    if not isinstance(value, DtypeMap):
        return [(("dtype",), value)] if value else []
    return [(("dtype", key), name) for key, name in value if name]


def _tiles(draft: Draft) -> tuple[Tile, ...]:
    value = _given(draft, "tiles") or AUTO
    found: Any = () if value == AUTO else value
    return (found,) if isinstance(found, Tile) else tuple(found)


def _schedule(draft: Draft) -> tuple[str, ...]:
    value = _given(draft, "schedule") or AUTO
    return (value,) if isinstance(value, str) else tuple(value)


def _scaling(draft: Draft) -> str:
    return _given(draft, "scaling") or next(iter(SCALINGS))


def _outputs(draft: Draft) -> tuple[tuple[str, str | None], ...]:
    value = _given(draft, "outputs") or ()
    own = value if isinstance(value, Mapping) else dict.fromkeys(value)
    return tuple(own.items())


def _dtypes(draft: Draft) -> Dtypes:
    value = _given(draft, "dtype") or next(iter(DTYPES))
    if isinstance(value, str):
        return Dtypes(value, value, None, value)
    return Dtypes(value.a, value.b or value.a, value.acc, value.out or value.a)


def _epilogue(draft: Draft, product: str) -> tuple[Piece, ...]:
    """The epilogue, that of the bare `product` if it is left out, in pieces."""
    value = _given(draft, "epilogue")
    if isinstance(value, str):
        return (Piece(value, None),)
    return expand(tuple(value or ()), product)


def _kernel(draft: Draft, mistakes: Mistakes) -> KernelSpec:
    """The kernel of a draft; what is wrong with it is noted."""
    complaints = list(_complaints(draft))
    for path, message in complaints:
        mistakes.add(_within(draft, path).location, message)
    refused = {"op", "dtype"} - draft.settings.keys()
    refused |= {str(path[0]) for path, _ in complaints if path}
    refused |= {key for key, one in draft.settings.items() if one.value is UNKNOWN}
    op = _given(draft, "op") or next(iter(OPERATIONS))
    pieces = _epilogue(draft, OPERATIONS[op].epilogue)
    layout = OPERATIONS[op].layout or _given(draft, "layout")
    refused |= set() if layout else {"layout"}
    return KernelSpec(
        name=draft.name or "",
        op=op,
        dtype=_dtypes(draft),
        precision=_given(draft, "precision"),
        layout=layout or next(iter(LAYOUTS)),
        scaling=next(iter(SCALINGS)) if "scaling" in refused else _scaling(draft),
        epilogue="".join(piece.text for piece in pieces),
        operands=_given(draft, "operands") or {},
        outputs=_outputs(draft),
        tiles=_tiles(draft),
        schedule=_schedule(draft),
        autotune=_given(draft, "autotune"),
        grad=_given(draft, "grad") or False,
        grad_accumulate=_given(draft, "grad_accumulate") or False,
        module=_given(draft, "module") or False,
        draft=draft,
        pieces=pieces,
        refused=frozenset(refused),
    )
