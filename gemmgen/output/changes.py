"""What a build finds of a file, or does to it, and how that is told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from enum import Enum
from itertools import groupby
from pathlib import Path

from gemmgen.base.errors import UsageError
from gemmgen.base.files import shown


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

    def __init__(
        self, path: Path, changes: Sequence[Change], places: Sequence[Change]
    ) -> None:
        self.changes = tuple(changes)
        super().__init__(
            "\n".join(f"{shown(path / c.name)}: {c.reason}" for c in places)
        )


def by_place(changes: Iterable[Change]) -> list[Change]:
    """What to say of changes: one of a folder whose files are all in the same state.

    Those of folders in it are among them.
    """
    told: list[Change] = []
    for folder, group in groupby(changes, _outermost):
        files = list(group)
        states = {(file.state, file.reason) for file in files}
        alike = len(states) == 1 < len(files) and files[0].state is not State.FOREIGN
        if folder and alike:
            told.append(Change(folder, files[0].state, reason=files[0].reason))
        else:
            told += files
    return told


def _outermost(change: Change) -> str:
    """The folder that a file lies in, however deep; empty for none."""
    return change.name.rpartition("/")[0].partition("/")[0]


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
