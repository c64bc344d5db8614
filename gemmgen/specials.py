"""Which tile of which fast schedule serves which shape, before anything is measured.

Candidates by schedule, and a table over classes of M, N and K by the model.
"""

from collections.abc import Sequence
from dataclasses import replace

from gemmgen.dispatch import GROUP_M, Row
from gemmgen.model import FILL, Product, Tile, accumulator_registers, fits
from gemmgen.targets import Target

_BLOCK_BYTES = 128
_SHAPES: dict[str, tuple[tuple[int, int, int, int, int, int], ...]] = {
    "warp_specialized": (
        (128, 256, 1, 3, 8, 1),
        (128, 128, 1, 6, 8, 1),
        (128, 128, 1, 5, 4, 1),
    ),
    "persistent": ((128, 256, 1, 3, 8, 1), (128, 128, 1, 4, 8, 1)),
    "tma": (
        (128, 128, 1, 3, 4, 1),
        (128, 64, 1, 6, 4, FILL),
        (64, 64, 2, 5, 4, FILL),
        (32, 64, 2, 5, 4, FILL),
        (16, 64, 2, 5, 4, FILL),
    ),
    "split_k": ((64, 64, 1, 4, 4, FILL), (16, 64, 2, 4, 4, FILL)),
    "gemv": ((1, 2, 16, 1, 4, 1),),
}
"""(m, n, blocks of 128 bytes along K, stages, warps, split_k) by schedule."""


def specials(
    schedule: str, product: Product, target: Target, burden: int
) -> list[Tile]:
    """The tiles of a schedule that are worth considering; all fit, none should spill.

    `burden` is that of the epilogue, in tiles beside the accumulator.
    """
    if schedule not in _SHAPES or (schedule == "split_k" and target.architecture >= 90):
        return []
    found = []
    for m, n, blocks, stages, warps, split_k in _SHAPES[schedule]:
        k = max(16, blocks * _BLOCK_BYTES // product.bytes)
        tile = Tile(m, n, k, GROUP_M, stages, warps, schedule, split_k)
        while tile.stages > 2 and not fits(tile, product, target):
            tile = replace(tile, stages=tile.stages - 1)
        if fits(tile, product, target) and _holds(tile, product, burden):
            found.append(tile)
    return found


def _holds(tile: Tile, product: Product, burden: int) -> bool:
    """Whether a thread's registers hold the accumulator beside all else.

    The parts of a product split in three live there too. The consumers of a specialized
    kernel compute no addresses, which leaves them more.
    """
    if accumulator_registers(tile, product) <= 64:
        return True
    most = 2 if tile.schedule == "warp_specialized" else 1
    pointers = tile.schedule == "persistent" and product.matrix_bytes > 0
    return product.kind != "tf32x3" and burden + pointers <= most


def special_table(
    tiles: Sequence[Tile], product: Product, target: Target
) -> tuple[Row, ...]:
    """A row for each tile, by how many rows of C it is meant for."""
    ordered = sorted(tiles, key=lambda tile: tile.m * tile.n)
    return tuple(
        Row(target.architecture, None if tile is ordered[-1] else tile.m, None, tile)
        for tile in ordered
    )
