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
    """Of each schedule for each target its largest tiles and so many others; or all.

    The largest are those whose sums take the most registers of a thread, and that take
    the most shared memory: where one of a schedule's tiles has too little of either,
    they have. The others are drawn.
    """
    if drawn is None:
        return tiles
    groups: dict[tuple[str, str], list[Aimed]] = {}
    for target, tile in tiles:
        groups.setdefault((target.name, tile.schedule), []).append((target, tile))
    chance = Random(seed)
    chosen: list[Aimed] = []
    for group in groups.values():
        largest = {
            max(group, key=lambda one: accumulator_registers(one[1], product)),
            max(group, key=lambda one: shared_memory(one[1], product, one[0])),
        }
        others = [one for one in group if one not in largest]
        chosen += [one for one in group if one in largest]
        chosen += chance.sample(others, min(drawn, len(others)))
    return chosen
