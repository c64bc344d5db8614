"""Calls that differ from each other in their rows alone.

A server's calls seldom have the same number of rows twice. What stays is looked at once
for a family of calls; then one of other rows chooses its tile among those that serve
the family, and is launched as the tile was before.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from .launch import Block, Launch
from .packed import Compiled, Maps, kind_of, likenesses
from .repeats import ALIGNED, Leading, Shape, alike, simple
from .replay import Ready, Sized
from .support import Bounded, empty, num_sms, steps
from .table import MOST_ROWS, Fastest, best
from .tile import ROWS, Tile, cdiv

MOST = 2**31 - 1  # rows and offsets that 32 bits hold
MOST_REPEATS = 64  # numbers of rows that a family repeats at once
MOST_LATEST = 8  # families that a call is held against in turn


def kind_of_rows(launch: Launch) -> tuple:
    """Return the kinds of a launch's M and parts of K, by which Triton compiles."""
    M, _, _, *more = launch.kernel.params[-len(launch.scalars) :]  # M, N, K, SPLIT_K
    kind = kind_of(launch.sizes[0], M)
    return kind, *(kind_of(parts, more[0]) for parts in launch.parts)


class Family:
    """What calls have in common that differ in their rows alone.

    `by_row` are the places of the arguments that have rows; without any, all calls of
    the family are alike. Torch can tell them from others by `alike`, if that is known;
    gradients must be off if an input is `learning`. `leading` finds leading sizes.
    """

    def __init__(
        self,
        launch: Launch,
        inputs: Sequence[Any],
        results: Sequence[torch.Tensor],
        by_row: Sequence[int],
        tiles: Iterable[Tile],
    ) -> None:
        """Keep what one launch tells of all, and the `tiles` that serve the family."""
        self.where = launch.device
        self.device = launch.device.index
        self.sizes = launch.sizes
        self.columns = [(one.shape[-1], one.dtype) for one in results]
        self.only = simple(results[0].shape[:-1])
        self.by_row = by_row
        self.axes = results[0].dim() - 1
        self.leading = leading_of(by_row, self.only)
        rest = range(len(inputs), len(launch.tensors))
        self.of_rows = {*by_row, *rest} if by_row else set()
        self.most = most_rows(launch, self.of_rows)
        self.alike = alike(inputs, by_row)
        self.learning = any(getattr(one, "requires_grad", False) for one in inputs)
        tiles = list(tiles)
        self.listed = list(takewhile(lambda tile: not tile.rates, tiles))
        timed, (_, N, K) = tiles[len(self.listed) :], launch.sizes
        self.fastest = Fastest(timed, N, K, num_sms(launch.device))
        self.ready: dict[Any, dict[tuple, Ready]] = {}
        self.chosen: dict[int, Sized] = Bounded(MOST_ROWS)
        self.repeats: dict[Leading | None, Callable] = Bounded(MOST_REPEATS)
        self.last: Leading | None = None

    def keep(self, launch: Launch, found: Compiled) -> None:
        """Remember how a tile is launched, unless for too many rows."""
        if launch.sizes[0] > self.most:
            return
        likes = likenesses(launch, found)
        maps = [
            like if like is None or place in self.of_rows else Maps(like)
            for place, like in enumerate(likes)
        ]
        ready = Ready(launch, found, maps)
        self.ready.setdefault(launch.tile, {})[kind_of_rows(launch)] = ready

    def call(self, leading: Leading, addresses: list[Any]) -> Any:
        """Return new results, written by a launch of inputs at these addresses.

        None if none is known for such rows. Rows that come again at once are repeated.
        """
        repeat = self.repeats.get(leading)
        if repeat is not None:
            return repeat(addresses)
        M = leading if isinstance(leading, int) else math.prod(leading)
        sized = self.chosen.get(M) or self.choose(M)
        if sized is None:
            return None
        if leading == self.last:
            return self.repeating(leading, sized)(addresses)
        self.last = leading
        made = [empty(*one) for one in self.results(leading)]
        addresses += [one.data_ptr() for one in made]
        sized.launch(addresses)
        return made[0] if len(made) == 1 else tuple(made)

    def choose(self, M: int) -> Sized | None:
        """Return what launches the tile that serves M rows, if that is known."""
        kinds = self.ready.get(self.tile(M))
        if kinds is None or self.most < M:
            return None
        launch = next(iter(kinds.values())).alike.of_rows(M)
        ready = kinds.get(kind_of_rows(launch))
        if ready is None:
            return None
        how = launch.programs, launch.meeting, launch.scalars
        self.chosen[M] = sized = Sized(ready, M, *how)
        return sized

    def tile(self, M: int) -> Tile | None:
        """Return the tile that serves M rows."""
        _, N, K = self.sizes
        found = best(self.listed, (M, N, K), num_sms(self.where))
        return found or self.fastest[cdiv(M, ROWS)]

    def repeating(self, leading: Leading, sized: Sized) -> Callable[[list], Any]:
        """Return what repeats a launch at once, which is remembered."""
        replay = sized.ready.replaying(sized.M)
        first, *others = self.results(leading)

        def repeat(addresses: list[Any]) -> Any:
            made: Any = empty(*first)
            addresses.append(made.data_ptr())
            if others:
                made = (made, *(empty(*one) for one in others))
                addresses += [one.data_ptr() for one in made[1:]]
            replay(addresses)
            return made

        self.repeats[leading] = repeat
        return repeat

    def results(self, leading: Leading) -> list[tuple[Shape, Shape, torch.dtype]]:
        """Return the shape, strides and dtype of each result."""
        if isinstance(leading, int):
            return [((leading, n), (max(n, 1), 1), dtype) for n, dtype in self.columns]
        shapes = [((*leading, n), dtype) for n, dtype in self.columns]
        return [(shape, steps(shape), dtype) for shape, dtype in shapes]


def leading_of(
    by_row: Sequence[int], only: Leading
) -> Callable[[Sequence[Any]], Leading | None]:
    """Return what finds the leading sizes of inputs that are alike but for them.

    It returns None if they differ between arguments, or have gaps. A closure, as what
    replays a launch is, and for the same reason.
    """
    first, *others = by_row or (0,)

    def fixed(inputs: Sequence[Any]) -> Leading | None:
        return only

    def one(inputs: Sequence[Any]) -> Leading | None:
        M = inputs[first].shape[0]
        for place in others:
            if inputs[place].shape[0] != M:
                return None
        return M or None

    def several(inputs: Sequence[Any]) -> Leading | None:
        leading = inputs[first].shape[:-1]
        count = len(leading)
        for place in by_row:
            tensor = inputs[place]
            if tensor.shape[:count] != leading or not tensor.is_contiguous():
                return None
        return leading if math.prod(leading) > 1 else None

    if not by_row:
        return fixed
    return one if isinstance(only, int) else several


class Latest:
    """The families met last that torch can tell, the newest first."""

    def __init__(self) -> None:
        """Know none yet."""
        self.families: tuple[Family, ...] = ()

    def found(
        self, inputs: Sequence[Any], learning: bool = False
    ) -> tuple[Family | None, list[Any]]:
        """Return the family of such inputs, or None, and `addresses_of` them.

        Only if a gradient is asked of them, or of none of them, as `learning` says.
        """
        graded = torch.is_grad_enabled()
        for family in self.families:
            if (family.learning and graded) is not learning:
                continue
            if family.alike(*inputs):  # type: ignore[misc]
                addresses, bits = [], 0
                for one in inputs:
                    address = one.data_ptr()
                    bits |= address
                    addresses.append(address)
                if bits % ALIGNED:
                    break
                return family, addresses
        return None, []

    def keep(self, family: Family) -> None:
        """Remember a family, unless its inputs cannot be compared."""
        if family.alike and family not in self.families:
            self.families = (family, *self.families[: MOST_LATEST - 1])


def most_rows(launch: Launch, of_rows: Collection[int]) -> float:
    """Return for how many rows all offsets that grow with them take 32 bits."""
    most: float = MOST
    for place in of_rows:
        one = launch.tensors[place]
        matrix = one.matrix if isinstance(one, Block) else one
        step, column_step = matrix.stride()
        last = (matrix.shape[1] - 1) * column_step
        most = min(most, (MOST - last) // step + 1 if step else MOST)
    return most


class Warmed(NamedTuple):
    """A tile that is compiled now, and the least number of rows that takes it."""

    rows: int
    tile: Tile


def warm_up(
    call: Callable[..., Any], family: Family, inputs: Sequence[Any]
) -> list[Warmed]:
    """Call with as many of the inputs' rows as it takes to compile what fewer may need.

    `family` is that of the inputs, which were called with. Calls come side by side.
    """
    if not family.by_row:
        return [Warmed(family.sizes[0], tile) for tile in family.ready]
    flat = [
        one.reshape(-1, *one.shape[family.axes :]) if place in family.by_row else one
        for place, one in enumerate(inputs)
    ]
    found = needed(family, flat[family.by_row[0]].shape[0])
    graded = torch.is_grad_enabled()

    def of_rows(rows: int) -> None:
        passed = [
            one[:rows] if place in family.by_row else one
            for place, one in enumerate(flat)
        ]
        with torch.cuda.device(family.where), torch.set_grad_enabled(graded):
            call(*passed)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(of_rows, [one.rows for one in found]))
    torch.cuda.synchronize(family.where)
    return found


def needed(family: Family, most: int) -> list[Warmed]:
    """Return each tile, with the least rows, for all that Triton compiles up to `most`.

    A tile comes again if the rows, or the parts of K, are 1 or a multiple of 16.
    """
    _, N, K = family.sizes
    sms = num_sms(family.where)
    found: dict[tuple, int] = {}
    for M in range(1, most + 1):
        tile = family.tile(M)
        assert tile is not None  # for one served more rows
        parts = tile.splits(tile.tiles(M, N), K, sms)
        kinds = [(size == 1, size % 16 == 0) for size in (M, parts)]
        found.setdefault((tile, *kinds), M)
    return [Warmed(M, tile) for (tile, *_), M in found.items()]
