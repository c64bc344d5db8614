"""Located errors and the wordings that every module shares.

A `SpecError` is the user's to mend and never a traceback; anything else that
escapes is a fault of gemmgen itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any


@dataclass(frozen=True, order=True)
class Location:
    """A place in a spec file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SpecError(Exception):
    """One mistake in a spec: where it is, and a message of one line."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(location, message)
        self.location = location
        self.message = message

    def __str__(self) -> str:
        return f"{self.location}: {self.message}"


class SpecErrors(Exception):
    """All mistakes found in the specs, in order of position, each once."""

    def __init__(self, errors: Iterable[SpecError]) -> None:
        unique = {(e.location, e.message): e for e in errors}
        self.errors = tuple(unique[key] for key in sorted(unique))
        super().__init__(self.errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class Mistakes:
    """Collects mistakes, each once, so that all of a spec are reported together."""

    MOST = 100

    def __init__(self) -> None:
        self._found: dict[tuple[Location, str], SpecError] = {}

    def add(self, location: Location, message: str) -> None:
        """Note a mistake; give up with a `SpecErrors` when there are very many."""
        self._found.setdefault((location, message), SpecError(location, message))
        if len(self._found) >= self.MOST:
            text = f"too many mistakes; stopped looking after {self.MOST}"
            raise SpecErrors([*self._found.values(), SpecError(location, text)])

    def include(self, others: Iterable[SpecError]) -> None:
        """Note what was found elsewhere."""
        for one in others:
            self.add(one.location, one.message)

    def errors(self) -> SpecErrors:
        """Everything found so far, to be raised."""
        return SpecErrors(self._found.values())

    def stop_if_any(self) -> None:
        """Raise what was found so far, if anything was."""
        if self._found:
            raise self.errors()


class UsageError(Exception):
    """A command that cannot be carried out as given (exit code 2)."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a long run; `result` holds what was found until then."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class EnvironmentMissing(Exception):
    """Something the machine lacks: torch, triton, a GPU (exit code 3)."""


def quoted(text: str, limit: int = 60) -> str:
    """`text` in quotes on one line, every odd character escaped, cut at `limit`."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return ascii(shown).replace("\\u2026", "…")


def describe_value(value: object) -> str:
    """`text 'NN'`, `number 3`, `a list`: a value as its author sees it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"number {value}"
        case str():
            return f"text {quoted(value)}"
        case list() | tuple():
            return "a list"
    return "a map"


def one_of(allowed: Iterable[str]) -> str:
    """The list of what is allowed: `(one of: a, b)`."""
    return f"(one of: {', '.join(allowed)})"


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the closest match in any case, or nothing."""
    by_lower_case = {one.lower(): one for one in allowed}
    matches = get_close_matches(name[:100].lower(), by_lower_case, n=1)
    return f"; did you mean '{by_lower_case[matches[0]]}'?" if matches else ""


def unknown(kind: str, name: str, allowed: Iterable[str]) -> str:
    """`unknown dtype 'bf61'; did you mean 'bf16'? (one of: bf16, fp16)`."""
    allowed = list(allowed)
    return f"unknown {kind} {quoted(name)}{nearest(name, allowed)} {one_of(allowed)}"


def not_built(what: str) -> str:
    """The wording for a part of the language that this version does not build."""
    return f"{what} is not built yet"
