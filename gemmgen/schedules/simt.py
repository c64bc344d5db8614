"""Multiply-adds of fp32 from shared memory, which blocks reach past the registers."""

from collections.abc import Iterator

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.schedules.parts.schedule import TILE, Kernel, Schedule, Size
from gemmgen.schedules.parts.search import k_blocks
from gemmgen.schedules.parts.tile import FILL, GROUP_M, Product, Tile
from gemmgen.tables.layouts import LAYOUTS

_NAME = "simt"
_SIZES: tuple[Size, ...] = (
    *((256, 128, 1, 8, 1), (128, 256, 1, 8, 1), (128, 128, 1, 8, 1)),
    *((64, 128, 1, 4, 1), (64, 64, 1, 4, 1), (32, 128, 1, 4, 1), (32, 64, 1, 4, 1)),
    *((64, 128, 1, 4, 2 * FILL), (64, 64, 1, 4, 2 * FILL), (32, 64, 1, 4, 2 * FILL)),
    *((32, 128, 1, 4, 2 * FILL), (16, 128, 1, 4, 2 * FILL)),
)
_IN_PARTS = (FILL, 2 * FILL, 4 * FILL)
"""Of K: as many as give each SM one, two or four programs, one if tiles are as many."""
_LEAST_STAGES = 2
"""One block is copied while another is multiplied."""
_STAGES, _OF_MANY_SUMS = 3, 2
"""Those that are tried. With 4 an SM has room for three programs of 64 x 64, not four,
and takes 4 % longer (H200)."""
_MANY_SUMS = 64
"""Of a thread, beyond which it keeps less else in registers."""
_REGISTERS = ((1.25, 56), (2, 76), (3, 64))
"""By how many sides lie along K, of which more is read at a time: registers for each
sum of a thread, and those beside (Triton 3.6, sm_90, sixteen tiles)."""


def why_not(kernel: Kernel) -> str | None:
    """It serves fp32 that is multiplied as it is, with one right side."""
    mma = kernel.product.mma
    if mma.unit != "fma":
        return f"{mma.title or mma.name} has a tensor core, simt has multiply-adds"
    if kernel.product.rights > 1:
        return "its threads keep one sum, of one right side"
    return None


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Those of which a thread has 16 to 128 sums."""
    return _SIZES


def search(product: Product) -> Iterator[Tile]:
    """The same and others, with K in parts where tiles do not fill SMs."""
    (k,) = k_blocks(product, 1)
    shapes = dict.fromkeys((m, n, warps) for m, n, _, warps, _ in _SIZES)
    shapes |= dict.fromkeys(((128, 128, 4), (128, 64, 4), (16, 64, 4), (32, 32, 4)))
    for m, n, warps in shapes:
        many = m * n > 32 * warps * _MANY_SUMS
        for parts in _IN_PARTS:
            stages = _OF_MANY_SUMS if many else _STAGES
            yield Tile(m, n, k, GROUP_M, stages, warps, _NAME, parts)


def why_not_compiled(tile: Tile, product: Product) -> str | None:
    """It has a ring."""
    if tile.stages < _LEAST_STAGES:
        return f"{_NAME} copies ahead: stages must be {_LEAST_STAGES} or more"
    return None


def spills(tile: Tile, product: Product) -> bool:
    """Many sums do where both sides lie along K, of which more is read at a time.

    Those spill 72 to 160 bytes, with three stages in TT 48 to 216; threads that are to
    make do with 128 registers 8, in TN with two stages (Triton 3.6 to 3.9, sm_90).
    """
    sums, along_k = accumulator_registers(tile, product), _along_k(product)
    if sums > _MANY_SUMS:
        return along_k == 2 or (along_k == 1 and tile.stages > _OF_MANY_SUMS)
    few = along_k == 0 and tile.stages < _STAGES
    return few and sums == _MANY_SUMS and tile.warps == 4


def _along_k(product: Product) -> int:
    """How many sides lie along K."""
    layout = LAYOUTS[product.layout]
    return (not layout.a_transposed) + layout.b_transposed


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """The ring, used again where the sum changes its layout."""
    return tile.stages * product.rows(tile.m, tile.n) * tile.k * product.bytes


def registers(tile: Tile, product: Product) -> int:
    """The sum, the rows and columns that are multiplied, and those read ahead."""
    each, beside = _REGISTERS[_along_k(product)]
    return min(255, int(each * accumulator_registers(tile, product)) + beside)


SCHEDULE = Schedule(
    _NAME, "multiply-adds from a ring of blocks", 45,
    why_not, sizes, search, shared_memory,
    title_of_splits="multiply-adds for a tile, or a split of its K",
    constants=(*TILE, "STAGES"), splits=True, by_fma=True,
    why_not_compiled=why_not_compiled, spills=spills, registers=registers,
)  # fmt: skip
