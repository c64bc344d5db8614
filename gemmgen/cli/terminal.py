"""How results are written: text, JSON or GitHub annotations; and progress.

Results go to stdout, errors and progress to stderr.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmgen.base.errors import SpecError
from gemmgen.output.changes import Refused, State

SCHEMA = 1
"""Number of the JSON output's form; it rises when a key changes its meaning."""


def emit_json(command: str, ok: bool, **values: Any) -> None:
    """One JSON object on stdout."""
    result = {"schema": SCHEMA, "command": command, "ok": ok, **values}
    print(json.dumps(result, indent=2))


def deliver(text: str) -> str | None:
    """Write to stdout, which may be closed or full; why that could not be, if so.

    A character that its encoding lacks is escaped. Nobody is told of a reader who has
    enough.
    """
    if sys.stdout is None:
        return "it is closed" if text else None
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        # Keep Python from trying again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reader_left = isinstance(error, BrokenPipeError)
        return None if reader_left else (error.strerror or str(error)).lower()
    return None


def complain(text: str) -> None:
    """A line on stderr, unless nobody could read it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)


def show_refused(refused: Refused) -> None:
    """What may not be overwritten, and how it differs; of foreign files, not that."""
    complain(f"gemmgen: {refused}")
    for change in refused.changes:
        if change.state is not State.FOREIGN:
            complain(_start(change.diff()))


def _start(diff: str, most: int = 40) -> str:
    """The first lines of a diff, and how to see the others."""
    lines = diff.splitlines()
    left = len(lines) - most
    more = [f"… {left} more lines: gemmgen build --diff shows all"] if left > 0 else []
    return "\n".join([*lines[:most], *more])


def emit_errors(command: str, errors: Sequence[SpecError], form: str) -> None:
    """Mistakes of a spec, in order."""
    if form == "json":
        rows = [
            {
                "file": error.location.file,
                "line": error.location.line,
                "column": error.location.column,
                "message": error.message,
            }
            for error in errors
        ]
        emit_json(command, False, errors=rows)
    for error in errors:
        if form == "github":
            place = error.location
            annotate(error.message, file=place.file, line=place.line, col=place.column)
        elif form == "text":
            complain(str(error))


def annotate(message: str, **properties: object) -> None:
    """A GitHub workflow annotation: `::error file=…,line=…::message`."""
    fields = ",".join(
        f"{key}={_escaped(str(value), '%,:')}" for key, value in properties.items()
    )
    print(f"::error {fields}::{_escaped(message, '%')}")


def _escaped(text: str, special: str) -> str:
    """Text as a workflow command holds it: percent signs first, then the rest."""
    for character in (*special, "\r", "\n"):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


@dataclass(frozen=True)
class Bar:
    """Progress of work of some title, shown by `update`."""

    title: str
    update: Callable[..., object]

    def __call__(self, name: str) -> None:
        """Another piece of this name is done."""
        self.update(advance=1, description=f"{self.title} {name}")

    def expect(self, pieces: int) -> None:
        """There will be so many."""
        self.update(total=pieces)


@contextlib.contextmanager
def progress(title: str) -> Iterator[Bar]:
    """A bar on stderr while work goes on, if that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield Bar(title, lambda **_: None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield Bar(title, partial(bar.update, task))
