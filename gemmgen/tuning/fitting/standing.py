"""Tiles that stand for others, which differ in one side alone, made of those timed.

A table of few rows so has tiles of the right height, or width, for each call.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from gemmgen.runtime.sides import may_part
from gemmgen.schedules import schedule_of
from gemmgen.schedules.parts.tile import Tile


class _Family(NamedTuple):
    """What tiles have in common of which one may stand for the others."""

    of: Tile
    rows: bool
    cut: int
    in_one: bool


def standing(tiles: Iterable[Tile], in_one: Callable[[Tile], bool]) -> Iterator[Tile]:
    """Tiles that stand for some of these, those whose side is in one, or in pieces.

    Those in pieces have as many stages as the largest, or one more.
    """
    families: dict[_Family, list[Tile]] = {}
    for tile in tiles:
        rows = tile.launched.shared_axis == "m"
        of = replace(tile, m=0, n=0, stages=0)
        family = _Family(of, rows, tile.n if rows else tile.m, in_one(tile))
        families.setdefault(family, []).append(tile)
    for family, each in families.items():
        every = [*each, *_with_whole_k(family, families)]
        largest = max(every, key=lambda tile: (tile.shared_side, tile.stages))
        near = (largest.stages, largest.stages + 1)
        smaller = (
            tile.shared_side for tile in every if family.in_one or tile.stages in near
        )
        for least in sorted(smaller):
            whole = replace(largest, from_side=least)
            as_wanted = whole.stands_in_one == family.in_one
            if as_wanted and schedule_of(whole).stands_for(whole):
                yield whole
                break


def _with_whole_k(
    family: _Family, families: Mapping[_Family, list[Tile]]
) -> Iterator[Tile]:
    """Those that a tile with parts of K stands for too, though they have K whole."""
    if family.of.split_k != 1:
        whole = family._replace(of=replace(family.of, split_k=1))
        for tile in families.get(whole, ()):
            if not may_part(tile.shared_side, family.rows):
                yield replace(tile, split_k=family.of.split_k)


def known_of(tile: Tile, tiles: Collection[Tile]) -> list[Tile]:
    """Those of some tiles that one stands for, whatever their stages; or itself."""
    if not tile.from_side:
        return [tile] if tile in tiles else []
    members = {replace(one, stages=0) for one in tile.members}
    return [one for one in tiles if replace(one, stages=0) in members]
