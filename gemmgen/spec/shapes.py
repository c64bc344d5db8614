"""Shapes of a product and of layers as text, and files that list them by kernel.

Knows nothing of what a kernel is beyond its name.
"""

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from gemmgen.base.errors import Mistakes, describe_value, quoted, unknown
from gemmgen.base.files import blamed
from gemmgen.yaml.reader import file_bytes, load
from gemmgen.yaml.tree import UNKNOWN, Node

LARGEST = 2**31 - 1
MOST_ROWS = 16384
"""Of a layer for which no file says how many rows calls have at most."""
_SIZE = "([0-9]{1,10})"
_FORM = re.compile(f"{_SIZE}x{_SIZE}x{_SIZE}")
_LAYER = re.compile(f"(?:{_SIZE}x)?{_SIZE}x{_SIZE}")


class Layer(NamedTuple):
    """A layer's own sizes, N and K, whatever the rows."""

    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.n}x{self.k}"


class Shape(NamedTuple):
    """The sizes of C [M, N] = A [M, K] · B [K, N]."""

    m: int
    n: int
    k: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.m, self.n, self.k

    @property
    def layer(self) -> Layer:
        """N and K."""
        return Layer(self.n, self.k)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def flops(self) -> int:
        """Multiplications and additions of the product."""
        return 2 * self.m * self.n * self.k


def parse(text: str) -> Shape:
    """The shape that `4096x4096x512` says; ValueError tells what is wrong with it."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"shape {quoted(text)} must be like 512x512x4096 (MxNxK)")
    return _checked("shape", text, Shape(*map(int, match.groups())))


def parse_layer(text: str) -> Shape:
    """The layer that `4096x14336` says, at the most rows that its calls have.

    `512x4096x14336` says how many; else they are `MOST_ROWS`. ValueError tells what is
    wrong.
    """
    match = _LAYER.fullmatch(text)
    if match is None:
        likes = "4096x14336 (NxK) or 512x4096x14336 (at most M rows)"
        raise ValueError(f"layer {quoted(text)} must be like {likes}")
    m, n, k = match.groups()
    return _checked("layer", text, Shape(int(m or MOST_ROWS), int(n), int(k)))


def _checked(what: str, text: str, shape: Shape) -> Shape:
    if not 1 <= min(shape) <= max(shape) <= LARGEST:
        raise ValueError(f"{what} {quoted(text)} has a size outside of 1 to {LARGEST}")
    return shape


class Form(NamedTuple):
    """What a file lists for kernels."""

    what: str
    like: str
    parse: Callable[[str], Shape]
    known_by: Callable[[Shape], object]
    """What no two of a kernel's list have in common."""


SHAPES = Form("shape", "512x512x4096", parse, lambda shape: shape)
LAYERS = Form("layer", "4096x14336", parse_layer, lambda shape: shape.layer)


def read(
    path: Path, kernels: Collection[str], form: Form = SHAPES
) -> dict[str, tuple[Shape, ...]]:
    """What a file lists for each kernel, in its order.

    Raises `SpecErrors` with every mistake, also for a name that is not in `kernels`.
    """
    mistakes = Mistakes()
    with blamed("read", path):
        text = file_bytes(path)
    root = load(text, str(path), mistakes)
    if not isinstance(root.value, dict):
        given = describe_value(root.value)
        said = f"{form.what}s are a map from kernels to lists, not {given}"
        mistakes.add(root.location, said)
    found = {}
    for name, node in root.entries.items():
        if name not in kernels:
            mistakes.add(root.keys[name], unknown("kernel", name, kernels))
        found[name] = tuple(_listed(name, node, form, mistakes))
    mistakes.stop_if_any()
    return found


def _listed(name: str, node: Node, form: Form, mistakes: Mistakes) -> Iterator[Shape]:
    """What is right of one kernel's list, each once."""
    if node.value is not UNKNOWN and not isinstance(node.value, list):
        given = describe_value(node.value)
        said = f"the {form.what}s of {name} must be a list, not {given}"
        mistakes.add(node.location, said)
    elif not node.items:
        mistakes.add(node.location, f"the list of {name} is empty")
    seen = set()
    for item in node.items:
        if not isinstance(item.value, str):
            if item.value is not UNKNOWN:
                given = describe_value(item.value)
                said = f"a {form.what} must be like {form.like}, not {given}"
                mistakes.add(item.location, said)
            continue
        try:
            shape = form.parse(item.value)
        except ValueError as error:
            mistakes.add(item.location, str(error))
            continue
        known_by = form.known_by(shape)
        if known_by in seen:
            said = f"{form.what} {item.value} is listed twice for {name}"
            mistakes.add(item.location, said)
        seen.add(known_by)
        yield shape
