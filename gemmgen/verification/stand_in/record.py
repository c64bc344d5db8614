"""What a launch passes to its kernel, by name, and what the compiled kernel assumes.

A compiled kernel holds for what it was compiled for alone: constants, sizes of 1, and
addresses and sizes that are multiples of 16.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.stand_in.compiled import TensorMap
from gemmgen.verification.stand_in.driver import Launched

_RANGES = {"i32": 31, "i64": 63}


@dataclass(frozen=True)
class Described:
    """A tensor that is passed through a descriptor."""

    map: TensorMap
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def named(launched: Launched) -> dict[str, Any]:
    """The value of each parameter of the kernel; constants as they were compiled."""
    if launched.named is None:
        launched.named = _named(launched)
    return launched.named


def _named(launched: Launched) -> dict[str, Any]:
    source, left = launched.function.compiled.src, list(launched.arguments)
    found: dict[str, Any] = {}
    for position, (name, kind) in enumerate(source.signature.items()):
        if not left:
            raise Wrong(f"the launch passes nothing for {name}")
        value = left.pop(0)
        if kind.startswith("tensordesc"):
            rank = len(value.shape) if isinstance(value, TensorMap) else 2
            sides, left = left[: 2 * rank], left[2 * rank :]
            value = Described(value, tuple(sides[:rank]), tuple(sides[rank:]))
        elif kind == "constexpr":
            constant = source.constants[(position,)]
            if constant != value:
                raise Wrong(
                    f"{name} is {value}, the kernel was compiled for {constant}"
                )
        found[name] = value
    if left:
        raise Wrong(f"the launch passes {len(left)} arguments too many")
    return found


def check_assumptions(launched: Launched, values: dict[str, Any]) -> None:
    """Raise `Wrong` unless what the kernel was compiled for holds."""
    source = launched.function.compiled.src
    names = list(source.signature)
    for (position, *_), attributes in source.attrs.items():
        value = values[names[position]]
        for attribute, number in attributes:
            if attribute == "tt.divisibility" and value % number:
                raise Wrong(f"{names[position]} is {value}, no multiple of {number}")
    for name, kind in source.signature.items():
        bits = _RANGES.get(kind)
        if bits and not -(2**bits) <= values[name] < 2**bits:
            raise Wrong(f"{name} is {values[name]}, more than {kind} holds")
        if kind.startswith("tensordesc"):
            _check_map(name, values[name])


def _check_map(name: str, value: Any) -> None:
    found = value.map
    if not isinstance(found, TensorMap):
        raise Wrong(f"{name} is passed no tensor map")
    if (found.shape, found.strides) != (value.shape, value.strides):
        raise Wrong(f"{name}: the tensor map is of another shape than is passed")
    if found.address % 16:
        raise Wrong(f"{name}: the tensor map starts at no multiple of 16 bytes")


def difference(one: Launched, other: Launched, ours: Sequence[str]) -> None:
    """Raise `Wrong` unless two launches differ in where the results `ours` are alone.

    Of a workspace that is not used, and of those of graphs, the place does not matter;
    nor where two threads may each have made one.
    """
    for what in ("function", "grid", "stream", "device", "settings"):
        if getattr(one, what) != getattr(other, what):
            raise Wrong(
                f"{what} is {getattr(one, what)}, afresh it is {getattr(other, what)}"
            )
    mine, theirs = named(one), named(other)
    places = {f"{name}_ptr" for name in ours}
    if one.grid[1] == 1 or one.capture is not None or one.thread != other.thread:
        places |= {"partials_ptr", "counters_ptr"}
    for name, value in mine.items():
        found = theirs[name]
        tensor = name.removesuffix("_desc").removesuffix("_rest")
        if tensor in ours and isinstance(value, Described):
            found = replace(found, map=replace(found.map, address=value.map.address))
        if name not in places and found != value and not value != value:
            raise Wrong(f"{name} is passed as {value}, afresh as {found}")
