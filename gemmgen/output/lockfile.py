"""`gemmgen.lock.json`: which generator made which file, for people and a shortcut.

It must not be trusted for more than skipping a render that would change nothing:
a lock that is missing, corrupt or in conflict only costs time.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from gemmgen.base import header
from gemmgen.base.header import Header
from gemmgen.base.version import VERSION, black_style
from gemmgen.output.folder import LOCK, Contents, Found
from gemmgen.render.names.parts import home, is_launcher, is_layer


@dataclass(frozen=True)
class Fact:
    """What a file's header says; `source` None: the file serves the whole folder."""

    file: str
    source: str | None
    entry: str
    body: str


@dataclass(frozen=True)
class Lock:
    """Each file's fact, with the digest of the generator that made it ("": unknown)."""

    gemmgen: str
    black: str
    generator: str
    files: Mapping[Fact, str]

    def exported(self) -> tuple[list[str], list[str]]:
        """The kernels whose launchers are there, and those with modules, sorted."""
        own = [file.file for file in self.files if file.source is not None]
        launchers = {home(name) for name in filter(is_launcher, own)}
        return sorted(launchers), sorted({home(name) for name in filter(is_layer, own)})


def fact(file: str, header: Header) -> Fact:
    """The row of a file with this header."""
    return Fact(file, header.source, header.entry, header.body)


def made(
    texts: Mapping[str, str], others: Contents, old: Lock | None, generator: str
) -> Lock:
    """The lock of a folder where `generator` made `texts` and left `others` alone."""
    files = {
        fact(file.name, file.header): ""
        for file in others.values()
        if file.header is not None
    }
    if old is not None:
        files |= {row: by for row, by in old.files.items() if row in files}
    for name, content in texts.items():
        ours = header.read(content)
        if ours is None:
            raise ValueError(f"{name} was rendered without a header")
        files[fact(name, ours)] = generator
    return Lock(VERSION, black_style(), generator, files)


def text(lock: Lock) -> str:
    """The lock as JSON, a row a line, sorted: merges and diffs stay readable.

    A row names its generator only where it is not the lock's: a file of another
    spec, which nobody has built since.
    """
    top = {"gemmgen": lock.gemmgen, "black": lock.black, "generator": lock.generator}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in top.items()]
    rows = sorted(lock.files, key=lambda row: row.file)
    shown = ",\n".join(f"    {_row(row, lock)}" for row in rows)
    files = f"[\n{shown}\n  ]" if rows else "[]"
    return "\n".join(["{", *lines, f'  "files": {files}', "}"]) + "\n"


def read(found: Contents) -> Lock | None:
    """The lock that lies in a folder, None when there is none or it is corrupt."""
    file = found.get(LOCK, Found(LOCK))
    try:
        return _parsed(json.loads(file.text or ""))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def vouched(found: Contents, generator: str) -> dict[str, Found]:
    """The files that this generator made and that nobody touched since."""
    lock = read(found)
    if lock is None:
        return {}
    return {
        name: file
        for name, file in found.items()
        if file.header is not None
        and file.header.intact
        and lock.files.get(fact(name, file.header)) == generator
    }


def _row(row: Fact, lock: Lock) -> str:
    made = lock.files[row]
    extra = {} if made == lock.generator else {"generator": made}
    return json.dumps({**asdict(row), **extra})


def _parsed(data: Mapping[str, object]) -> Lock:
    top = {key: _string(data[key]) for key in ("gemmgen", "black", "generator")}
    rows = data["files"]
    if not isinstance(rows, list):
        raise TypeError
    return Lock(**top, files=dict(_facts(rows, top["generator"])))


def _facts(
    rows: Iterable[Mapping[str, object]], generator: str
) -> Iterable[tuple[Fact, str]]:
    for row in rows:
        source = None if row["source"] is None else _string(row["source"])
        file, entry, body = (_string(row[key]) for key in ("file", "entry", "body"))
        made = _string(row.get("generator", generator))
        yield Fact(file, source, entry, body), made


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
