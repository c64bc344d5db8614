"""YAML text → a tree of nodes that know their places, by the rules of YAML 1.2.

Refuses what a spec must not hold: anchors, aliases, tags, duplicate keys, control
characters. Knows nothing of what a spec means.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from gemmgen.base.errors import (
    Location,
    Mistakes,
    SpecError,
    SpecErrors,
    describe_value,
    quoted,
)
from gemmgen.base.files import contents
from gemmgen.yaml.tree import UNKNOWN, Node, Value, place_in

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
MAX_VALUES = 100_000
MAX_DIGITS = 40


def file_bytes(path: Path) -> bytes:
    """A file, of a larger one as much as `load` needs to refuse it; `OSError`."""
    return contents(path, MAX_BYTES)


def load(text: str | bytes, file: str, mistakes: Mistakes) -> Node:
    """The root of `text`; what it must not hold is added to `mistakes`.

    Raises `SpecErrors` where reading cannot go on.
    """
    source = _screened(_decoded(text, file), file, mistakes)
    composer = _Composer(source, file, mistakes)
    try:
        return composer.document()
    except yaml.MarkedYAMLError as error:
        location, message = composer.in_plain_words(error)
        mistakes.add(location, message)
        raise mistakes.errors() from None


def _decoded(text: str | bytes, file: str) -> str:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    start = Location(file, 1, 1)
    if len(data) > MAX_BYTES:
        message = f"file has more than {MAX_BYTES} bytes (1 MiB), which is the most"
        raise SpecErrors([SpecError(start, message)])
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SpecErrors([SpecError(start, "file is UTF-16; save it as UTF-8")])
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        message = f"file is not UTF-8: byte 0x{data[error.start]:02x}"
        place = place_in(before, len(before), file)
        raise SpecErrors([SpecError(place, message)]) from None


# Beside what YAML forbids: what YAML 1.1, but no editor, takes for a line's end, and
# what makes an editor show a line in another order than it is read.
_FORBIDDEN = re.compile(
    r"\r(?!\n)|[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    r"|[\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


def _screened(source: str, file: str, mistakes: Mistakes) -> str:
    for match in _FORBIDDEN.finditer(source):
        place = place_in(source, match.start(), file)
        mistakes.add(place, f"character {match[0]!a} is not allowed")
    mistakes.stop_if_any()
    return source


# Reads ten times as fast where libyaml is there, which all common wheels include.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Composer:
    """Makes nodes of the parser's events in one pass, counting depth as it goes."""

    def __init__(self, source: str, file: str, mistakes: Mistakes) -> None:
        self.source = source
        self.file = file
        self.mistakes = mistakes
        self.values = 0
        self.events: Iterator[Any] = yaml.parse(source, Loader=_Loader)

    def place(self, mark: Any) -> Location:
        return Location(self.file, mark.line + 1, mark.column + 1)

    def fail(self, location: Location, message: str) -> NoReturn:
        self.mistakes.add(location, message)
        raise self.mistakes.errors()

    def document(self) -> Node:
        root: Node | None = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                place = self.place(event.start_mark)
                if root:
                    self.fail(place, "a second document starts here; a file holds one")
                if event.version not in (None, (1, 2)) or event.tags:
                    self.mistakes.add(place, "directives are not allowed")
                root = self.value(next(self.events), 1)
        if root is None or root.value is None:
            self.fail(Location(self.file, 1, 1), "file is empty")
        return root

    def value(self, event: Any, depth: int) -> Node:
        """A node that is no key, counted."""
        self.values += 1
        if self.values > MAX_VALUES:
            place = self.place(event.start_mark)
            self.fail(place, f"file holds more than {MAX_VALUES} values")
        return self.node(event, depth)

    def node(self, event: Any, depth: int) -> Node:
        location = self.place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self.refuse(location, "aliases")
            return Node(UNKNOWN, location)
        if event.anchor is not None:
            self.refuse(location, "anchors")
        node = self.untagged(event, location, depth)
        if event.tag is None:
            return node
        self.mistakes.add(location, "tags are not allowed")
        return Node(UNKNOWN, location)

    def untagged(self, event: Any, location: Location, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, location)
        if depth > MAX_DEPTH:
            self.fail(location, f"lists and maps nest deeper than {MAX_DEPTH}")
        if isinstance(event, yaml.SequenceStartEvent):
            return Node([self.value(one, depth + 1) for one in self.items()], location)
        return self.map(location, depth)

    def refuse(self, location: Location, what: str) -> None:
        advice = "use 'defaults' or 'for_each' to say a thing once"
        self.mistakes.add(location, f"{what} are not allowed; {advice}")

    def items(self) -> Iterator[Any]:
        """The events up to the end of the list or map that has just begun."""
        for event in self.events:
            if isinstance(event, yaml.CollectionEndEvent):
                return
            yield event

    def map(self, location: Location, depth: int) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Location] = {}
        for event in self.items():
            key = self.node(event, depth + 1)
            value = self.value(next(self.events), depth + 1)
            name = key.value
            if not isinstance(name, str):
                if name is not UNKNOWN:
                    message = f"a key must be text, not {describe_value(name)}"
                    self.mistakes.add(key.location, message)
            elif name in keys:
                self.mistakes.add(
                    key.location,
                    f"duplicate key {quoted(name)}; the first is at {keys[name]}",
                )
            else:
                values[name], keys[name] = value, key.location
        return Node(values, location, keys)

    def scalar(self, event: Any, location: Location) -> Node:
        text: str = event.value
        forbidden = _FORBIDDEN.search(text)
        if forbidden:
            message = f"character {forbidden[0]!a} is not allowed"
            self.mistakes.add(location, message)
            return Node(UNKNOWN, location)
        # The first flag says: plain and without a tag.
        value = _resolved(text) if event.implicit[0] else text
        if value is UNKNOWN:
            self.mistakes.add(location, f"number has more than {MAX_DIGITS} characters")
        if not isinstance(value, str):
            return Node(value, location)
        written = self.source[event.start_mark.index : event.end_mark.index]
        return Node(value, location, written=written)

    def in_plain_words(self, error: yaml.MarkedYAMLError) -> tuple[Location, str]:
        """What a syntax error is about, and where."""
        mark: Any = error.problem_mark or error.context_mark
        problem, context = error.problem or "", error.context or ""
        # At the end of a file, the mark can be on a line that is not there.
        index = min(mark.index, len(self.source.rstrip()))
        place = place_in(self.source, index, self.file)
        character = self.source[index : index + 1]
        if "tab character" in problem or character == "\t":
            return place, "a tab cannot indent; use spaces"
        if "cannot start any token" in problem:
            text = f"a value cannot start with {quoted(character)}; put it in quotes"
            return place, text
        if "end of stream" in problem and "quoted" in context:
            return self.place(error.context_mark), "this quote is never closed"
        if "expected ','" in problem:
            wanted = "']' in the list" if "']'" in problem else "'}' in the map"
            opened = self.place(error.context_mark)
            return place, f"expected ',' or {wanted} that begins at {opened}"
        for fragment, words in _SYNTAX.items():
            if fragment in f"{problem} {context}":
                return place, words
        return place, f"this is not valid YAML: {problem}"


_SYNTAX = {
    "mapping values are not allowed": "unexpected ':'; check the indentation, and put "
    "a text that holds ': ' in quotes",
    "expected '-'": "expected '- ' as before the other items of this list; check the "
    "indentation",
    "expected key": "expected a key, such as 'name:'; check the indentation and quotes",
    "expected ':'": "expected ':' after this key",
    "expected node content": "expected a value",
    "escape": "unknown escape; in double quotes write \\\\ for a backslash",
    "directive": "directives are not allowed",
    "incompatible YAML": "directives are not allowed",
    "tag": "tags are not allowed",
    "anchor": "anchors are not allowed; put a text that starts with '&' in quotes",
    "alias": "aliases are not allowed; put a text that starts with '*' in quotes",
    "document start": "unexpected text after the end of the spec",
}
"""What libyaml says → plain words; the first fragment that occurs counts."""

_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
    **{sign + word: float(sign + "inf")
       for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


def _resolved(text: str) -> Value:
    """What a plain scalar means in the core schema of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    integer = _INTEGER.fullmatch(text)
    if not integer and not _FLOAT.fullmatch(text):
        return text
    if len(text) > MAX_DIGITS:
        return UNKNOWN
    if not integer:
        return float(text)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
