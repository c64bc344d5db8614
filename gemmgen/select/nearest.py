"""The nearest tile that takes less room: less deep, then halved, until it fits."""

from collections.abc import Callable
from dataclasses import replace

from gemmgen.schedules.parts.tile import Tile


def nearest_fitting(tile: Tile, fits: Callable[[Tile], bool]) -> Tile | None:
    """The tile with fewer stages, or halved until it fits, then as deep as before."""
    wanted, tile = tile.stages, replace(tile, stages=min(tile.stages, 2))
    while not fits(tile):
        if tile.k > 32:
            tile = replace(tile, k=tile.k // 2)
        elif max(tile.m, tile.n) > 16:
            side = "m" if tile.m >= tile.n else "n"
            tile = replace(tile, **{side: getattr(tile, side) // 2})
        else:
            return None
    deeper = (replace(tile, stages=stages) for stages in range(wanted, 0, -1))
    return next(tile for tile in deeper if fits(tile))
