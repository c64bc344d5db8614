"""Values of tuning files: maps, numbers and tiles, with what is wrong with them."""

from collections.abc import Collection, Iterator

from gemmgen.base.errors import Location, Mistakes, describe_value, unknown
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.yaml.tree import UNKNOWN, Node, Value


def tile_of(text: Value, place: Location, mistakes: Mistakes) -> Tile | None:
    """The tile that a text says."""
    if not isinstance(text, str):
        if text is not UNKNOWN:
            mistakes.add(place, f"a tile must be a text, not {describe_value(text)}")
        return None
    try:
        return parse_tile(text)
    except ValueError as error:
        mistakes.add(place, str(error))
        return None


def positive(node: Node, name: str, mistakes: Mistakes) -> float:
    """The number above zero that a node holds."""
    try:
        value = float(str(node.plain()))
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        mistakes.add(node.location, f"{name} must be a number above zero")
    return value


def number(node: Node) -> float | None:
    """The number that a node holds; Python counts True as one."""
    value = node.value
    return (
        value
        if isinstance(value, int | float) and not isinstance(value, bool)
        else None
    )


def entries(node: Node, what: str, mistakes: Mistakes) -> Iterator[tuple[str, Node]]:
    """The entries of a map; nothing at all is an empty one."""
    if not isinstance(node.value, dict) and node.value not in (None, UNKNOWN):
        mistakes.add(
            node.location, f"{what} must be a map, not {describe_value(node.value)}"
        )
    yield from node.entries.items()


def check_keys(node: Node, allowed: Collection[str], mistakes: Mistakes) -> bool:
    """Whether it is a map; note it where it is none, and keys that say nothing."""
    if not isinstance(node.value, dict):
        if node.value is not UNKNOWN:
            said = f"expected a map with {', '.join(allowed)}"
            mistakes.add(node.location, f"{said}, not {describe_value(node.value)}")
        return False
    for key in node.entries:
        if key not in allowed:
            mistakes.add(node.keys[key], unknown("key", key, allowed))
    return True
