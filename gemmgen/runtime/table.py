"""The choice of a tile among those of a table, and how many programs it takes.

Rows come from times measured on a GPU, or from the generator's cost model, "the model".
"""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .device import CLUSTERS
from .sides import LINE
from .support import Bounded, compute_capability, num_sms, shared_memory
from .tile import ROWS, Tile, cdiv

LONGEST_GRID = 2**31 - 1  # programs along its first axis
MOST_ROWS = 8192  # numbers of rows whose tile a family keeps

Sizes = tuple[int, int, int]  # M, N, K
Starts = tuple[int, int]  # bytes
Grid = Callable[[Any, Sizes, torch.device], Any]


def one_a_split(tile: Tile, sizes: Sizes, device: torch.device) -> tuple[int, ...]:
    """Return a grid with a program for every tile and split of K."""
    M, N, K = sizes
    tiles = tile.tiles(M, N)
    return tiles, tile.splits(tiles, K, num_sms(device))


def one_an_sm(tile: Tile, sizes: Sizes, device: torch.device) -> tuple[int, ...]:
    """Return a grid of persistent programs: an equal share of SMs for each split."""
    M, N, K = sizes
    tiles, sms = tile.tiles(M, N), num_sms(device) // tile.ctas
    parts = tile.splits(tiles, K, sms)
    return min(tiles, max(1, sms // parts)), parts


def one_an_autotuned_tile(
    tile: None, sizes: Sizes, device: torch.device
) -> Callable[[dict[str, int]], tuple[int, ...]]:
    """Return a function of a configuration: a grid with a program for every tile."""
    M, N, _ = sizes
    return lambda config: (cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"]),)


# By schedule.
GRIDS: dict[str, Grid] = {
    "tiled": one_a_split,
    "tma": one_a_split,
    "persistent": one_an_sm,
    "split_k": one_a_split,
    "simt": one_a_split,
    "warp_specialized": one_an_sm,
    "gemv": one_a_split,
}


class Record(threading.local):
    """What a call of this thread did, if the launch cache is to keep it.

    Its launches, each with the compiled kernel, and the tiles that serve such calls.
    """

    launches: list[tuple[Any, Any]] | None = None
    tiles: Callable[[], Iterable[Tile]] | None = None


RECORD = Record()


def select(
    tiles: Sequence[Tile],
    device: torch.device,
    sizes: Sizes,
    starts: Starts,
    via_tma: Callable[[str], Iterable[torch.Tensor]],
) -> Tile | None:
    """Return the tile that serves the device, the sizes and the tensors, or None.

    `starts` are the `row_starts` of A and B. `via_tma` returns the tensors that a
    schedule takes as descriptors.
    """
    _, N, K = sizes
    able = functools.partial(serving, tiles, device, N, K, starts, via_tma)
    if RECORD.launches is not None:
        RECORD.tiles = able
    return best(able(), sizes, num_sms(device))


def serving(
    tiles: Sequence[Tile],
    device: torch.device,
    N: int,
    K: int,
    starts: Starts,
    via_tma: Callable[[str], Iterable[torch.Tensor]],
) -> Iterator[Tile]:
    """Yield the tiles that serve the device, N, K and the tensors."""
    able: dict[str, bool] = {}
    sm, room = compute_capability(device), shared_memory(device)
    most = num_sms(device) if CLUSTERS else 1
    for tile in running(tiles, sm, room, starts):
        if not tile.fits(N, K) or tile.ctas > most:
            continue
        name = tile.schedule
        if name not in able:
            able[name] = all(map(tma_compatible, via_tma(name)))
        if able[name]:
            yield tile


def best(tiles: Iterable[Tile], sizes: Sizes, sms: int) -> Tile | None:
    """Return the first of these tiles that serves M rows.

    Timed tiles stand together; of those it is the one with the least predicted time.
    A tile must not need more programs than a grid may have, as gemv does for 2^31 rows.
    """
    M, N, K = sizes
    timed: list[Tile] = []
    for tile in tiles:
        if not tile.from_rows <= M <= tile.M:
            continue
        if M * N > LONGEST_GRID and tile.tiles(M, N) > LONGEST_GRID:
            continue
        if tile.rates:
            timed.append(tile)
        elif timed:
            break
        elif not tile.waves or tile.fills(M, N, sms):
            return tile
    rows = cdiv(M, ROWS) * ROWS
    found, least = None, math.inf
    for tile in timed:
        if tile.at_least(rows, N, K, sms) < least:
            time = tile.predicted(M, N, K, sms)
            if time < least:
                found, least = tile, time
    return found


class Fastest(Bounded):
    """The fastest timed tile by number of rows, in units of `ROWS`.

    `tiles` serve N, K and the tensors; None if none of them is timed.
    """

    def __init__(self, tiles: Sequence[Tile], N: int, K: int, sms: int) -> None:
        """Start empty."""
        super().__init__(MOST_ROWS)
        self.tiles, self.rest = tiles, (N, K, sms)

    def __missing__(self, count: int) -> Tile | None:
        """Choose the tile, and keep it."""
        N, K, sms = self.rest
        self[count] = found = best(self.tiles, (count * ROWS, N, K), sms)
        return found


# By table, device and rows; the table is held, since another could get its `id`.
RUNNING: dict[tuple, tuple[Sequence[Tile], list[Tile]]] = {}


def running(tiles: Sequence[Tile], sm: int, room: int, starts: Starts) -> list[Tile]:
    """Return the tiles of a table that run on such a GPU, each that one stands for.

    Rows of A and B begin at multiples of `starts` bytes.
    """
    key = (id(tiles), sm, room, starts)
    if key not in RUNNING:
        able = [
            member._replace(starts=starts)
            for tile in tiles
            if tile.runs_on(sm, room)
            and (tile.schedule != "warp_specialized" or specializes(sm))
            for member in tile.members()
        ]
        RUNNING[key] = (tiles, able)
    return RUNNING[key][1]


def row_starts(a: torch.Tensor, b: torch.Tensor) -> Starts:
    """Return of how many bytes, up to a line's, rows of A and B begin at multiples."""
    first, second = (
        math.gcd(LINE, one.stride(0) * one.element_size()) for one in (a, b)
    )
    return first, second


def tma_compatible(matrix: torch.Tensor) -> bool:
    """Return whether a tensor descriptor can describe a matrix.

    Rows must be contiguous, and begin and end at multiples of 16 bytes, since a store
    by TMA writes whole 16 bytes. Kernels pass coordinates in 32 bits.
    """
    rows, columns = matrix.stride()
    size = matrix.element_size()
    return (
        matrix.numel() > 0
        and max(matrix.shape) < 2**31
        and columns == 1
        and rows * size % 16 == 0
        and matrix.shape[1] * size % 16 == 0
        and (rows >= matrix.shape[1] or matrix.shape[0] == 1)
        and matrix.data_ptr() % 16 == 0
    )


def specializes(sm: int) -> bool:
    """Return whether warp-specialized kernels run: their wgmma is Hopper's alone."""
    return sm == 90
