"""A row or a column times a matrix, no tensor core: the matrix streams past it."""

from collections.abc import Iterator
from itertools import product as every

from gemmgen.hardware.targets import Rates, Target
from gemmgen.schedules.parts.memory import threads_of
from gemmgen.schedules.parts.schedule import Kernel, Pause, Schedule, Size
from gemmgen.schedules.parts.search import k_blocks
from gemmgen.schedules.parts.tile import FILL, GROUP_M, Product, Tile
from gemmgen.tables.layouts import LAYOUTS

_UNROLLED = 4
"""Blocks that its loop loads at a time."""
_WIDEST_LOADS = 16
"""Bytes of a block for each thread: less would halve its loads."""
_MOST_AT_ONCE = 64
"""... and more would fill the registers, for several blocks are loaded at a time."""
_Lines = tuple[int, int, int, int]
"""Lines of the matrix that streams, blocks of K or k, warps, parts of K."""


def why_not(kernel: Kernel) -> None:
    """Nothing keeps it from serving."""


def sizes(product: Product, target: Target) -> tuple[Size, ...]:
    """Lines along K for a warp, four where K is short; or many side by side, in parts.

    A tensor core reads rows of B that lie along N as fast, in blocks of 16 bits that it
    multiplies as they are: gemv took 0.99 to 1.10 times as long as tma (bf16, NN, nine
    shapes of one row, H100), but 0.43 and 0.64 in ieee and tf32 (4096 x 4096).
    """
    layout, mma = LAYOUTS[product.layout], product.mma
    along: tuple[_Lines, ...] = ((1, 4, 1, 1), (4, 4, 1, 1))
    across: tuple[_Lines, ...] = ((64, 1, 4, 4 * FILL),)
    if not _comes_in_parts(product):
        across = ((16, 4, 4, 1),)
    of_a = across if layout.a_transposed else along
    of_b = along if layout.b_transposed else across
    if product.layout == "NN" and mma.unit == "matrix" and not mma.k_major:
        of_b = ()
    columns = [(lines, 1, k, warps, parts) for lines, k, warps, parts in of_a]
    rows = [(1, lines, k, warps, parts) for lines, k, warps, parts in of_b]
    return tuple(dict.fromkeys([*columns, *rows]))


def _comes_in_parts(product: Product) -> bool:
    """Whether parts of K can meet: in one sum, in fp32."""
    return product.rights == 1 and product.mma.accumulator_words == 1


def search(product: Product) -> Iterator[Tile]:
    """Those whose threads load enough of a line, and not too much."""
    layout, found = LAYOUTS[product.layout], list[Tile]()
    for lines, k, warps, parts in _searched(product, not layout.a_transposed):
        found.append(Tile(lines, 1, k, GROUP_M, 1, warps, "gemv", parts))
    for lines, k, warps, parts in _searched(product, layout.b_transposed):
        found.append(Tile(1, lines, k, GROUP_M, 1, warps, "gemv", parts))
    yield from dict.fromkeys(found)


def _searched(product: Product, along_k: bool) -> Iterator[_Lines]:
    """Lines, k, warps and parts of tiles of a matrix that lies along K or not."""
    parts = (1, FILL, 4 * FILL) if _comes_in_parts(product) else (1,)
    tried = every((1, 2, 4), k_blocks(product, 4, 8, 16, 32), (1, 4, 8), (1,))
    if not along_k:
        tried = every((16, 32, 64, 128), k_blocks(product, 0.5, 1, 2), (4,), parts)
    for lines, k, warps, split_k in tried:
        line = k if along_k else lines * k
        if _WIDEST_LOADS <= line * product.bytes / (32 * warps) <= _MOST_AT_ONCE:
            yield lines, k, warps, split_k


def misshapen(tile: Tile) -> str | None:
    """Its tiles are of one row or of one column."""
    return "has several rows and columns" if min(tile.m, tile.n) > 1 else None


def passes(tile: Tile, product: Product, sizes: tuple[int, int, int]) -> int:
    """B streams past each row of A, or A past each column of B.

    Where these lie along K, several lines are for a K that a line loads at a time;
    where they do not, one line has nothing beside it to load.
    """
    (m, n, k), layout = sizes, LAYOUTS[product.layout]
    short, counts = k <= _UNROLLED * tile.k, [m * n]
    if tile.m == 1 and (tile.n == 1 or short if layout.b_transposed else tile.n > 1):
        counts.append(m)
    if tile.n == 1 and (tile.m > 1 if layout.a_transposed else tile.m == 1 or short):
        counts.append(n)
    return min(counts)


def shared_memory(tile: Tile, product: Product, target: Target) -> int:
    """No ring: the sums of all warps, and a row that is loaded in another order."""
    lines, layout = max(tile.m, tile.n) * tile.warps, LAYOUTS[product.layout]
    row = lines if layout == LAYOUTS["NT"] else tile.k
    return 4 * product.mma.accumulator_words * max(row, lines)


def registers(tile: Tile, product: Product) -> int:
    """The products, summed last, four blocks loaded, addresses."""
    block = product.rights * tile.m * tile.n * tile.k
    return min(255, block // threads_of(tile) + 56)


def between_tiles(tile: Tile, rates: Rates, pause: Pause) -> float:
    """What is outside of a program's loop: all programs of an SM come to it together.

    65,536 rows of 256 elements in bf16 took 44 us with a row a program, with eight 15.5
    (H100).
    """
    return rates.tile


def ramp(rates: Rates) -> float:
    """None: of a stream of small programs, some have loads under way at any time."""
    return 0.0


SCHEDULE = Schedule(
    "gemv", "a row or a column times the matrix, no tensor core", 60,
    why_not, sizes, search, shared_memory,
    title_of_splits="a row or a column times the matrix or a split of its K, no tensor "
    "core",
    constants=("BLOCK_M", "BLOCK_N", "BLOCK_K"), splits=True,
    memory_bound=True, unrolled=_UNROLLED,
    misshapen=misshapen, registers=registers, between_tiles=between_tiles,
    passes=passes, ramp=ramp,
)  # fmt: skip
