"""Rules of decision lists, as tuning files have them."""

from collections.abc import Iterable, Iterator

from gemmgen.base.errors import Location, Mistakes, describe_value
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_values import check_keys, number, tile_of
from gemmgen.spec import shapes
from gemmgen.yaml.tree import UNKNOWN, Node

_SIZES = ("M", "N", "K")


def rules_text(rules: Iterable[Rule]) -> Iterator[str]:
    """The lines of a list of rules."""
    return (f"- {_rule_text(rule)}" for rule in rules)


def _rule_text(rule: Rule) -> str:
    limits = zip(_SIZES, rule.limits, strict=True)
    parts = [f"{size}: {int(most)}" for size, most in limits if most != ANY]
    waves = ["waves: full"] if rule.full else []
    return "{" + ", ".join([*parts, *waves, f"tile: {format_tile(rule.tile)}"]) + "}"


def read_rules(node: Node, mistakes: Mistakes) -> Iterator[tuple[Rule, Location]]:
    """The rules of a list, and where the file has their tiles."""
    if not isinstance(node.value, list) and node.value not in (None, UNKNOWN):
        mistakes.add(
            node.location, f"rules are a list, not {describe_value(node.value)}"
        )
    for item in node.items:
        if not check_keys(item, (*_SIZES, "waves", "tile"), mistakes):
            continue
        limits = [_limit(item.child(size), size, mistakes) for size in _SIZES]
        text = item.at("tile")
        tile = tile_of(text.value, text.location, mistakes)
        waves = item.child("waves")
        if waves is not None and waves.value != "full":
            said = f"waves must be full, not {describe_value(waves.value)}"
            mistakes.add(waves.location, said)
        if tile:
            rule = Rule((limits[0], limits[1], limits[2]), tile, waves is not None)
            yield rule, text.location


def _limit(node: Node | None, size: str, mistakes: Mistakes) -> float:
    if node is None:
        return ANY
    found = number(node)
    if isinstance(found, int) and 1 <= found <= shapes.LARGEST:
        return found
    if node.value is not UNKNOWN:
        said = f"{size} must be a whole number from 1 to {shapes.LARGEST}"
        mistakes.add(node.location, f"{said}, not {describe_value(node.value)}")
    return ANY
