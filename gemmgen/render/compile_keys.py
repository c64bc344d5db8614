"""What Triton compiles for a kernel: a key for each text of machine code.

Of tensors that are contiguous and begin at multiples of 16 bytes, as torch makes them,
and of sizes below 2^31. Triton tells integers apart that are 1, multiples of 16, and
others (`triton/runtime/jit.py`, `do_not_specialize`), and constants by their values.
"""

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmgen.hardware.targets import DESCRIBED_BYTES
from gemmgen.render import render
from gemmgen.render.names.parts import file_of
from gemmgen.schedules import SCHEDULES, described, schedule_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.tables.dtypes import DTYPES

ONE, SIXTEEN, OTHER = "1", "16", "any"
"""The kinds of integers: 1, multiples of 16, all others."""
_SIZES = (1, 2, 3, 4, 8, 16)
"""The least of each kind, and of each power of two that rows may be multiples of."""
_WIDEST = 16
"""What ALIGN is at most."""
_AXES = "mnk"
_NAMES = ("M", "N", "K", "SPLIT_K", "ALIGN", "INDEX")
"""The arguments of kernels that are told apart, but for strides and sides of tiles."""


@dataclass(frozen=True)
class CompileKey:
    """One text of machine code: the target, the tile, the kinds of its arguments.

    The tile is of the schedule whose kernel it launches, and of K in one part: parts
    are an argument, and a kernel that may cut K is the same where it does not.
    `kinds` are `1`, `16` for multiples of 16 and `any` for other sizes, of `SPLIT_K`
    and ALIGN too; INDEX is the type of offsets.
    """

    target: str
    tile: Tile
    kinds: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, str]:
        """It as plain data."""
        return {
            "target": self.target,
            "tile": format_tile(self.tile),
            **dict(self.kinds),
        }


def compile_keys(plan: Plan) -> tuple[CompileKey, ...]:
    """Every key that calls of a kernel may need, in the order of its tiles."""
    texts, found = render.files(plan, ""), dict[CompileKey, None]()
    for target, tile, of_axes in _launched(plan):
        parameters = _specialized(plan, tile, texts)
        for sizes in itertools.product(*of_axes):
            if _described(plan, tile, sizes):
                for kinds in _kinds(plan, tile, sizes, parameters):
                    found[CompileKey(target, whole(tile), kinds)] = None
    return tuple(found)


def whole(tile: Tile) -> Tile:
    """The tile as it is compiled, in however many parts K is to come."""
    return replace(tile, split_k=1, schedule=schedule_of(tile).file)


def by_tile(name: str, keys: Sequence[CompileKey]) -> list[dict[str, str]]:
    """A row a tile: the kinds that each argument may have, and the number of keys."""
    tiles: dict[tuple[str, Tile], list[CompileKey]] = {}
    for key in keys:
        tiles.setdefault((key.target, key.tile), []).append(key)
    rows = []
    for (target, tile), own in tiles.items():
        kinds: dict[str, dict[str, None]] = {one: {} for one in _NAMES}
        for argument, kind in (pair for key in own for pair in key.kinds):
            kinds[argument][kind] = None
        told = {one: " ".join(found) for one, found in kinds.items()}
        row = {"kernel": name, "target": target, "tile": format_tile(tile)}
        rows.append({**row, **told, "keys": str(len(own))})
    return rows


def _launched(plan: Plan) -> Iterator[tuple[str, Tile, Sequence[Sequence[int]]]]:
    """Every target and tile, with an M, N and K of each kind that the tile serves."""
    for row in plan.rows:
        served = _served(row)
        for tile in row.tiles(plan.product):
            yield row.target.name, tile, served
    for target, tile in itertools.product(plan.targets, plan.configs):
        yield target, tile, [_SIZES] * len(_AXES)


def _served(row: Row) -> list[Sequence[int]]:
    """An M, N and K of each kind that a row serves; of a layer, its own N and K."""
    if row.pin is None or row.n is None or row.k is None:
        return [
            [size for size in _SIZES if most is None or size <= most]
            for most in row.limits
        ]
    least, most = row.pin.least, row.pin.most
    some = range(least, min(most, least + 2 * max(_SIZES)) + 1)
    kinds = {(size == 1, math.gcd(size, max(_SIZES))): size for size in some}
    return [list(kinds.values()), [row.n], [row.k]]


def _specialized(plan: Plan, tile: Tile, texts: Mapping[str, str]) -> list[str]:
    """The parameters of a tile's kernel that Triton compiles it anew for."""
    row = schedule_of(tile)
    name = plan.name + SCHEDULES[row.file].kernel_suffix
    (kernel,) = (
        one for one in ast.parse(texts[file_of(plan, row.file)]).body
        if isinstance(one, ast.FunctionDef) and one.name == name
    )  # fmt: skip
    alike = {
        one.value
        for decorator in kernel.decorator_list if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords if keyword.arg == "do_not_specialize"
        for one in ast.walk(keyword.value) if isinstance(one, ast.Constant)
    }  # fmt: skip
    return [one.arg for one in kernel.args.args if one.arg not in alike]


def _described(plan: Plan, tile: Tile, sizes: Sequence[int]) -> bool:
    """Whether descriptors can describe contiguous tensors of such sizes."""
    roles = described(tile.schedule, plan.product.kind)
    return all(
        _row(one.axes, sizes) * DTYPES[one.dtype].bytes % DESCRIBED_BYTES == 0
        for one in plan.passed
        if one.role in roles
    )


def _kinds(
    plan: Plan, tile: Tile, sizes: Sequence[int], parameters: Sequence[str]
) -> Iterator[tuple[tuple[str, str], ...]]:
    """The kinds of arguments that calls of such sizes may have.

    A contiguous tensor's strides are 1 and sizes, whose kinds say enough.
    """
    inputs = (one.axes for one in plan.passed[:2])
    wide = (axes for axes in inputs if getattr(tile, axes[-1]) > 1)
    align = math.gcd(_WIDEST, *(_row(axes, sizes) for axes in wide))
    of_sizes = [[_kind(size)] for size in sizes]
    splits = [_kind(tile.split_k)] if tile.split_k > 0 else [ONE, SIXTEEN, OTHER]
    every = (*of_sizes, splits, [str(align)], ["int32", "int64"])
    told = {
        name: kinds for name, kinds in zip(_NAMES, every, strict=True)
        if name in parameters
    }  # fmt: skip
    for values in itertools.product(*told.values()):
        yield tuple(zip(told, values, strict=True))


def _row(axes: Sequence[str], sizes: Sequence[int]) -> int:
    """The elements of a row of a tensor."""
    return sizes[_AXES.index(axes[-1])]


def _kind(value: int) -> str:
    if value == 1:
        return ONE
    return OTHER if value % 16 else SIXTEEN
