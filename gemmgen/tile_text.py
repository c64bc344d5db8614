"""Tiles as people write them in tuning files: `tma 64x64x128 kfill s5 w4`."""

import re

from gemmgen.model import FILL, Tile
from gemmgen.schedules import SCHEDULES

_FORM = re.compile(
    r"(?P<schedule>[a-z_]+) (?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)( g(?P<group_m>\d+))?"
    r"( k(?P<split_k>\d+|fill))?( s(?P<stages>\d+))( w(?P<warps>\d+))"
)
_GROUP_M = 8


def spelled(tile: Tile) -> str:
    """The tile in a line; group_m where it is not 8, split_k where it is not 1."""
    parts = [f"{tile.schedule} {tile.m}x{tile.n}x{tile.k}"]
    if tile.group_m != _GROUP_M:
        parts.append(f"g{tile.group_m}")
    if tile.split_k != 1:
        parts.append("kfill" if tile.split_k == FILL else f"k{tile.split_k}")
    return " ".join([*parts, f"s{tile.stages}", f"w{tile.warps}"])


def parsed(text: str) -> Tile:
    """The tile that a line says; ValueError tells what is wrong with it."""
    match = _FORM.fullmatch(text)
    if match is None or match["schedule"] not in SCHEDULES:
        raise ValueError(f"tile {text!r} must be like 'tma 64x64x128 kfill s5 w4'")
    split_k = match["split_k"] or "1"
    return Tile(
        int(match["m"]),
        int(match["n"]),
        int(match["k"]),
        int(match["group_m"] or _GROUP_M),
        int(match["stages"]),
        int(match["warps"]),
        match["schedule"],
        FILL if split_k == "fill" else int(split_k),
    )
