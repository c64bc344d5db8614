"""Tiles as people write them in tuning files: `tma 64x64x128 kfill s5 w4`."""

import re
from collections.abc import Iterator

from gemmgen.base.errors import quoted
from gemmgen.cost.tile import FILL, GROUP_M, Tile
from gemmgen.spec.schema import MAX_SIDE
from gemmgen.tables.schedules import SCHEDULES

_FORM = re.compile(
    r"(?P<schedule>[a-z_]+) (?P<m>N)x(?P<n>N)x(?P<k>N)( g(?P<group_m>N))?"
    r"( k(?P<split_k>N|[24]?fill))? s(?P<stages>N) w(?P<warps>N)".replace(
        "N", "[1-9][0-9]{0,3}"
    )
)
_FILLING = {"fill": FILL, "2fill": 2 * FILL, "4fill": 4 * FILL}
_SAID = {parts: text for text, parts in _FILLING.items()}
_MOST = {
    **dict.fromkeys("mnk", MAX_SIDE),
    **{"group_m": 64, "split_k": 64, "stages": 12, "warps": 16},
}
"""As in specs; gemv, which keeps no block, takes longer steps along K."""
_LEAST_SIDE = 16
"""What a tensor core multiplies at least; gemv uses none."""


def spelled(tile: Tile) -> str:
    """The tile in a line; group_m where it is not 8, split_k where it is not 1."""
    parts = [f"{tile.schedule} {tile.m}x{tile.n}x{tile.k}"]
    if tile.group_m != GROUP_M:
        parts.append(f"g{tile.group_m}")
    if tile.split_k != 1:
        parts.append(f"k{_SAID.get(tile.split_k, tile.split_k)}")
    return " ".join([*parts, f"s{tile.stages}", f"w{tile.warps}"])


def parsed(text: str) -> Tile:
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
    )
    for wrong in _faults(tile):
        raise ValueError(f"tile {quoted(text)} {wrong}")
    return tile


def _faults(tile: Tile) -> Iterator[str]:
    """Why no kernel could be launched with such a tile."""
    sides = (tile.m, tile.n, tile.k)
    numbers = {tile.m, tile.n, tile.warps}
    if tile.specialized and tile.warps == 12:
        numbers -= {12, 192}  # three consumers, of 64 rows or columns each
    if any(number & (number - 1) for number in (*numbers, tile.k)):
        yield "has a side or warps that are no power of two, which Triton needs"
    for name, most in _MOST.items():
        if getattr(tile, name) > most * (8 if tile.streams and name == "k" else 1):
            yield f"has {name} {getattr(tile, name)}, which is more than any GPU takes"
    if tile.streams and tile.m != 1:
        yield "has more rows than the one that gemv computes"
    if not tile.streams and min(sides) < _LEAST_SIDE:
        yield f"has a side under {_LEAST_SIDE}"
    if tile.specialized and tile.warps not in (4, 8, 12):
        yield "has no consumers of four warps each: warps must be 4, 8 or 12"
    if tile.split_k != 1 and not SCHEDULES[tile.schedule].splits:
        yield f"cuts K into parts, which {tile.schedule} does not"
