"""Rows times the matrix without a tensor core: B streams past rows of A."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.schedules.parts.memory import threads_of
from gemmgen.schedules.parts.schedule import Kernel, Pause, Schedule, Size
from gemmgen.schedules.parts.search import k_blocks
from gemmgen.schedules.parts.tile import GROUP_M, Product, Tile
from gemmgen.tables.layouts import LAYOUTS

_UNROLLED = 4
"""Blocks that its loop loads at a time."""
_WIDEST_LOADS = 16
"""Bytes of a row of B for each thread: less would halve its loads."""
_MOST_AT_ONCE = 64
"""... and more would fill the registers, for several blocks are loaded at a time."""


def why_not(kernel: Kernel) -> str | None:
    """It serves a B that lies along K."""
    if not LAYOUTS[kernel.layout].b_transposed:
        return f"gemv streams B along K; in layout {kernel.layout} it lies along N"
    return None


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """One column and a warp at a time."""
    return ((1, 1, 4, 1, 1),)


def search(product: Product) -> Iterator[Tile]:
    """Those whose threads load enough of a row, and not too much."""
    lengths = k_blocks(product, 4, 8, 16, 32)
    for n, k, warps in every((1, 2, 4), lengths, (1, 4, 8)):
        if _WIDEST_LOADS <= k * product.bytes / (32 * warps) <= _MOST_AT_ONCE:
            yield Tile(1, n, k, GROUP_M, 1, warps, "gemv")


def misshapen(tile: Tile) -> str | None:
    """Its tiles are of one row."""
    return "has more rows than the one that gemv computes" if tile.m != 1 else None


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """No ring: a row of A is loaded along K, or along M and then reordered."""
    columns = tile.n * tile.warps
    row = tile.k if LAYOUTS[product.layout].a_transposed else columns
    return 4 * product.mma.accumulator_words * max(row, columns)


def registers(tile: Tile, product: Product) -> int:
    """The products, summed last, four blocks loaded, addresses."""
    return product.rights * (tile.n * tile.k // threads_of(tile)) + 56


def between_tiles(tile: Tile, rates: Rates, pause: Pause) -> float:
    """Nothing: programs beside it keep memory busy."""
    return 0.0


def reads_again(m: int, n: int, k: int) -> int:
    """Every row of A streams B once."""
    return (m - 1) * n * k


def ramp(rates: Rates) -> float:
    """None: of a stream of small programs, some have loads under way at any time."""
    return 0.0


SCHEDULE = Schedule(
    "gemv", "rows times the matrix, no tensor core", 60,
    why_not, sizes, search, shared_memory,
    constants=("BLOCK_N", "BLOCK_K"), memory_bound=True, unrolled=_UNROLLED,
    # Above 4 rows a tensor core wins even where memory is the limit.
    most_rows=1, most_rows_timed=4,
    misshapen=misshapen, registers=registers, between_tiles=between_tiles,
    reads_again=reads_again, ramp=ramp,
)  # fmt: skip
