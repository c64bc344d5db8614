"""The output folder: what state each generated file is in, and how it is replaced.

It must not render anything, nor touch a file that gemmgen did not write.
"""

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import Enum
from pathlib import Path

from gemmgen.base import header
from gemmgen.base.errors import UsageError, quoted
from gemmgen.base.files import shown, terminable
from gemmgen.base.header import Header
from gemmgen.base.tree import Folder, pinned

PACKAGE = "__init__.py"
RUNTIME = "_runtime"
"""The folder of what all launchers share."""
SHARED = (
    "_runtime/__init__.py",
    "_runtime/package.py",
    "_runtime/support.py",
    "_runtime/table.py",
    "_runtime/checks.py",
    "_runtime/launch.py",
    "_runtime/packed.py",
    "_runtime/repeats.py",
    "_runtime/replay.py",
    "_runtime/families.py",
    "_runtime/remember.py",
)
"""The files in it, each using those before it."""
LOCK = "gemmgen.lock.json"

_MODULE = re.compile(r"(?:[a-z_][a-z0-9_]*/)?[a-z_][a-z0-9_]*\.py")


class State(Enum):
    """How a file stands to the text it should have."""

    FRESH = "fresh"
    MISSING = "missing"
    OUTDATED = "outdated"  # ours and untouched: rewritten or, if gone, removed
    LEFTOVER = "left over"
    EDITED = "hand-edited"  # these three are refused, the first two unless forced
    TAKEN = "from another spec"
    FOREIGN = "foreign"
    ABANDONED = "without a spec"  # a check reports it, a build leaves it


@dataclass(frozen=True)
class Found:
    """A file that lies in the folder; no `text`: it is not gemmgen's to read."""

    name: str
    text: str | None = None
    header: Header | None = None

    @property
    def kernel(self) -> str | None:
        """The kernel that the file holds, None for any other file."""
        ours = self.header
        if ours is None or ours.source is None or ours.name != _stem(self.name):
            return None
        return ours.name


Contents = Mapping[str, Found]


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


@dataclass(frozen=True)
class Change:
    """A file, its state, and its text before and after (None: no file)."""

    name: str
    state: State
    before: str | None = field(default=None, repr=False)
    after: str | None = field(default=None, repr=False)
    reason: str = ""

    def diff(self) -> str:
        """A unified diff from the file on disk to the wanted text, safe to print."""
        lines = unified_diff(
            _lines(self.before),
            _lines(self.after),
            f"{self.name} (on disk)",
            f"{self.name} (from the spec)",
            lineterm="",
        )
        return "".join(f"{line}\n" for line in lines)


class Refused(UsageError):
    """Files are in the way that a build may not overwrite: one line each."""

    def __init__(self, path: Path, changes: Sequence[Change]) -> None:
        self.changes = tuple(changes)
        super().__init__(
            "\n".join(f"{shown(path / c.name)}: {c.reason}" for c in changes)
        )


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
            raise Refused(path, refused)
        with terminable():
            folder.sweep()
            steps = _steps(changes)
            if steps:
                folder.apply(steps)
    return changes


_REFUSED = {State.EDITED, State.TAKEN, State.FOREIGN}


def compare(found: Contents, wanted: Wanted) -> list[Change]:
    """The state of each wanted file and of each file left over, sorted by name."""
    others = {
        name: file
        for name, file in found.items()
        if file.kernel and name not in wanted.files and not _of(file, wanted.sources)
    }
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
    return sorted(changes + gone, key=lambda change: change.name)


def _lines(text: str | None) -> list[str]:
    """Lines for a terminal: a hand-edited file may hold any character."""
    if not text:
        return []
    whole = text.endswith("\n")
    lines = text.removesuffix("\n").split("\n")
    plain = [
        "".join(c if _shows(c) else ascii(c)[1:-1] for c in line) for line in lines
    ]
    return plain if whole else [*plain, "\\ no newline at end of file"]


def _shows(character: str) -> bool:
    return character.isprintable() or character == "\t"


def _of(file: Found, sources: Set[str]) -> bool:
    """Whether a build of `sources` answers for this file."""
    if file.header is None:
        return False
    if file.header.name not in (None, _stem(file.name)):
        return False  # a copy that somebody made of a generated file
    return file.header.source is None or file.header.source in sources


def _stem(name: str) -> str:
    """What the header of a file of this name calls it."""
    return name.removesuffix(".py")


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
    if ours is None or ours.name not in (None, _stem(file.name)):
        return State.FOREIGN, "gemmgen did not write this file; move it away"
    others = ours.source is not None and ours.source not in wanted.sources
    if others and wanted.lives(_source(file)):
        other = quoted(_source(file))
        return State.TAKEN, f"comes from {other}; rename a kernel, or --force takes it"
    if not ours.intact:
        return State.EDITED, "edited by hand; --force overwrites it"
    return State.OUTDATED, ""


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
