"""Families of calls that differ in their number of rows only.

A server's calls seldom have the same number of rows twice. What a family has in common
is checked once; for another number of rows a call only chooses its tile among those
that serve the family, and launches it as the tile was launched before.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from .launch import Launch, TmaArg
from .packed import Compiled, TensorMaps, specialization, tma_templates
from .repeats import ALIGNED, Leading, Shape, compact, matcher
from .replay import LaunchTemplate, SizedLaunch
from .support import Bounded, contiguous_strides, empty, num_sms
from .table import MOST_ROWS, Fastest, best
from .tile import ROWS, Tile, cdiv

MOST = 2**31 - 1  # rows and offsets that 32 bits hold
MOST_REPEATS = 64  # numbers of rows whose results' shapes a family keeps
MOST_RECENT = 8  # families that a call is compared with


def row_specialization(launch: Launch) -> tuple:
    """Return how Triton specializes a kernel for a launch's M and SPLIT_K."""
    M, _, _, *more = launch.kernel.params[-len(launch.scalars) :]  # M, N, K, SPLIT_K
    of_M = specialization(launch.sizes[0], M)
    return of_M, *(specialization(splits, more[0]) for splits in launch.split_k)


class Family:
    """What calls have in common that differ in their number of rows only.

    `by_row` are the places of the arguments with rows; without any, all calls have the
    same sizes. `matches` tells whether inputs are of the family, if torch can tell;
    if an input `requires_grad`, gradients must be off. `leading` returns leading sizes.
    """

    def __init__(
        self,
        launch: Launch,
        inputs: Sequence[Any],
        results: Sequence[torch.Tensor],
        by_row: Sequence[int],
        tiles: Iterable[Tile],
    ) -> None:
        """Start from one launch; `tiles` are all that serve the family."""
        self.torch_device = launch.device
        self.device = launch.device.index
        self.sizes = launch.sizes
        self.columns = [(one.shape[-1], one.dtype) for one in results]
        self.first_leading = compact(results[0].shape[:-1])
        self.by_row = by_row
        self.axes = results[0].dim() - 1
        self.leading = leading_sizes(by_row, self.first_leading)
        rest = range(len(inputs), len(launch.tensors))
        self.of_rows = {*by_row, *rest} if by_row else set()
        self.most = most_rows(launch, self.of_rows)
        self.matches = matcher(inputs, by_row)
        self.requires_grad = any(getattr(one, "requires_grad", False) for one in inputs)
        tiles = list(tiles)
        self.listed = list(takewhile(lambda tile: not tile.rates, tiles))
        timed, (_, N, K) = tiles[len(self.listed) :], launch.sizes
        self.fastest = Fastest(timed, N, K, num_sms(launch.device))
        self.templates: dict[Any, dict[tuple, LaunchTemplate]] = {}
        self.chosen: dict[int, SizedLaunch] = Bounded(MOST_ROWS)
        self.repeats: dict[Leading | None, Callable] = Bounded(MOST_REPEATS)
        self.last: Leading | None = None

    def keep(self, launch: Launch, found: Compiled) -> None:
        """Keep a template of a launch, unless it has too many rows."""
        if launch.sizes[0] > self.most:
            return
        maps = [
            tma if tma is None or place in self.of_rows else TensorMaps(tma)
            for place, tma in enumerate(tma_templates(launch, found))
        ]
        template = LaunchTemplate(launch, found, maps)
        kinds = self.templates.setdefault(launch.tile, {})
        kinds[row_specialization(launch)] = template

    def call(self, leading: Leading, addresses: list[Any]) -> Any:
        """Launch inputs at these addresses, and return new results.

        Returns None if no launch is known for such rows. The same sizes twice in a row
        get a repeat, which is faster.
        """
        repeat = self.repeats.get(leading)
        if repeat is not None:
            return repeat(addresses)
        M = leading if isinstance(leading, int) else math.prod(leading)
        sized = self.chosen.get(M) or self.choose(M)
        if sized is None:
            return None
        if leading == self.last:
            return self.repeat_of(leading, sized)(addresses)
        self.last = leading
        results = [empty(*one) for one in self.results(leading)]
        addresses += [one.data_ptr() for one in results]
        sized.launch(addresses)
        return results[0] if len(results) == 1 else tuple(results)

    def choose(self, M: int) -> SizedLaunch | None:
        """Return the launch of the tile that serves M rows, if it has a template."""
        kinds = self.templates.get(self.tile(M))
        if not kinds or self.most < M:  # another thread may be keeping its first
            return None
        launch = next(iter(kinds.values())).launch.of_rows(M)
        template = kinds.get(row_specialization(launch))
        if template is None:
            return None
        rest = launch.programs, launch.tiles_and_splits, launch.scalars
        self.chosen[M] = sized = SizedLaunch(template, M, *rest)
        return sized

    def tile(self, M: int) -> Tile | None:
        """Return the tile that serves M rows."""
        _, N, K = self.sizes
        found = best(self.listed, (M, N, K), num_sms(self.torch_device))
        return found or self.fastest[cdiv(M, ROWS)]

    def repeat_of(self, leading: Leading, sized: SizedLaunch) -> Callable[[list], Any]:
        """Make and keep a function that allocates results and replays a launch."""
        replay = sized.template.replay_of(sized.M)
        first, *others = self.results(leading)

        def repeat(addresses: list[Any]) -> Any:
            results: Any = empty(*first)
            addresses.append(results.data_ptr())
            if others:
                results = (results, *(empty(*one) for one in others))
                addresses += [one.data_ptr() for one in results[1:]]
            replay(addresses)
            return results

        self.repeats[leading] = repeat
        return repeat

    def results(self, leading: Leading) -> list[tuple[Shape, Shape, torch.dtype]]:
        """Return the shape, strides and dtype of each result."""
        if isinstance(leading, int):
            return [((leading, n), (max(n, 1), 1), dtype) for n, dtype in self.columns]
        shapes = [((*leading, n), dtype) for n, dtype in self.columns]
        return [(shape, contiguous_strides(shape), dtype) for shape, dtype in shapes]


def leading_sizes(
    by_row: Sequence[int], fixed: Leading
) -> Callable[[Sequence[Any]], Leading | None]:
    """Return a function that returns the leading sizes of a family's inputs.

    It returns None if arguments differ in them, or if they have gaps. It is a closure,
    as `replay_of` is, for speed. Without arguments `by_row` they are `fixed`.
    """
    first, *others = by_row or (0,)

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
        return lambda inputs: fixed
    return one if isinstance(fixed, int) else several


class RecentFamilies:
    """The families of the last calls that torch can compare, the newest first."""

    def __init__(self) -> None:
        """Start empty."""
        self.families: tuple[Family, ...] = ()

    def found(
        self, inputs: Sequence[Any], differentiated: bool = False
    ) -> tuple[Family | None, list[Any]]:
        """Return the family of inputs, or None, and `addresses_of` them.

        A family whose inputs need gradients only if the call is `differentiated`, any
        other only if it is not.
        """
        grad_enabled = torch.is_grad_enabled()
        for family in self.families:
            if (family.requires_grad and grad_enabled) is not differentiated:
                continue
            if family.matches(*inputs):  # type: ignore[misc]
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
        """Put a family first, unless torch cannot compare its inputs."""
        if family.matches and family not in self.families:
            self.families = (family, *self.families[: MOST_RECENT - 1])


def most_rows(launch: Launch, of_rows: Collection[int]) -> float:
    """Return the largest number of rows for which all offsets fit in 32 bits."""
    most: float = MOST
    for place in of_rows:
        one = launch.tensors[place]
        matrix = one.matrix if isinstance(one, TmaArg) else one
        step, column_step = matrix.stride()
        last = (matrix.shape[1] - 1) * column_step
        most = min(most, (MOST - last) // step + 1 if step else MOST)
    return most


class Warmed(NamedTuple):
    """A tile that is compiled now, and the least number of rows that uses it."""

    rows: int
    tile: Tile


def warm_up(
    call: Callable[..., Any], family: Family, inputs: Sequence[Any]
) -> list[Warmed]:
    """Compile all tiles that up to as many rows as the inputs have may need.

    `family` is that of the inputs, with which the launcher was called. The calls that
    compile run in parallel.
    """
    if not family.by_row:
        return [Warmed(family.sizes[0], tile) for tile in family.templates]
    flat = [
        one.reshape(-1, *one.shape[family.axes :]) if place in family.by_row else one
        for place, one in enumerate(inputs)
    ]
    found = rows_to_compile(family, flat[family.by_row[0]].shape[0])
    enabled = torch.is_grad_enabled()

    def of_rows(rows: int) -> None:
        passed = [
            one[:rows] if place in family.by_row else one
            for place, one in enumerate(flat)
        ]
        with torch.cuda.device(family.torch_device), torch.set_grad_enabled(enabled):
            call(*passed)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(of_rows, [one.rows for one in found]))
    torch.cuda.synchronize(family.torch_device)
    return found


def rows_to_compile(family: Family, most: int) -> list[Warmed]:
    """Return for each kernel that up to `most` rows may need its tile and least rows.

    Triton compiles a tile anew where the rows, or the splits of K, become 1 or a
    multiple of 16.
    """
    _, N, K = family.sizes
    sms = num_sms(family.torch_device)
    found: dict[tuple, int] = {}
    for M in range(1, most + 1):
        tile = family.tile(M)
        assert tile is not None  # one served more rows
        splits = tile.splits(tile.tiles(M, N), K, sms)
        kinds = [(size == 1, size % 16 == 0) for size in (M, splits)]
        found.setdefault((tile, *kinds), M)
    return [Warmed(M, tile) for (tile, *_), M in found.items()]
