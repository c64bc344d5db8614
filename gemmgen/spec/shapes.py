"""Shapes of a product as text, `MxNxK`, and the file that lists them by kernel.

Knows nothing of what a kernel is beyond its name.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from gemmgen.base.errors import Mistakes, describe_value, quoted, unknown
from gemmgen.base.files import blamed
from gemmgen.yaml.reader import file_bytes, load
from gemmgen.yaml.tree import UNKNOWN, Node

LARGEST = 2**31 - 1
_FORM = re.compile("x".join(["([0-9]{1,10})"] * 3))


class Shape(NamedTuple):
    """The sizes of C [M, N] = A [M, K] · B [K, N]."""

    m: int
    n: int
    k: int

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.m, self.n, self.k

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
    shape = Shape(*map(int, match.groups()))
    if not 1 <= min(shape) <= max(shape) <= LARGEST:
        raise ValueError(f"shape {quoted(text)} has a size outside of 1 to {LARGEST}")
    return shape


def read(path: Path, kernels: Collection[str]) -> dict[str, tuple[Shape, ...]]:
    """The shapes that a file lists for each kernel, in its order.

    Raises `SpecErrors` with every mistake, also for a name that is not in `kernels`.
    """
    mistakes = Mistakes()
    with blamed("read", path):
        text = file_bytes(path)
    root = load(text, str(path), mistakes)
    if not isinstance(root.value, dict):
        message = (
            f"shapes are a map from kernels to lists, not {describe_value(root.value)}"
        )
        mistakes.add(root.location, message)
    found = {}
    for name, node in root.entries.items():
        if name not in kernels:
            mistakes.add(root.keys[name], unknown("kernel", name, kernels))
        found[name] = tuple(_shapes(name, node, mistakes))
    mistakes.stop_if_any()
    return found


def _shapes(name: str, node: Node, mistakes: Mistakes) -> Iterator[Shape]:
    """The right shapes of one kernel's list, each once."""
    if node.value is not UNKNOWN and not isinstance(node.value, list):
        said = f"the shapes of {name} must be a list, not {describe_value(node.value)}"
        mistakes.add(node.location, said)
    elif not node.items:
        mistakes.add(node.location, f"the list of {name} is empty")
    seen = set()
    for item in node.items:
        if not isinstance(item.value, str):
            if item.value is not UNKNOWN:
                given = describe_value(item.value)
                said = f"a shape must be like 512x512x4096, not {given}"
                mistakes.add(item.location, said)
            continue
        try:
            shape = parse(item.value)
        except ValueError as error:
            mistakes.add(item.location, str(error))
            continue
        if shape in seen:
            mistakes.add(item.location, f"shape {shape} is listed twice for {name}")
        seen.add(shape)
        yield shape
