"""A tree of values that know where in a file they stand.

Plain data; says nothing of how a file is read or what its values mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from gemmgen.base.errors import Location


def place_in(text: str, index: int, file: str) -> Location:
    """The line and column of `text[index]`, counted from 1."""
    line = text.count("\n", 0, index) + 1
    return Location(file, line, index - text.rfind("\n", 0, index))


class Unknown(Enum):
    """The value of a node that was refused, so that nobody complains of it again."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN

Value: TypeAlias = (
    "str | int | float | bool | list[Node] | dict[str, Node] | Unknown | None"
)


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it stands; `keys` places the keys of a map.

    `written` is a text's own spelling in the file, quotes or `|` included.
    """

    value: Value
    location: Location
    keys: Mapping[str, Location] = field(default_factory=dict, repr=False)
    written: str = field(default="", repr=False)

    def plain(self) -> Any:
        """The value with no nodes in it."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def child(self, part: str | int) -> "Node | None":
        """The value of a key or the item at an index, if there is one."""
        if isinstance(self.value, dict) and isinstance(part, str):
            return self.value.get(part)
        if isinstance(self.value, list) and isinstance(part, int):
            return self.value[part] if part < len(self.value) else None
        return None

    def at(self, key: str) -> "Node":
        """The value of a key; a node of nothing, here, if there is none."""
        return self.child(key) or Node(None, self.location)

    @property
    def entries(self) -> "dict[str, Node]":
        """The values of a map by key; nothing of another value."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> "list[Node]":
        """The items of a list; nothing of another value."""
        return self.value if isinstance(self.value, list) else []

    def inside(self, offset: int) -> Location:
        """The place of a character of a text, or of its start where escapes hide it.

        White space may be folded or cut; all other characters keep their order.
        """
        text = self.value if isinstance(self.value, str) else ""
        solid = [i for i in range(self._start(), len(self.written))
                 if not self.written[i].isspace()]  # fmt: skip
        letters = "".join(text.split())
        if not letters or letters != "".join(
            self.written[i] for i in solid[: len(letters)]
        ):
            return self.location
        rank = len("".join(text[:offset].split()))
        if rank and not text[offset : offset + 1].strip():
            return self._place(solid[rank - 1] + 1)
        return self._place(solid[min(rank, len(letters) - 1)])

    def _start(self) -> int:
        """Where the text begins in `written`: after a quote or the line of a `|`."""
        if self.written.startswith(("|", ">")):
            return self.written.find("\n") + 1
        return 1 if self.written.startswith(("'", '"')) else 0

    def _place(self, index: int) -> Location:
        at = place_in(self.written, index, self.location.file)
        start = self.location
        column = at.column + (start.column - 1 if at.line == 1 else 0)
        return Location(start.file, start.line + at.line - 1, column)
