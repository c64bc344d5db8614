"""Calls that differ from each other in their rows alone.

A server's calls seldom have the same number of rows twice. What stays is looked at once
for a family of calls; then one of other rows chooses its tile among those that serve
the family, and is launched as the tile was before.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from .launch import Block, Launch
from .packed import Compiled, Likeness, Maps, encoded, kind_of, likenesses
from .replay import send
from .table import Tile, first

MOST = 2**31 - 1  # rows and offsets that 32 bits hold

Shape = tuple[int, ...]


def but_for_rows(
    key: Sequence[Any], tensors: Sequence[Any], by_row: Collection[int]
) -> tuple[tuple | None, Shape]:
    """Return what is left of a call's `looked_at` without rows, and the leading sizes.

    The arguments at the places `by_row` have one row, or number, for each row of the
    result; the first is a matrix. None if there is no row or one, whose step is of no
    account, or if several leading axes do not follow each other without gaps.
    """
    left, leading, at = list(key), None, 2
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            at += 1
            continue
        if place in by_row:
            shape = key[at]
            leading = shape[:-1] if leading is None else leading
            count = len(leading)
            left[at] = columns = shape[count:]
            if shape[:count] != leading:
                return None, ()
            if count > 1:
                if not tensor.is_contiguous() or key[at + 1][-1] != 1:
                    return None, ()
                left[at + 1] = (*columns, 1)
        at += 7
    if leading is None or math.prod(leading) < 2:
        return None, ()
    return tuple(left), leading


class Known(NamedTuple):
    """How a tile is launched: all but tensors, by `kind_of_rows` what it compiles to.

    `maps` make the tensor maps of what comes by descriptors, one by one for what has
    other rows each time.
    """

    launch: Launch
    compiled: dict[tuple, Compiled]
    maps: list[Likeness | Maps | None]


def kind_of_rows(launch: Launch) -> tuple:
    """Return of M, and of the parts of K, what decides what Triton compiles."""
    parameters = launch.kernel.params[-len(launch.scalars) :]
    kind = kind_of(launch.sizes[0], parameters[0])
    return kind, *(kind_of(parts, parameters[3]) for parts in launch.parts)


class Family:
    """What calls have in common that differ in their rows alone."""

    def __init__(
        self,
        launch: Launch,
        results: Sequence[torch.Tensor],
        by_row: Collection[int],
        tiles: Iterable[Tile],
    ) -> None:
        """Keep what one launch tells of all, and the `tiles` that serve the family."""
        self.device = launch.device
        self.N = launch.sizes[1]
        self.columns = [(one.shape[-1], one.dtype) for one in results]
        inputs = len(launch.tensors) - len(results)
        places = range(len(launch.tensors))
        self.by_row = [place >= inputs or place in by_row for place in places]
        self.most = most_rows(launch, self.by_row)
        self.tiles = list(tiles)
        self.known: dict[Any, Known] = {}

    def keep(self, launch: Launch, found: Compiled) -> None:
        """Remember how a tile is launched, unless for too many rows."""
        tile = launch.tile
        if launch.sizes[0] > self.most:
            return
        if tile not in self.known:
            likes = zip(likenesses(launch, found), self.by_row, strict=True)
            maps = [Maps(like) if like and not rows else like for like, rows in likes]
            self.known[tile] = Known(launch.of_rows(0), {}, maps)
        self.known[tile].compiled[kind_of_rows(launch)] = found

    def repeat(self, leading: Shape, addresses: list[Any]) -> Any:
        """Return new results of such leading sizes, written by a launch that is known.

        None if none is.
        """
        M = math.prod(leading)
        known = self.known.get(first(self.tiles, M, self.N, self.device))
        if known is None or self.most < M:
            return None
        launch = known.launch.of_rows(M)
        found = known.compiled.get(kind_of_rows(launch))
        if found is None:
            return None
        made = [
            empty((*leading, columns), steps(leading, columns), dtype)
            for columns, dtype in self.columns
        ]
        addresses += [one.data_ptr() for one in made]
        tensors: list[Any] = []
        for like, address in zip(known.maps, addresses, strict=True):
            if like is None:
                tensors.append(address)
            elif isinstance(like, Maps):
                tensors += like[address]
            else:
                tensors += encoded(address, like.of_rows(M))
        send(launch, found, tensors)
        return made[0] if len(made) == 1 else tuple(made)


def most_rows(launch: Launch, by_row: Sequence[bool]) -> float:
    """Return for how many rows all offsets that grow with them take 32 bits."""
    most: float = MOST
    for one, rows in zip(launch.tensors, by_row, strict=True):
        if rows:
            matrix = one.matrix if isinstance(one, Block) else one
            step, column_step = matrix.stride()
            last = (matrix.shape[1] - 1) * column_step
            most = min(most, (MOST - last) // step + 1 if step else MOST)
    return most


def steps(leading: Shape, columns: int) -> Shape:
    """Return the strides of a new tensor [*leading, columns]."""
    found = [1]
    for size in (columns, *reversed(leading[1:])):
        found.append(found[-1] * max(size, 1))
    return tuple(reversed(found))


def new_on_gpu(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return an uninitialized tensor on the current GPU."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


# The entry of compiled graphs into the allocator, in half the time of the public one.
empty = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", new_on_gpu)
