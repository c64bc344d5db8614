"""The choice of a tile: tables, what a row serves, how many programs it takes."""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .support import cdiv, compute_capability, num_sms, shared_memory

ANY = math.inf
FILL = -1  # as many parts of K as there are SMs for; 2 * FILL: twice as many

FULL = 0.9  # share of all SMs' turns that have a tile, for waves to be called full

ASYNCHRONOUS = range(90, 120)  # sm whose units want one stage more in shared memory

MIN_K_BLOCKS_PER_SPLIT = (
    4  # K blocks of a part with FILL, half as many with 2 * FILL, one with 4 * FILL
)


class Tile(NamedTuple):
    """A tile m x n x k, the schedule that computes it, and how it is launched.

    It serves GPUs of compute capability `sm` and up that have the bytes of `shared`
    memory which it takes there, sizes up to M, N and K whose tiles fill their waves,
    one tile an SM, to a share of `waves`.
    """

    schedule: str
    sm: int
    M: float
    N: float
    K: float
    m: int
    n: int
    k: int
    group_m: int
    split_k: int
    stages: int
    warps: int
    shared: int = 0
    waves: float = 0

    def tiles(self, M: int, N: int) -> int:
        """Return the number of tiles."""
        return cdiv(M, self.m) * cdiv(N, self.n)

    def fills(self, M: int, N: int, device: torch.device) -> bool:
        """Return whether so many of the SMs have a tile, the last wave included."""
        tiles, sms = self.tiles(M, N), num_sms(device)
        return tiles >= self.waves * sms * cdiv(tiles, sms)

    def runs_on(self, sm: int, room: int) -> bool:
        """Return whether a GPU is new enough and a block of it has the `room`."""
        needed = self.shared
        if self.stages > 1 and sm in ASYNCHRONOUS and self.sm not in ASYNCHRONOUS:
            needed = needed * (self.stages + 1) // (self.stages - 1)
        return sm >= self.sm and needed <= room

    def splits(self, tiles: int, K: int, device: torch.device) -> int:
        """Return in how many parts K is cut."""
        if self.split_k > 0:
            return self.split_k
        times = self.split_k // FILL
        most = cdiv(K, MIN_K_BLOCKS_PER_SPLIT // times * self.k)
        return max(1, min(times * num_sms(device) // max(1, tiles), most))

    @property
    def warpgroups(self) -> int:
        """Groups of four warps that share a tile."""
        return self.warps // 4

    @property
    def rows(self) -> int:
        """Rows of the tile for each of them, where they share its rows."""
        return self.m // self.warpgroups

    @property
    def columns(self) -> int:
        """Columns of the tile for each, where they share those."""
        return self.n // self.warpgroups

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told: consumers of a specialized kernel have four warps."""
        if self.schedule == "warp_specialized":
            return {"num_warps": 4}
        return {"num_warps": self.warps, "num_stages": self.stages}


def one_a_tile(
    tile: Tile, sizes: tuple[int, int, int], device: torch.device
) -> tuple[int, ...]:
    """Return a grid with a program for every tile."""
    M, N, _ = sizes
    return (tile.tiles(M, N),)


def one_a_split(
    tile: Tile, sizes: tuple[int, int, int], device: torch.device
) -> tuple[int, ...]:
    """Return a grid with a program for each part of K of every tile."""
    M, N, K = sizes
    tiles = tile.tiles(M, N)
    return tiles, tile.splits(tiles, K, device)


def one_an_sm(
    tile: Tile, sizes: tuple[int, int, int], device: torch.device
) -> tuple[int, ...]:
    """Return a grid with a program for each SM that has a tile."""
    M, N, _ = sizes
    return (min(tile.tiles(M, N), num_sms(device)),)


def one_a_row(
    tile: Tile, sizes: tuple[int, int, int], device: torch.device
) -> tuple[int, ...]:
    """Return a grid with programs for every row, each for a tile's columns."""
    M, N, _ = sizes
    return cdiv(N, tile.n), M


def one_a_raced_tile(
    tile: Tile | None, sizes: tuple[int, int, int], device: torch.device
) -> Callable[[dict[str, int]], tuple[int, ...]]:
    """Return what tells Triton's autotuner a grid with a program for every tile."""
    M, N, _ = sizes
    return lambda config: (cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"]),)


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
    sizes: tuple[int, int, int],
    described: Callable[[str], Iterable[torch.Tensor]],
) -> Tile:
    """Return the first tile that serves the device, the sizes M, N, K and the tensors.

    `described` gives the tensors that a schedule takes through descriptors.
    """
    M, N, K = sizes
    able = functools.partial(serving, tiles, device, N, K, described)
    if RECORD.launches is not None:
        RECORD.tiles = able
    found = first(able(), M, N, device)
    if found is None:
        sm = compute_capability(device)
        raise RuntimeError(f"no tile for sm_{sm}: add it to the spec's targets")
    return found


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
        if N > tile.N or K > tile.K:
            continue
        name = tile.schedule
        if name not in able:
            able[name] = all(map(tma_compatible, described(name)))
        if able[name]:
            yield tile


def first(tiles: Iterable[Tile], M: int, N: int, device: torch.device) -> Tile | None:
    """Return the first of such tiles that serves M rows."""
    for tile in tiles:
        if M <= tile.M and (not tile.waves or tile.fills(M, N, device)):
            return tile
    return None


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
    through a descriptor fills up the last 16 bytes.
    """
    rows, columns = matrix.stride()
    size = matrix.element_size()
    return (
        matrix.numel() > 0
        and columns == 1
        and rows * size % 16 == 0
        and matrix.shape[1] * size % 16 == 0
        and (rows >= matrix.shape[1] or matrix.shape[0] == 1)
        and matrix.data_ptr() % 16 == 0
    )


def specializes(sm: int) -> bool:
    """Return whether warp-specialized kernels run: their wgmma is Hopper's alone."""
    return sm == 90
