"""What an epilogue, and the room that its buffers take, add to what a tile costs."""

from dataclasses import replace
from functools import cache
from statistics import mean

from gemmgen.cost.resources import fits
from gemmgen.hardware.targets import Target
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Product, Tile

_ARRIVAL = 1.2
"""Microseconds after which a block of K is there that a loop over tiles has asked for,
while all SMs load: with one stage less than it was timed with, a tile of 128x192x64,
192x128x64, 256x128x64 took 1.15, 1.25, 0.96 us for the blocks of all stages but one
(8192 x 14336 x 4096, H200)."""
_EPILOGUE_WARPS = 8
"""Warps of an SM that compute as much as more would: it has four schedulers."""
_HELD, _FETCHING = 5600, 0.01
"""Instructions of a specialized kernel's epilogue, unrolled for each consumer, that an
SM has at hand when it comes there, and the microseconds of each more of one consumer:
all SMs fetch the same (gelu and gelu_tanh in 17 tiles at four shapes, H200; what they
add to bias alone, 0 to 21 us, is predicted within 1.1 us in the mean)."""


def instructions(tile: Tile, product: Product) -> float:
    """Instructions of an epilogue for each warp that has a part of the tile.

    Of one that stands for others those of the mean.
    """
    return product.operations * _elements(tile) / min(tile.warps, _EPILOGUE_WARPS)


def _elements(tile: Tile) -> float:
    """Those of C that a CTA has, of a tile that stands for others in the mean."""
    return mean(one.m * one.n for one in tile.members) / tile.ctas


def fetching(tile: Tile, product: Product) -> float:
    """Microseconds that the first tile waits for the instructions of its epilogue."""
    if not schedule_of(tile).specialized:
        return 0.0
    code = product.operations * _elements(tile) / (32 * tile.warps)
    return _FETCHING * max(0.0, code - _HELD / max(2, tile.warpgroups))


def hides_epilogues(tile: Tile) -> bool:
    """Whether all epilogues but the last run while others multiply."""
    return schedule_of(tile).last_epilogues(tile) > 1


def waiting(
    tile: Tile, as_: Tile, block: float, product: Product, target: Target
) -> float:
    """How many times as long a block takes as it was timed, in a ring less deep.

    Of what a tile stands for it is the mean of the middle one and of the largest.
    """
    if not tile.from_side:
        return _longer(tile.stages, as_.stages, block)
    found = []
    for one in (tile.members[len(tile.members) // 2], tile.members[-1]):
        now = _depth(replace(one, stages=tile.stages), product, target)
        timed = _depth(replace(one, stages=as_.stages), _plain(product), target)
        found.append(_longer(now, timed, block * as_.share(one)))
    return mean(found)


def _longer(now: int, timed: int, block: float) -> float:
    """The same of a tile alone: what its ring hid as it was timed, this one may not."""
    if now >= timed:
        return 1.0
    return max(1.0, min(_ARRIVAL, block * (timed - 1)) / (now - 1) / block)


@cache
def _depth(tile: Tile, product: Product, target: Target) -> int:
    """The stages that a tile of these, or of more, has room for."""
    deeper = replace(tile, stages=tile.stages + 1)
    if not fits(deeper, product, target):
        return tile.stages
    return _depth(deeper, product, target)


def _plain(product: Product) -> Product:
    """The product without an epilogue, as tiles are timed."""
    return Product(
        product.kind,
        product.bytes,
        out_bytes=product.bytes,
        tile_bytes=product.bytes,
        layout=product.layout,
        result_bytes=product.bytes,
        own_bytes=(product.bytes,),
    )
