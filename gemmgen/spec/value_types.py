"""Kinds of single values in a spec: what each accepts, and what to say otherwise.

The wording is made when an error is shown, not when it is found: a hostile file can
hold very many.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError, core_schema

from gemmgen.base.errors import describe_value, one_of, quoted, unknown

Schema = dict[str, Any]


class Kind:
    """What pydantic asks of an annotation; each kind below fills in three methods."""

    def accepts(self, value: object) -> bool:
        """Whether `value` is one of this kind."""
        raise NotImplementedError

    def wording(self, value: object) -> str:
        """Why `value` is not."""
        raise NotImplementedError

    def json_schema(self) -> Schema:
        """The same rule for editors."""
        raise NotImplementedError

    def check(self, value: Any) -> Any:
        """Return `value`, or raise an error that carries this kind."""
        if self.accepts(value):
            return value
        raise PydanticCustomError("kind", "wrong kind", {"kind": self})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Schema:
        return self.json_schema()


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few names; `unknown` words another where there is more to say.

    Messages list those of `shown`, if that is given.
    """

    noun: str
    allowed: tuple[str, ...]
    unknown: Callable[[str], str] | None = None
    shown: tuple[str, ...] = ()

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and value in self.allowed

    def wording(self, value: object) -> str:
        if isinstance(value, str):
            if self.unknown is not None:
                return self.unknown(value)
            return unknown(self.noun, value, self.allowed)
        said = f"{self.noun} must be a name, not {describe_value(value)}"
        return f"{said} {one_of(self.shown or self.allowed)}"

    def json_schema(self) -> Schema:
        return {"type": "string", "enum": list(self.allowed)}


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number between two bounds, perhaps a power of two or a multiple."""

    noun: str
    low: int
    high: int
    reason: str | None = None
    """Why it must be a power of two, if it must."""
    step: int = 1
    """What it must be a multiple of."""
    beside: tuple[int, ...] = ()
    """What it may be beside powers of two, where other rules allow that."""

    @property
    def powers(self) -> list[int]:
        """The powers of two between the bounds."""
        return [1 << e for e in range(64) if self.low <= 1 << e <= self.high]

    def accepts(self, value: object) -> bool:
        if type(value) is not int or not self.low <= value <= self.high:
            return False
        allowed = *self.powers, *self.beside
        return not value % self.step and (self.reason is None or value in allowed)

    def wording(self, value: object) -> str:
        if type(value) is not int:
            return f"{self.noun} must be a whole number, not {describe_value(value)}"
        if not self.low <= value <= self.high:
            return f"{self.noun}={value} is not between {self.low} and {self.high}"
        if self.step > 1:
            lower = value - value % self.step
            nearest = f"nearest: {lower}, {lower + self.step}"
            return f"{self.noun}={value} is not a multiple of {self.step}; {nearest}"
        lower = max(power for power in self.powers if power < value)
        return (
            f"{self.noun}={value} is not a power of two, {self.reason}; nearest: "
            f"{lower}, {2 * lower}"
        )

    def json_schema(self) -> Schema:
        if self.reason:
            return {"type": "integer", "enum": sorted([*self.powers, *self.beside])}
        multiple = {"multipleOf": self.step} if self.step > 1 else {}
        bounds = {"minimum": self.low, "maximum": self.high}
        return {"type": "integer", **bounds, **multiple}


@dataclass(frozen=True)
class Flag(Kind):
    """`true` or `false`; a `yes` is text in YAML 1.2."""

    noun: str

    def accepts(self, value: object) -> bool:
        return isinstance(value, bool)

    def wording(self, value: object) -> str:
        return f"{self.noun} must be true or false, not {describe_value(value)}"

    def json_schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Identifier(Kind):
    """A lower-case Python name, short enough for a file's stem."""

    noun: str

    PATTERN = "[a-z][a-z0-9_]{0,62}"

    def accepts(self, value: object) -> bool:
        return isinstance(value, str) and bool(re.fullmatch(self.PATTERN, value))

    def wording(self, value: object) -> str:
        shown = quoted(value) if isinstance(value, str) else describe_value(value)
        return f"{self.noun} {shown} must be {IDENTIFIER_RULE}"

    def json_schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{self.PATTERN}$"}


IDENTIFIER_RULE = (
    "a lower-case letter, then lower-case letters, digits or '_', at most 63 in all"
)


@dataclass(frozen=True)
class Exactly(Kind):
    """One value and no other; `rule` says so in words."""

    value: int | str
    rule: str

    def accepts(self, value: object) -> bool:
        return type(value) is type(self.value) and value == self.value

    def wording(self, value: object) -> str:
        return f"{self.rule}, not {describe_value(value)}"

    def json_schema(self) -> Schema:
        return {"const": self.value}


@dataclass(frozen=True)
class Several:
    """Annotates a list or map: how many entries it may have, and whether any twice."""

    noun: str
    least: int = 1
    most: int = 64
    repeats: bool = False

    def check(self, value: Any, validate: Callable[[Any], Any]) -> Any:
        """Validate the entries of `value` if there are neither too few nor too many."""
        size = len(value) if isinstance(value, list | dict) else self.least
        if size < self.least:
            raise self.wrong("is empty")
        if size > self.most:
            raise self.wrong(f"has {size} entries; at most {self.most} are allowed")
        entries = validate(value)
        if isinstance(entries, list) and not self.repeats:
            twice = _first_repeated(entries)
            if twice:
                raise self.wrong(f"lists {twice} twice")
        return entries

    def wrong(self, says: str) -> PydanticCustomError:
        """An error that says so."""
        return PydanticCustomError("wrong", "wrong", {"says": f"{self.noun} {says}"})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Any
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Schema:
        inner = handler(schema)
        if inner["type"] == "object":
            return {**inner, "minProperties": self.least, "maxProperties": self.most}
        bounds = {"minItems": self.least, "maxItems": self.most}
        return {**inner, **bounds, "uniqueItems": not self.repeats}


def _first_repeated(items: list[Any]) -> str | None:
    """The first item that equals one before it, as a message shows it."""
    seen: set[str] = set()
    for item in items:
        # repr tells 1 from true, and not every item can be hashed.
        if repr(item) in seen:
            return quoted(item) if isinstance(item, str) else "the same item"
        seen.add(repr(item))
    return None
