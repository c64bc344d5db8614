"""The tiles that a spec lists: completed, for each schedule that may compute them.

Refuses what a target cannot hold or Triton cannot compile, with the nearest that can.
"""

from collections.abc import Iterator
from dataclasses import replace

from gemmgen.base.errors import SpecError
from gemmgen.cost.resources import fits, shared_memory, why_not_compiled
from gemmgen.cost.time import best_stages
from gemmgen.hardware.targets import Target
from gemmgen.schedules import SCHEDULES, schedule_of, why_not
from gemmgen.schedules.parts.schedule import Kernel
from gemmgen.schedules.parts.tile import (
    FALLBACK,
    GROUP_M,
    Product,
    Tile,
    nearest_fitting,
)
from gemmgen.spec.parse import KernelSpec
from gemmgen.spec.schema import AUTO

_IN_PARTS = next(
    name for name, row in SCHEDULES.items() if row.splits and not row.described
)
"""The schedule that serves every call in parts of K."""


_RACE = "autotune: runtime"


def serving(spec: KernelSpec, product: Product, target: Target) -> list[str]:
    """The schedules that the spec allows and that can serve it on a target."""
    by_itself = [name for name, row in SCHEDULES.items() if row.auto]
    wanted = by_itself if AUTO in spec.schedule else spec.schedule
    kernel = Kernel(spec.layout, product, target)
    return [name for name in wanted if why_not(name, kernel) is None]


def completed(spec: KernelSpec, product: Product, target: Target) -> list[Tile]:
    """The spec's tiles, for each schedule that may compute them, completed."""
    tiles = []
    usable = serving(spec, product, target)
    for given in spec.tiles:
        if AUTO in spec.schedule:
            schedules = [_IN_PARTS if (given.split_k or 1) > 1 else FALLBACK]
        else:
            schedules = [name for name in spec.schedule if name in usable]
        for schedule in schedules:
            tile = Tile(
                given.m,
                given.n,
                given.k,
                given.group_m or GROUP_M,
                given.stages or 2,
                given.warps or _default_warps(given.m, given.n, product),
                schedule,
                given.split_k or 1,
            )
            if not given.stages:
                tile = replace(tile, stages=best_stages(tile, product, target) or 2)
            tiles.append(tile)
    return tiles


def _default_warps(m: int, n: int, product: Product) -> int:
    """Warps that keep the accumulator at 64 registers a thread, 4 to 8."""
    words = m * n * product.rights * product.mma.accumulator_words
    return 4 if words <= 64 * 32 * 4 else 8


def misfits(
    spec: KernelSpec, product: Product, listed: dict[Target, list[Tile]]
) -> Iterator[SpecError]:
    """The tiles that a target cannot run."""
    for target, tiles in listed.items():
        for position, tile in enumerate(tiles):
            reason = _odd_side(tile) or why_not_compiled(tile, product, target)
            if not fits(tile, product, target):
                reason = reason or _too_big(tile, product, target)
            if reason:
                index = position * len(spec.tiles) // len(tiles)  # one a schedule
                yield SpecError(spec.at("tiles", index), reason)


def unraced(spec: KernelSpec) -> Iterator[SpecError]:
    """What Triton's autotuner, which races tiles of one kernel, cannot choose from."""
    if not spec.tiles:
        yield SpecError(spec.at("autotune"), f"{_RACE} needs a list of tiles")
    for index, name in enumerate(spec.schedule):
        if name not in (AUTO, FALLBACK):
            said = f"{_RACE} times tiles of schedule {FALLBACK}, not of {name}"
            yield SpecError(spec.at("schedule", index), said)
    for index, tile in enumerate(spec.tiles):
        if (tile.split_k or 1) > 1:
            said = f"{_RACE} times tiles of a whole K, not split_k={tile.split_k}"
            yield SpecError(spec.at("tiles", index, "split_k"), said)


def _odd_side(tile: Tile) -> str | None:
    """Why a schedule cannot compute such a side, or warps, which only some compose."""
    needed = schedule_of(tile).powers_of_two(tile)
    sides = {"m": tile.m, "n": tile.n, "warps": tile.warps}
    odd = [axis for axis, side in sides.items() if side & (side - 1) and side in needed]
    if not odd:
        return None
    axis, side = odd[0], sides[odd[0]]
    power = 1 << (side.bit_length() - 1)
    composing = " or ".join(
        name for name, row in SCHEDULES.items() if side not in row.powers_of_two(tile)
    )
    return (
        f"tile {axis}={side} is not a power of two, which Triton needs but in schedule "
        f"{composing}; nearest: {power}, {2 * power}"
    )


def _too_big(tile: Tile, product: Product, target: Target) -> str:
    """The message for a tile whose shared memory is over the limit."""
    near = nearest_fitting(tile, lambda one: fits(one, product, target))
    advice = (
        f"; nearest that fits: {{m: {near.m}, n: {near.n}, k: {near.k}, "
        f"stages: {near.stages}}}"
        if near
        else ""
    )
    return (
        f"tile {tile.m}x{tile.n}x{tile.k} with {tile.stages} stages needs "
        f"{shared_memory(tile, product, target)} bytes of shared memory; {target.name} "
        f"has {target.shared_per_block} for a block{advice}"
    )


def schedule_text(spec: KernelSpec) -> str:
    """The schedule as the spec gives it, for the header."""
    names = spec.schedule
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def tiles_text(spec: KernelSpec) -> str:
    """The tiles as the spec gives them, for the header."""
    texts = []
    for tile in spec.tiles:
        given = tile.model_dump(exclude_none=True)
        texts.append("{" + ", ".join(f"{k}: {v}" for k, v in given.items()) + "}")
    if not texts:
        return "auto"
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
