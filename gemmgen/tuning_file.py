"""Tuning files: what was measured on a GPU, and the table that follows from it.

`gemmgen tune` writes `tuning/<gpu>.yaml` beside a spec, `build` reads all of them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gemmgen import shapes
from gemmgen.decision import ANY, Rule
from gemmgen.disk import blamed
from gemmgen.errors import Mistakes, described, one_of, quoted
from gemmgen.model import Tile
from gemmgen.nodes import Node
from gemmgen.shapes import Shape
from gemmgen.targets import TARGETS, Rates
from gemmgen.tile_text import parsed, spelled
from gemmgen.yaml_source import load

FOLDER = "tuning"
_VERSION = 1
_KEYS = ("gemmgen-tuning", "gpu", "target", "made", "rates", "kernels")
_SIZES = ("M", "N", "K")
Times = Mapping[Shape, Mapping[Tile, float]]
"""Seconds by shape and tile."""


@dataclass(frozen=True)
class Measured:
    """One kernel on one GPU: the table, and the times it comes from, in seconds.

    `unaligned` are the rules among schedules that take any row, for tensors that no
    descriptor can describe.
    """

    rules: tuple[Rule, ...]
    unaligned: tuple[Rule, ...]
    times: Times


@dataclass(frozen=True)
class Tuning:
    """A tuning file: the GPU, its target, what made it, and its kernels.

    `rates` are the model's constants for this GPU, where they were calibrated.
    """

    gpu: str
    target: str
    made: Mapping[str, str]
    kernels: Mapping[str, Measured]
    rates: Rates | None = None

    @property
    def file_name(self) -> str:
        """`nvidia_h200.yaml`."""
        return "_".join(self.gpu.lower().replace("-", " ").split()) + ".yaml"

    def as_text(self) -> str:
        """The file."""
        lines = [
            "# Written by `gemmgen tune`; `gemmgen build` reads the rules.",
            f"gemmgen-tuning: {_VERSION}",
            f"gpu: {self.gpu}",
            f"target: {self.target}",
            "made:",
            *(f"  {key}: '{value}'" for key, value in self.made.items()),
        ]
        if self.rates:
            rates = asdict(self.rates).items()
            lines += ["rates:", *(f"  {key}: {value:.3g}" for key, value in rates)]
        lines.append("kernels:")
        for name, measured in self.kernels.items():
            lines.append(f"  {name}:")
            for key, rules in (
                ("rules", measured.rules),
                ("unaligned", measured.unaligned),
            ):
                lines.append(f"    {key}:")
                lines += [f"      - {_rule_text(rule)}" for rule in rules]
            lines.append("    microseconds:")
            for shape, times in measured.times.items():
                ordered = sorted(times.items(), key=lambda pair: pair[1])
                lines.append(f"      {shape}:")
                lines += [
                    f"        {spelled(tile)}: {1e6 * time:.2f}"
                    for tile, time in ordered
                ]
        return "\n".join(lines) + "\n"


def _rule_text(rule: Rule) -> str:
    limits = zip(_SIZES, rule.limits, strict=True)
    parts = [f"{size}: {int(most)}" for size, most in limits if most != ANY]
    return "{" + ", ".join([*parts, f"tile: {spelled(rule.tile)}"]) + "}"


def beside(spec: Path) -> list[Path]:
    """The tuning files of a spec, in order of their names."""
    return sorted((spec.parent / FOLDER).glob("*.yaml"))


def read(path: Path) -> Tuning:
    """A tuning file; raises `SpecErrors` with every mistake in it."""
    mistakes = Mistakes()
    with blamed("read", path):
        root = load(path.read_bytes(), str(path), mistakes)
    for key, place in root.keys.items():
        if key not in _KEYS:
            mistakes.add(place, f"unknown key {quoted(key)}")
    version = root.child("gemmgen-tuning")
    if version is None or version.value != _VERSION:
        mistakes.add(root.location, f"gemmgen-tuning must be {_VERSION}")
    target = root.child("target")
    if target is None or target.value not in TARGETS:
        place = target.location if target else root.location
        mistakes.add(place, "target is no architecture " + one_of(TARGETS))
    kernels = {
        name: Measured(
            tuple(_rules(node.at("rules"), mistakes)),
            tuple(_rules(node.at("unaligned"), mistakes)),
            {
                shape: dict(_times(each, mistakes))
                for shape, each in _shapes(node.at("microseconds"), mistakes)
            },
        )
        for name, node in root.at("kernels").entries.items()
    }
    rates = _rates(root.at("rates"), mistakes)
    mistakes.stop_if_any()
    made = root.at("made").plain() or {}
    gpu = root.at("gpu").plain()
    name = str(target.value if target else "")
    return Tuning(str(gpu), name, made, kernels, rates)


def _rates(node: Node, mistakes: Mistakes) -> Rates | None:
    """The constants, if there are any: all of them, each a number above zero."""
    names = [field.name for field in fields(Rates)]
    values = {}
    for key, place in node.keys.items():
        try:
            values[key] = float(str(node.at(key).plain()))
        except ValueError:
            values[key] = 0.0
        if key not in names:
            mistakes.add(place, f"unknown key {quoted(key)}" + one_of(names))
        elif not 0 < values[key] < ANY:
            mistakes.add(node.at(key).location, f"{key} must be a number above zero")
    missing = [name for name in names if node.keys and name not in node.keys]
    if missing:
        mistakes.add(node.location, "rates lack " + ", ".join(missing))
    known = bool(values) and not missing and set(values) == set(names)
    return Rates(**values) if known else None


def _rules(node: Node, mistakes: Mistakes) -> Iterator[Rule]:
    for item in node.items:
        tile = item.at("tile")
        limits: list[float] = []
        for size in _SIZES:
            value = item.at(size).plain()
            limits.append(ANY if value is None else value)
            if value is not None and type(value) is not int:
                said = f"{size} must be a whole number, not {described(value)}"
                mistakes.add(item.at(size).location, said)
        found = _tile(str(tile.plain()), tile, mistakes)
        if found:
            yield Rule((limits[0], limits[1], limits[2]), found)


def _tile(text: str, node: Node, mistakes: Mistakes) -> Tile | None:
    try:
        return parsed(text)
    except ValueError as error:
        mistakes.add(node.location, str(error))
        return None


def _shapes(node: Node, mistakes: Mistakes) -> Iterator[tuple[Shape, Node]]:
    for text, each in node.entries.items():
        try:
            yield shapes.parse(text), each
        except ValueError as error:
            mistakes.add(node.keys[text], str(error))


def _times(node: Node, mistakes: Mistakes) -> Iterator[tuple[Tile, float]]:
    for text, each in node.entries.items():
        tile = _tile(text, each, mistakes)
        try:
            time = float(str(each.plain())) * 1e-6
        except ValueError:
            mistakes.add(each.location, f"{quoted(str(each.plain()))} is no time")
            continue
        if tile:
            yield tile, time
