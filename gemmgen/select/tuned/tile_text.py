"""Tiles as people write them in tuning files: `tma 64x64x128 kfill s5 w4`."""

import re
from collections.abc import Iterator

from gemmgen.base.errors import quoted
from gemmgen.schedules import SCHEDULES, schedule_of
from gemmgen.schedules.parts.tile import FILL, GROUP_M, MOST_OF_TILES, Tile

_FORM = re.compile(
    r"(?P<schedule>[a-z_]+) "
    r"((?P<from_m>N)-)?(?P<m>N)x((?P<from_n>N)-)?(?P<n>N)x(?P<k>N)"
    r"( c(?P<ctas>2))?( g(?P<group_m>N))?( k(?P<split_k>N|[24]?fill))?"
    r" s(?P<stages>N) w(?P<warps>N)".replace("N", "[1-9][0-9]{0,3}")
)
_FILLING = {"fill": FILL, "2fill": 2 * FILL, "4fill": 4 * FILL}
_SAID = {parts: text for text, parts in _FILLING.items()}
_LONGER = 8
"""How much longer than in specs the steps along K are of schedules without a ring."""


def format_tile(tile: Tile) -> str:
    """The tile in a line; group_m where it is not 8, split_k where it is not 1.

    Of one that stands for others the side from the least to the largest; of a cluster
    how many CTAs share it.
    """
    sides = {axis: str(getattr(tile, axis)) for axis in "mnk"}
    if tile.from_side:
        axis = tile.launched.shared_axis
        sides[axis] = f"{tile.from_side}-{sides[axis]}"
    parts = [f"{tile.schedule} {'x'.join(sides.values())}"]
    if tile.ctas > 1:
        parts.append(f"c{tile.ctas}")
    if tile.group_m != GROUP_M:
        parts.append(f"g{tile.group_m}")
    if tile.split_k != 1:
        parts.append(f"k{_SAID.get(tile.split_k, tile.split_k)}")
    return " ".join([*parts, f"s{tile.stages}", f"w{tile.warps}"])


def parse_tile(text: str) -> Tile:
    """The tile that a line says; ValueError tells what is wrong with it."""
    match = _FORM.fullmatch(text)
    if match is None or match["schedule"] not in SCHEDULES:
        like = "'tma 64x64x128 kfill s5 w4'"
        raise ValueError(f"tile {quoted(text)} must be like {like}")
    split_k = match["split_k"] or "1"
    tile = Tile(
        int(match["m"]),
        int(match["n"]),
        int(match["k"]),
        int(match["group_m"] or GROUP_M),
        int(match["stages"]),
        int(match["warps"]),
        match["schedule"],
        _FILLING.get(split_k) or int(split_k),
        int(match["from_m"] or match["from_n"] or 0),
        int(match["ctas"] or 1),
    )
    shared = tile.launched.shared_axis
    others = match["from_n" if shared == "m" else "from_m"]
    for wrong in _faults(tile, known=not others):
        raise ValueError(f"tile {quoted(text)} {wrong}")
    return tile


def _faults(tile: Tile, known: bool) -> Iterator[str]:
    """Why no kernel could be launched with such a tile.

    Of one that stands for others it is `known` that their sides are the shared ones.
    """
    schedule = schedule_of(tile)
    if any(number & (number - 1) for number in schedule.powers_of_two(tile)):
        yield "has a side or warps that are no power of two, which Triton needs"
    for name, most in MOST_OF_TILES.items():
        times = _LONGER if schedule.memory_bound and name == "k" else 1
        if getattr(tile, name) > times * most:
            yield f"has {name} {getattr(tile, name)}, which is more than any GPU takes"
    if fault := schedule.misshapen(tile):
        yield fault
    if tile.from_side and not (known and schedule.stands_for(tile)):
        yield "stands for tiles of sides that nothing is known of"
    if tile.ctas > 1 and not (schedule.specialized and tile.split_k == 1):
        yield f"is a cluster's, which {tile.schedule} has none of, or not in parts of K"
    if tile.split_k != 1 and not schedule.splits:
        yield f"cuts K into parts, which {tile.schedule} does not"
