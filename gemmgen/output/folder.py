"""The output folder: what state each generated file is in, and how it is replaced.

It must not render anything, nor touch a file that gemmgen did not write.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from gemmgen.base import header
from gemmgen.base.errors import quoted
from gemmgen.base.files import terminable
from gemmgen.base.header import Header, file_hash
from gemmgen.base.tree import Folder, pinned
from gemmgen.output.changes import Change, Refused, State, by_place
from gemmgen.render.names.parts import RUNTIME, header_name, home

PACKAGE = "__init__.py"
SHARED = tuple(
    f"{RUNTIME}/{name}.py"
    for name in (
        "__init__",
        "sides",
        "tile",
        "support",
        "device",
        "pipeline/__init__",
        "pipeline/clusters",
        "pipeline/blocks",
        "pipeline/sums",
        "pipeline/parts",
        "pipeline/wgmma",
        "pipeline/producer",
        "pipeline/consumer",
        "pipeline/roles",
        "pipeline/simt",
        "functions",
        "table",
        "checks",
        "launch",
        "packed",
        "repeats",
        "replay",
        "dispatch",
        "families",
        "launch_cache",
        "operators/__init__",
        "operators/registry",
        "operators/sharding",
        "operators/entry",
        "operators/operator",
        "operators/launcher",
        "gradients/__init__",
        "gradients/function",
        "gradients/elementwise",
        "layers/__init__",
        "layers/base",
        "layers/replace",
        "layers/parallel",
    )
)
"""The files of what launchers share, each using those before it."""
LOCK = "gemmgen.lock.json"

_ROOM = re.compile(rf"^from \.+{RUNTIME}\.(\w+)\.", re.MULTILINE)
_MODULE = re.compile(r"(?:[a-z_][a-z0-9_]*/){0,2}[a-z_][a-z0-9_]*\.py")


@dataclass(frozen=True)
class Found:
    """A file that lies in the folder; no `text`: it is not gemmgen's to read."""

    name: str
    text: str | None = None
    header: Header | None = None

    @property
    def kernel(self) -> str | None:
        """The kernel that the file is of, None for any other file."""
        ours = self.header
        if ours is None or ours.source is None or ours.file != _hash(self.name):
            return None
        return home(self.name)


Contents = Mapping[str, Found]


def _hash(file: str) -> str:
    """What the header of a file of this name has for that."""
    return file_hash(header_name(file))


@dataclass(frozen=True)
class Wanted:
    """What a build of `sources` puts into the folder.

    `lives` tells whether another source is still there: kernels of one that is not are
    taken along by a spec that asks for them, since it was renamed. `finish` gives the
    files that depend on what else is there. It is called under the folder's lock, with
    all files and with those kernels of other sources that stay.
    """

    files: Mapping[str, str]
    sources: Set[str]
    finish: Callable[[Contents, Contents], Mapping[str, str]] = lambda _, __: {}
    lives: Callable[[str], bool] = lambda _: True


def shared_by(kernels: Iterable[str]) -> list[str]:
    """Those of `SHARED` that a folder has whose kernels' files hold these texts.

    Packages of them, such as that for gradients, only if a kernel imports from there.
    """
    rooms = {room for text in kernels for room in _ROOM.findall(text)}
    return [
        name for name in SHARED if name.count("/") == 1 or name.split("/")[1] in rooms
    ]


def look(path: Path) -> dict[str, Found]:
    """The generated files that lie in a folder, by name."""
    with pinned(path, write=False) as folder:
        return {} if folder is None else _scan(folder)


def inspect(path: Path, wanted: Wanted) -> list[Change]:
    """The state of each file, sorted by name; files that are no concern left out.

    With those whose spec is no longer there.
    """
    found = look(path)
    changes = compare(found, wanted)
    known = {change.name for change in changes}
    alone = [
        _abandoned(file)
        for name, file in found.items()
        if name not in known and file.kernel and not wanted.lives(_source(file))
    ]
    return sorted(changes + alone, key=lambda change: change.name)


def publish(path: Path, wanted: Wanted, *, force: bool = False) -> list[Change]:
    """Give each file its wanted text and remove what is left over.

    Returns what was found, as `inspect` does. Raises Refused before it writes
    anything: for a hand-edited file or one of another spec, unless `force`; always
    for a foreign one.
    """
    with pinned(path, write=True) as folder:
        assert folder is not None
        changes = compare(_scan(folder), wanted)
        hard = {State.FOREIGN} if force else _REFUSED
        refused = [change for change in changes if change.state in hard]
        if refused:
            places = [one for one in by_place(changes) if one.state in hard]
            raise Refused(path, refused, places)
        with terminable():
            folder.sweep()
            steps = _steps(changes)
            if steps:
                folder.apply(steps)
    return changes


_REFUSED = {State.EDITED, State.TAKEN, State.FOREIGN}


def compare(found: Contents, wanted: Wanted) -> list[Change]:
    """The state of each wanted file and of each file left over, sorted by name."""
    own = {home(name) for name in wanted.files}
    theirs = {
        name: file
        for name, file in found.items()
        if file.kernel and name not in wanted.files and not _of(file, wanted.sources)
    }
    others = {name: file for name, file in theirs.items() if file.kernel not in own}
    texts = {**wanted.files, **wanted.finish(found, others)}
    for name in texts:
        if name != LOCK and not _MODULE.fullmatch(name):
            raise ValueError(f"no name for a generated file: {name!a}")
    changes = [_wanted(name, texts[name], found, wanted) for name in texts]
    gone = [
        _unwanted(file)
        for name, file in found.items()
        if name not in texts and _of(file, wanted.sources)
    ]
    # Whoever takes a kernel takes all of its folder.
    gone += [
        _unwanted(file) if not wanted.lives(_source(file)) else _taken(file)
        for name, file in theirs.items()
        if name not in others
    ]
    return sorted(changes + gone, key=lambda change: change.name)


def _of(file: Found, sources: Set[str]) -> bool:
    """Whether a build of `sources` answers for this file."""
    if file.header is None:
        return False
    if file.header.file not in (None, _hash(file.name)):
        return False  # a copy that somebody made of a generated file
    return file.header.source is None or file.header.source in sources


def _source(file: Found) -> str:
    """The spec that a kernel's file names."""
    assert file.header is not None and file.header.source is not None
    return file.header.source


def _abandoned(file: Found) -> Change:
    reason = f"its spec {quoted(_source(file))} is not there: delete the file, or"
    reason += " name the spec if it lies elsewhere"
    return Change(file.name, State.ABANDONED, file.text, None, reason)


def _wanted(name: str, text: str, found: Contents, wanted: Wanted) -> Change:
    file = found.get(name)
    if file is None:
        return Change(name, State.MISSING, None, text)
    state, reason = _judge(file, text, wanted)
    return Change(name, state, file.text, text, reason)


def _judge(file: Found, text: str, wanted: Wanted) -> tuple[State, str]:
    ours = file.header
    if file.text == text:
        return State.FRESH, ""
    if file.name == LOCK and file.text is not None:
        return State.OUTDATED, ""
    if ours is None or ours.file not in (None, _hash(file.name)):
        return State.FOREIGN, "gemmgen did not write this file; move it away"
    others = ours.source is not None and ours.source not in wanted.sources
    if others and wanted.lives(_source(file)):
        taken = _taken(file)
        return taken.state, taken.reason
    if not ours.intact:
        return State.EDITED, "edited by hand; --force overwrites it"
    return State.OUTDATED, ""


def _taken(file: Found) -> Change:
    reason = f"comes from {quoted(_source(file))}; rename a kernel, or --force takes it"
    return Change(file.name, State.TAKEN, file.text, None, reason)


def _unwanted(file: Found) -> Change:
    if file.header is not None and file.header.intact:
        return Change(file.name, State.LEFTOVER, file.text)
    reason = "edited by hand, and no spec asks for it; --force removes it"
    return Change(file.name, State.EDITED, file.text, None, reason)


def _steps(changes: Sequence[Change]) -> dict[str, str | None]:
    """What to write and to remove, in an order that keeps the package importable."""
    stale = {c.name: c.after for c in changes if c.state is not State.FRESH}
    last = {LOCK: 3, PACKAGE: 1}

    def order(name: str) -> tuple[int, str]:
        return (2 if stale[name] is None else last.get(name, 0), name)

    return {name: stale[name] for name in sorted(stale, key=order)}


def _scan(folder: Folder) -> dict[str, Found]:
    files = folder.read(lambda name: name == LOCK or _MODULE.fullmatch(name))
    return {name: _found(name, data) for name, data in files.items()}


def _found(name: str, data: bytes | None) -> Found:
    if data is None:
        return Found(name)
    text = data.decode("utf-8", "surrogateescape")
    ours = None if name == LOCK else header.read(text)
    return Found(name, text if ours or name == LOCK else None, ours)
