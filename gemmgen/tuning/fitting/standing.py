"""Tiles that stand for others, which differ in rows alone, made of those timed.

A table of few rows so has tiles of the right height for each call.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Tile


def standing(tiles: Iterable[Tile], in_one: Callable[[Tile], bool]) -> Iterator[Tile]:
    """Tiles that stand for some of these, those whose rows are in one, or in pieces.

    Those in pieces have as many stages as the highest, or one more.
    """
    alike: dict[tuple[Tile, bool], list[Tile]] = {}
    for tile in tiles:
        of = replace(tile, m=0, stages=0), in_one(tile)
        alike.setdefault(of, []).append(tile)
    for (_, whole_rows), each in alike.items():
        highest = max(each, key=lambda tile: (tile.m, tile.stages))
        near = (highest.stages, highest.stages + 1)
        lower = (tile.m for tile in each if whole_rows or tile.stages in near)
        for least in sorted(lower):
            whole = replace(highest, from_m=least)
            as_wanted = whole.stands_in_one == whole_rows
            if as_wanted and schedule_of(whole).stands_for(whole):
                yield whole
                break


def known_of(tile: Tile, tiles: Collection[Tile]) -> list[Tile]:
    """Those of some tiles that one stands for, whatever their stages; or itself."""
    if not tile.from_m:
        return [tile] if tile in tiles else []
    members = {replace(one, stages=0) for one in tile.members}
    return [one for one in tiles if replace(one, stages=0) in members]
