"""Producer and consumer warps; all matrices through descriptors."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.schedules.parts.memory import round_up
from gemmgen.schedules.parts.schedule import (
    ONE_AN_SM,
    TILE,
    Kernel,
    Pause,
    Schedule,
    Size,
    too_small,
)
from gemmgen.schedules.parts.search import MOST_STAGES, k_blocks, not_by_descriptors
from gemmgen.schedules.parts.tile import GROUP_M, Product, Tile
from gemmgen.tables.dtypes import MMAS

_NAME = "warp_specialized"
_SIZES: tuple[Size, ...] = (
    *((256, 128, 1, 8, 1), (128, 128, 1, 8, 1), (128, 128, 1, 4, 1)),
    (128, 192, 1, 12, 1),
)
"""Where consumers share columns: where they share rows, m and n change places."""
_ALONG_K: tuple[Size, ...] = ((256, 128, 1, 8, 1), (128, 128, 1, 4, 1))
_HELD: tuple[Size, ...] = (
    (256, 128, 1, 8, 1),
    (128, 128, 2, 8, 1),
    (64, 128, 2, 8, 1),
)
"""The same of tf32, which reads both sides from shared memory or one from registers
(NT and NN, four shapes each, H200)."""
_WARPS = (4, 8, 12)

_HELD_AT_LEAST, _TAKEN = 90e-9, 0.039e-9
"""Seconds of a consumer from a block's arrival to its left side in registers, and for
each element of that (tf32 NN, 4096^3, H200: a block of 128x128x32 takes 0.41 us,
128x128x64 0.75, 128x256x32 0.74; of 256x128x32 0.66, as the unit)."""


def consumers(tile: Tile) -> int:
    """Groups of four warps that multiply; two, with a tile each, or more that share."""
    return max(2, tile.warpgroups)


def takes_turns(tile: Tile) -> bool:
    """Whether two consumers have a tile each."""
    return tile.warpgroups == 1


def why_not(kernel: Kernel) -> str | None:
    """It serves what wgmma reads from shared memory, the left side from registers."""
    mma = kernel.product.mma
    if kernel.product.rights > 1:
        return "its consumers keep one sum, of one right side"
    if mma.terms > 1:
        return f"{mma.name} splits its operands in registers, wgmma reads shared memory"
    if mma.one_k_major and kernel.layout == "TN":
        along_k = f"wgmma reads {mma.name} along K alone"
        return f"{along_k}, which neither matrix of layout TN is"
    return not_by_descriptors(kernel)


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Those of two and three consumers."""
    kind, layout = product.kind, product.layout
    found = _SIZES
    if product.mma.one_k_major:
        found = _HELD if from_registers(kind, layout) else _ALONG_K
    if transposes(kind, layout):
        return found
    return tuple((n, m, k, warps, parts) for m, n, k, warps, parts in found)


def search(product: Product) -> Iterator[Tile]:
    """Tiles of one, two and three groups of consumers."""
    shapes = (
        *((256, 128, 8), (128, 128, 8), (64, 128, 8), (128, 256, 8)),
        *((128, 128, 4), (64, 128, 4), (256, 64, 4), (128, 64, 4), (64, 64, 4)),
        *((128, 192, 12), (64, 192, 12)),
    )
    turned = transposes(product.kind, product.layout)
    for (m, n, warps), k in every(shapes, k_blocks(product, 1, 2)):
        rows, columns = (m, n) if turned else (n, m)
        yield Tile(rows, columns, k, GROUP_M, MOST_STAGES, warps, _NAME)


def by_pointers(kind: str) -> frozenset[str]:
    """Consumers of tf32 store their results from registers.

    There, elements of 4 bytes fill whole sectors, and a tile of them would take the
    room of two stages.
    """
    return frozenset({"results"} if MMAS[kind].one_k_major else ())


def from_registers(kind: str, layout: str) -> bool:
    """In shared memory wgmma reads 4-byte elements along K alone (PTX ISA, wgmma).

    One matrix of NN and of TT does not lie so.
    """
    return MMAS[kind].one_k_major and layout in ("NN", "TT")


def transposes(kind: str, layout: str) -> bool:
    """But for TT in tf32: A lies along M, and wgmma takes such on the left alone."""
    return not (from_registers(kind, layout) and layout == "TT")


def misshapen(tile: Tile) -> str | None:
    """Its warps are consumers of four each."""
    fault = too_small(tile)
    if fault is None and tile.warps not in _WARPS:
        return "has no consumers of four warps each: warps must be 4, 8 or 12"
    return fault


def powers_of_two(tile: Tile) -> set[int]:
    """But for three consumers, of 64 rows or columns each."""
    odd = {12, 192} if tile.warps == 12 else set[int]()
    return {tile.m, tile.n, tile.warps} - odd | {tile.k}


def why_not_compiled(tile: Tile, product: Product) -> str | None:
    """A tile is cut into the parts of its consumers."""
    turned = transposes(product.kind, product.layout)
    axis, shared, whole = ("n", tile.n, tile.m) if turned else ("m", tile.m, tile.n)
    parted = 4 * shared in (64 * tile.warps, 128 * tile.warps, 256 * tile.warps)
    if tile.warps in _WARPS and parted and not whole & (whole - 1):
        return None
    return (
        f"{_NAME} cuts {axis} into a part of 64, 128 or 256 for every 4 of the tile's "
        "warps, which are 4, 8 or 12"
    )


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring, its barriers, consumers' tiles and what is passed to them."""
    stage = product.rows(tile.m, tile.n) * tile.k * product.bytes
    barriers = 2 * round_up(8 * tile.stages, 16) + (32 if takes_turns(tile) else 0)
    passed = 144 + 32 * product.passed + (64 if product.matrix_bytes else 0)
    passed += 16 * (consumers(tile) - 2)
    stores = "results" not in by_pointers(product.kind)
    each = product.tile_bytes if stores else product.matrix_bytes
    tiles = tile.m * tile.n * consumers(tile) // tile.warpgroups * each
    return tile.stages * stage + tiles + barriers + passed


def registers(tile: Tile, product: Product) -> int:
    """Those of the launch; consumers then take 240 or 160, the producer 24."""
    return 168 if consumers(tile) == 2 else 128


def threads(tile: Tile) -> int:
    """Four warps of each consumer, and four of the producer."""
    return 128 * (consumers(tile) + 1)


def spare_tiles(product: Product) -> int:
    """Consumers compute no addresses, which leaves them more registers."""
    return 2


def waits(tile: Tile, product: Product, unit: float) -> float:
    """Consumers load what comes from registers themselves.

    Of those that share a tile, others multiply meanwhile: for half of the unit's time.
    """
    kind, layout = product.kind, product.layout
    if not from_registers(kind, layout):
        return 0.0
    elements = (tile.n if transposes(kind, layout) else tile.m) * tile.k
    hidden = 0.0 if takes_turns(tile) else unit / 2
    return max(0.0, _HELD_AT_LEAST + elements * _TAKEN - hidden)


def between_tiles(tile: Tile, rates: Rates, pause: Pause) -> float:
    """Consumers that share a tile rest for the epilogue.

    Of those with a tile each, one writes while the other multiplies.
    """
    if takes_turns(tile):
        return max(rates.handover, 2 * pause.epilogue - pause.loop)
    return pause.epilogue


def last_epilogues(tile: Tile) -> int:
    """Half of the consumers' warps write the last tile, if each has one of its own."""
    return 2 if takes_turns(tile) else 1


SCHEDULE = Schedule(
    _NAME, "producer and consumer warps", 50, ONE_AN_SM,
    why_not, sizes, search, shared_memory,
    constants=(*TILE, "STAGES", "NUM_WGS"),
    described=frozenset({"inputs", "operands", "results"}),
    persistent=True, specialized=True, unit="wgmma",
    by_pointers=by_pointers, transposes=transposes, from_registers=from_registers,
    misshapen=misshapen, powers_of_two=powers_of_two,
    why_not_compiled=why_not_compiled,
    registers=registers, threads=threads, spare_tiles=spare_tiles,
    waits=waits, between_tiles=between_tiles, last_epilogues=last_epilogues,
)  # fmt: skip
