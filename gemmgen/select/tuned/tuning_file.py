"""Tuning files: what was measured on a GPU, and the table that follows from it.

`gemmgen tune` writes `tuning/<gpu>.yaml` beside a spec, `build` reads all of them.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from gemmgen.base.errors import (
    Location,
    Mistakes,
    SpecError,
    SpecErrors,
    describe_value,
    one_of,
)
from gemmgen.base.files import blamed
from gemmgen.base.version import tuning_root
from gemmgen.hardware.gpus import target_named
from gemmgen.hardware.targets import TARGETS, Rates
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.costs import Costs, costs_text, read_costs
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.layers import Layers, layers_text, read_layers
from gemmgen.select.tuned.rules_text import read_rules, rules_text
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_values import (
    check_keys,
    entries,
    number,
    positive,
    tile_of,
)
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape
from gemmgen.yaml.reader import file_bytes, load
from gemmgen.yaml.tree import UNKNOWN, Node

FOLDER = "tuning"
_VERSION = 1
_KEYS = ("gemmgen-tuning", "gpu", "target", "made", "rates", "costs", "kernels")
_MEASURED = ("rules", "unaligned", "layers", "microseconds")
Times = Mapping[Shape, Mapping[Tile, float]]
"""Seconds by shape and tile."""


@dataclass(frozen=True)
class Measured:
    """One kernel on one GPU: the table, and the times it comes from, in seconds.

    `unaligned` are the rules among schedules that take any row, for tensors that no
    descriptor can describe; `layers` are what calls of these N and K take before that.
    `places` say where a file has the rules and those.
    """

    rules: tuple[Rule, ...]
    unaligned: tuple[Rule, ...]
    times: Times
    layers: Layers = field(default_factory=dict)
    places: tuple[Location, ...] = field(default=(), compare=False, repr=False)

    @property
    def placed(self) -> Iterator[tuple[Tile, Location]]:
        """The tiles that calls may take, and where a file has them."""
        for rule, place in zip(
            (*self.rules, *self.unaligned), self.places, strict=False
        ):
            yield rule.tile, place
        for pin in (pin for pins in self.layers.values() for pin in pins):
            if pin.place:
                yield pin.tile, pin.place

    @property
    def spread(self) -> Times:
        """The times of other shapes than layers': rules and costs are made of these."""
        return {
            shape: times
            for shape, times in self.times.items()
            if shape.layer not in self.layers
        }


@dataclass(frozen=True)
class Tuning:
    """A tuning file: the GPU, its target, what made it, and its kernels.

    `rates` are the model's constants for this GPU, where they were calibrated, `costs`
    those of tiles, by kind of product, where they were fitted.
    """

    gpu: str
    target: str
    made: Mapping[str, str]
    kernels: Mapping[str, Measured]
    rates: Rates | None = None
    costs: Mapping[str, Costs] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """`nvidia_h200.yaml`."""
        return "_".join(re.findall("[a-z0-9]+", self.gpu.lower())) + ".yaml"

    def as_text(self) -> str:
        """The file."""
        lines = [
            "# Written by `gemmgen tune`; `gemmgen build` reads the rules.",
            f"gemmgen-tuning: {_VERSION}",
            f"gpu: {_text(self.gpu)}",
            f"target: {self.target}",
            "made:",
            *(f"  {key}: {_text(value)}" for key, value in self.made.items()),
        ]
        if self.rates:
            rates = asdict(self.rates).items()
            lines += ["rates:", *(f"  {key}: {value:.3g}" for key, value in rates)]
        if self.costs:
            lines += ["costs:", *costs_text(self.costs)]
        lines.append("kernels:")
        for name, measured in self.kernels.items():
            lines.append(f"  {name}:")
            for key, rules in (
                ("rules", measured.rules),
                ("unaligned", measured.unaligned),
            ):
                lines.append(f"    {key}:")
                lines += [f"      {line}" for line in rules_text(rules)]
            if measured.layers:
                lines += ["    layers:", *layers_text(measured.layers)]
            lines.append("    microseconds:")
            for shape, times in measured.times.items():
                ordered = sorted(times.items(), key=lambda pair: pair[1])
                lines.append(f"      {shape}:")
                lines += [
                    f"        {format_tile(tile)}: {1e6 * time:.2f}"
                    for tile, time in ordered
                ]
        return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A text in quotes, as YAML has them."""
    return "'" + value.replace("'", "''") + "'"


def beside(spec: Path) -> list[Path]:
    """The tuning files of a spec, in order of their names."""
    return sorted((spec.parent / FOLDER).glob("*.yaml"))


def tunings_for(spec: Path) -> tuple[list[Tuning], list[SpecError]]:
    """What was measured of GPUs: gemmgen's own files, then those beside a spec.

    The last that says something holds. With what is wrong with those beside the spec.
    """
    found, wrong = list(built_in()), list[SpecError]()
    for path in beside(spec):
        try:
            found.append(read(path))
        except SpecErrors as errors:
            wrong += errors.errors
    return found, wrong


@functools.cache
def built_in() -> tuple[Tuning, ...]:
    """What gemmgen's own files have for any spec: the costs of tiles."""
    files = sorted(tuning_root().glob("*.yaml"))
    return tuple(replace(read(path), rates=None, kernels={}) for path in files)


def read(path: Path) -> Tuning:
    """A tuning file; raises `SpecErrors` with every mistake in it."""
    mistakes = Mistakes()
    with blamed("read", path):
        root = load(file_bytes(path), str(path), mistakes)
    check_keys(root, _KEYS, mistakes)
    version = root.child("gemmgen-tuning")
    if version is None or number(version) != _VERSION:
        mistakes.add(root.location, f"gemmgen-tuning must be {_VERSION}")
    target = root.child("target")
    named = target_named(str(target and target.value))
    if named is None:
        place = target.location if target else root.location
        mistakes.add(place, "target is no architecture " + one_of(TARGETS))
    kernels = {
        name: _measured(node, mistakes)
        for name, node in entries(root.at("kernels"), "kernels", mistakes)
        if check_keys(node, _MEASURED, mistakes)
    }
    made = {
        key: str(node.plain())
        for key, node in entries(root.at("made"), "made", mistakes)
    }
    gpu = root.child("gpu")
    if gpu is None or not isinstance(gpu.value, str) or not gpu.value.isprintable():
        place = gpu.location if gpu else root.location
        mistakes.add(place, "gpu must be a text of one line")
    rates = _rates(root.at("rates"), mistakes)
    costs = read_costs(root.at("costs"), mistakes)
    mistakes.stop_if_any()
    return Tuning(str(gpu and gpu.value), named or "", made, kernels, rates, costs)


def _measured(node: Node, mistakes: Mistakes) -> Measured:
    """One kernel's entry."""
    rules = list(read_rules(node.at("rules"), mistakes))
    unaligned = list(read_rules(node.at("unaligned"), mistakes))
    return Measured(
        tuple(rule for rule, _ in rules),
        tuple(rule for rule, _ in unaligned),
        {
            shape: dict(_times(each, mistakes))
            for shape, each in _shapes(node.at("microseconds"), mistakes)
        },
        read_layers(node.at("layers"), mistakes),
        tuple(place for _, place in (*rules, *unaligned)),
    )


def kernel_places(path: Path) -> dict[str, Location]:
    """The kernels that a file is about, and where it names them."""
    return dict(load(file_bytes(path), str(path), Mistakes()).at("kernels").keys)


def _rates(node: Node, mistakes: Mistakes) -> Rates | None:
    """The constants, if there are any: all of them, each a number above zero."""
    names = [one.name for one in fields(Rates)]
    if node.value is None or not check_keys(node, names, mistakes):
        return None
    return Rates(**{name: positive(node.at(name), name, mistakes) for name in names})


def _shapes(node: Node, mistakes: Mistakes) -> Iterator[tuple[Shape, Node]]:
    for text, each in entries(node, "microseconds", mistakes):
        try:
            yield shapes.parse(text), each
        except ValueError as error:
            mistakes.add(node.keys[text], str(error))


def _times(node: Node, mistakes: Mistakes) -> Iterator[tuple[Tile, float]]:
    for text, each in entries(node, "times", mistakes):
        tile, time = tile_of(text, node.keys[text], mistakes), number(each)
        if time is None or not 0 < time < ANY:
            if each.value is not UNKNOWN:
                said = (
                    f"a time must be a number above 0, not {describe_value(each.value)}"
                )
                mistakes.add(each.location, said)
        elif tile:
            yield tile, time * 1e-6
