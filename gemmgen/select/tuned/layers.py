"""Layers of a user's that were timed: at some rows another tile than calls else take.

Tuning files have them apart from the rules and costs that serve all other sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmgen.base.errors import Location, Mistakes, describe_value
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_values import (
    check_keys,
    entries,
    number,
    positive,
    tile_of,
)
from gemmgen.spec.shapes import LARGEST, Layer, parse_layer
from gemmgen.yaml.tree import UNKNOWN, Node

_KEYS = ("from", "M", "tile", "at", "microseconds", "otherwise")


@dataclass(frozen=True)
class Pin:
    """The tile that serves a layer's calls of `least` to `most` rows.

    It was timed `at` so many of them: `seconds`, where the tile that calls else take
    needs `otherwise`. `place` is where a file has the tile.
    """

    least: int
    most: int
    tile: Tile
    at: int
    seconds: float
    otherwise: float
    place: Location | None = field(default=None, compare=False, repr=False)


Layers = Mapping[Layer, Sequence[Pin]]
"""All layers of a kernel that were timed, those without a pin too; rows ascend."""


def layers_text(layers: Layers) -> Iterator[str]:
    """The lines of a kernel in a tuning file."""
    for layer, pins in layers.items():
        yield f"      {layer}:"
        for pin in pins:
            told = {
                "from": pin.least,
                "M": pin.most,
                "tile": format_tile(pin.tile),
                "at": pin.at,
                "microseconds": f"{1e6 * pin.seconds:.2f}",
                "otherwise": f"{1e6 * pin.otherwise:.2f}",
            }
            pairs = (f"{key}: {value}" for key, value in told.items())
            yield f"        - {{{', '.join(pairs)}}}"


def read_layers(node: Node, mistakes: Mistakes) -> dict[Layer, tuple[Pin, ...]]:
    """A kernel's layers; what is wrong with them is noted."""
    found = {}
    for text, each in entries(node, "layers", mistakes):
        try:
            layer = parse_layer(text).layer
            if text != str(layer):
                raise ValueError(f"a layer here is N x K alone: {layer}")
        except ValueError as error:
            mistakes.add(node.keys[text], str(error))
            continue
        found[layer] = tuple(_pins(each, mistakes))
    return found


def _pins(node: Node, mistakes: Mistakes) -> Iterator[Pin]:
    if not isinstance(node.value, list) and node.value not in (None, UNKNOWN):
        said = f"a layer has a list of tiles, not {describe_value(node.value)}"
        mistakes.add(node.location, said)
    above = 0
    for item in node.items:
        if not check_keys(item, _KEYS, mistakes):
            continue
        least, most, at = (_rows(item, key, mistakes) for key in ("from", "M", "at"))
        seconds, otherwise = (
            1e-6 * positive(item.at(key), key, mistakes) for key in _KEYS[-2:]
        )
        text = item.at("tile")
        tile = tile_of(text.value, text.location, mistakes)
        if None in (least, most, at, tile):
            continue
        assert least and most and at and tile
        if not above < least <= at <= most:
            said = "from, at and M must ascend, from above the M of the tile before"
            mistakes.add(item.location, said)
        above = most
        yield Pin(least, most, tile, at, seconds, otherwise, text.location)


def _rows(node: Node, key: str, mistakes: Mistakes) -> int | None:
    child = node.at(key)
    found = number(child)
    if isinstance(found, int) and 1 <= found <= LARGEST:
        return found
    if child.value is not UNKNOWN:
        given = describe_value(child.value)
        said = f"{key} must be a whole number from 1 to {LARGEST}, not {given}"
        mistakes.add(child.location, said)
    return None
