"""The choice of a tile among those of a table, and how many programs it takes.

Rows come from times measured on a GPU, or from the generator's cost model, "the model".
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from .support import Bounded, compute_capability, num_sms, shared_memory
from .tile import ROWS, Tile, cdiv

LONGEST_GRID = 2**31 - 1  # programs along its first axis
MOST_ROWS = 8192  # numbers of rows whose tile calls that are alike remember

Sizes = tuple[int, int, int]  # M, N, K
Grid = Callable[[Any, Sizes, torch.device], Any]


def one_a_tile(tile: Tile, sizes: Sizes, device: torch.device) -> tuple[int, ...]:
    """Return a grid with a program for every tile."""
    M, N, _ = sizes
    return (tile.tiles(M, N),)


def one_a_split(tile: Tile, sizes: Sizes, device: torch.device) -> tuple[int, ...]:
    """Return a grid with a program for every tile, for each part of K if it is cut."""
    M, N, K = sizes
    tiles = tile.tiles(M, N)
    return tiles, tile.splits(tiles, K, num_sms(device))


def one_an_sm(tile: Tile, sizes: Sizes, device: torch.device) -> tuple[int, ...]:
    """Return a grid with a program for each SM that has a tile, or a part of its K.

    For each part of K there are as many, which go from tile to tile.
    """
    M, N, K = sizes
    tiles, sms = tile.tiles(M, N), num_sms(device)
    parts = tile.splits(tiles, K, sms)
    return min(tiles, max(1, sms // parts)), parts


def one_a_raced_tile(
    tile: None, sizes: Sizes, device: torch.device
) -> Callable[[dict[str, int]], tuple[int, ...]]:
    """Return what tells Triton's autotuner a grid with a program for every tile."""
    M, N, _ = sizes
    return lambda config: (cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"]),)


# By schedule; the others have a program for every tile.
GRIDS: dict[str, Grid] = {
    "tiled": one_a_split,
    "tma": one_a_split,
    "persistent": one_an_sm,
    "split_k": one_a_split,
    "warp_specialized": one_an_sm,
    "gemv": one_a_split,
}


class Record(threading.local):
    """What the call of this thread that is about to be remembered did.

    Its launches, each with what repeats it, and the tiles that serve such calls.
    """

    launches: list[tuple[Any, Any]] | None = None
    tiles: Callable[[], Iterable[Tile]] | None = None


RECORD = Record()


def select(
    tiles: Sequence[Tile],
    device: torch.device,
    sizes: Sizes,
    described: Callable[[str], Iterable[torch.Tensor]],
) -> Tile | None:
    """Return the tile that serves the device, the sizes and the tensors, or None.

    `described` gives the tensors that a schedule takes through descriptors.
    """
    _, N, K = sizes
    able = functools.partial(serving, tiles, device, N, K, described)
    if RECORD.launches is not None:
        RECORD.tiles = able
    return best(able(), sizes, num_sms(device))


def serving(
    tiles: Sequence[Tile],
    device: torch.device,
    N: int,
    K: int,
    described: Callable[[str], Iterable[torch.Tensor]],
) -> Iterator[Tile]:
    """Return the tiles that serve the device, N, K and the tensors."""
    able: dict[str, bool] = {}
    for tile in running(tiles, compute_capability(device), shared_memory(device)):
        if not tile.fits(N, K):
            continue
        name = tile.schedule
        if name not in able:
            able[name] = all(map(tma_compatible, described(name)))
        if able[name]:
            yield tile


def best(tiles: Iterable[Tile], sizes: Sizes, sms: int) -> Tile | None:
    """Return the first of such tiles that serves the rows of the sizes.

    Timed tiles come together: of those the one that is predicted to be the fastest. Not
    of more tiles than a grid has programs: gemv's of 2^31 rows or columns.
    """
    M, N, K = sizes
    timed: list[Tile] = []
    for tile in tiles:
        if not tile.from_rows <= M <= tile.M or tile.tiles(M, N) > LONGEST_GRID:
            continue
        if tile.rates:
            timed.append(tile)
        elif timed:
            break
        elif not tile.waves or tile.fills(M, N, sms):
            return tile
    return min(timed, key=lambda tile: tile.predicted(M, N, K, sms), default=None)


class Fastest(Bounded):
    """By so many times `ROWS`, the timed tile that serves the rows, found when missed.

    Of tiles that serve N, K and the tensors; None if none of them is timed.
    """

    def __init__(self, tiles: Sequence[Tile], N: int, K: int, sms: int) -> None:
        """Know no rows yet."""
        super().__init__(MOST_ROWS)
        self.tiles, self.rest = tiles, (N, K, sms)

    def __missing__(self, count: int) -> Tile | None:
        """Return the tile, and keep it."""
        N, K, sms = self.rest
        self[count] = found = best(self.tiles, (count * ROWS, N, K), sms)
        return found


# By table and device; the table is kept, for another could get its `id`.
RUNNING: dict[tuple[int, int, int], tuple[Sequence[Tile], list[Tile]]] = {}


def running(tiles: Sequence[Tile], sm: int, room: int) -> list[Tile]:
    """Return the tiles of a table that run on such a GPU."""
    key = (id(tiles), sm, room)
    if key not in RUNNING:
        able = [
            tile
            for tile in tiles
            if tile.runs_on(sm, room)
            and (tile.schedule != "warp_specialized" or specializes(sm))
        ]
        RUNNING[key] = (tiles, able)
    return RUNNING[key][1]


def tma_compatible(matrix: torch.Tensor) -> bool:
    """Return whether a tensor descriptor can describe a matrix.

    Rows are contiguous, start at multiples of 16 bytes and end at one, since a store
    through a descriptor fills up the last 16 bytes. Kernels say where a block begins in
    32 bits.
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
