"""Which tiles of a kernel are compiled where a run has not the time for all."""

from collections.abc import Sequence
from random import Random

from gemmgen.cost.resources import shared_memory
from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.schedules.parts.tile import Product, Tile

Aimed = tuple[Target, Tile]
"""A tile and the target that it is compiled for."""


def sample(
    tiles: Sequence[Aimed], product: Product, drawn: int | None, seed: str
) -> Sequence[Aimed]:
    """Of each schedule for each target the largest tile, and so many others; or all.

    The largest is the one whose sums take the most registers of a thread, and of
    several such that which takes the most shared memory: where a thread or a block has
    too little for one of a schedule's tiles, it has for that. The others are drawn.
    """
    if drawn is None:
        return tiles

    def size(one: Aimed) -> tuple[int, int]:
        target, tile = one
        room = shared_memory(tile, product, target)
        return accumulator_registers(tile, product), room

    largest = {
        (target.name, tile.schedule): (target, tile)
        for target, tile in sorted(tiles, key=size)
    }
    others = [one for one in tiles if one not in largest.values()]
    some = Random(seed).sample(others, min(drawn, len(others)))
    return [*largest.values(), *some]
