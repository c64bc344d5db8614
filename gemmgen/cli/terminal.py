"""How results are written: text, JSON or GitHub annotations; and progress.

Results go to stdout, errors and progress to stderr.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
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


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[str], None]]:
    """A bar on stderr while work goes on, if that is a terminal; gives `advance`."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(name: str) -> None:
            bar.update(task, advance=1, description=f"{title} {name}")

        yield advance
