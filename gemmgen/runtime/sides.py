"""What tiles take up: sides, which warps cut into pieces, lines of rows, and buffers.

Without torch or triton: the generator reckons with the same.
"""

from collections.abc import Sequence
from typing import Any

# What wgmma takes for a piece of so many columns beside 64 rows of 32 bytes, which it
# reads in registers (16 bits, H200; of tiles of 136 to 256 rows, within 2 %).
CLOCKS = {8: 10, 16: 13, 32: 17, 64: 31, 128: 64}

LINE, SECTOR = 128, 32  # bytes of L2: what has an address of its own, what is moved

# Elements of 128 bytes, the lines in which columns of C are moved, and what may be left
# of them, which has a descriptor and a layout in shared memory of its own.
COLUMNS, RESTS = 64, (0, 8, 16, 32)

# Rows along K of the boxes in which a side is moved: more to a box, and a ring would
# have to leave more rows empty behind sides that are no multiples of it.
BOX = 32
# A tile that stands for others stands for tiles in pieces from so many rows on; from
# fewer, for tiles in one.
IN_PIECES = 144
# Rows of the lowest such tile whose block takes as long to multiply as to load; from
# there to 200 rows its time is in proportion to them, within 2 % (128, 192, 256
# columns, bf16 NT, H200).
LOADED = 80
# Rows of 128 bytes of a ring that is larger than any buffer beside it: those have 64
# KiB at most.
LARGER = 512


def most_columns(warpgroups: int) -> int:
    """Return how many columns wgmma multiplies at a time for so many groups of warps.

    Of three, each thread has 128 registers when the kernel begins, where 256 columns
    take 154 (ptxas 12.8).
    """
    return 256 if warpgroups < 3 else 128


def most_in_one(warpgroups: int) -> int:
    """Return the registers of a sum whose columns are multiplied in one, at most.

    With more ptxas 12.8 spills; threads of three groups have 128 in all to begin with.
    """
    return 200 if warpgroups < 3 else 100


def most_stored(rows: int, columns: int, cuts_columns: bool, ctas: int = 1) -> int:
    """Return how many rows of a tile are stored at a time, or columns if rows are cut.

    Of the columns of a cluster's tile each CTA has a part.

    128 of up to 128 x 128, and of 256 x 128. Other large ones are stored in parts whose
    buffers leave room for a stage more: 192 x 192 takes 140 us in four stages, 163 in
    three (384x37888x3584, H200). Columns are whole lines, 64 at least.
    """
    columns //= ctas
    if rows * columns <= 128 * 128 or (rows, columns) == (256, 128):
        return 128
    lines = 8192 // (columns if cuts_columns else rows)
    return max(32 if cuts_columns else 64, 1 << lines.bit_length() - 1)


def cuts(side: int, warpgroups: int) -> bool:
    """Return whether each of so many groups of warps can have a slice of a side.

    Slices are rows of what is multiplied, 64 of which wgmma takes.
    """
    return side in (64 * warpgroups, 128 * warpgroups, 256 * warpgroups)


def pieces(side: int, most: int) -> tuple[int, ...]:
    """Return the powers of two that a side is the sum of, none above `most`.

    Blocks in registers and in shared memory have such sides. The largest come first.
    """
    found = [most] * (side // most)
    for power in (most >> shift for shift in range(1, most.bit_length())):
        found += [power] * bool(side % most & power)
    return tuple(found)


def box(side: int, most: int) -> int:
    """Return the rows of the boxes in which a side is moved along K.

    The last box may be smaller: as the smallest piece.
    """
    *larger, least = pieces(side, most)
    return min(larger[-1], max(BOX, side & -side)) if larger else least


def reserved(side: int) -> int:
    """Return the rows of a ring's stage for a side that is multiplied in one.

    Each box begins at a multiple of its rows, so that shared memory can be seen as an
    array of such boxes.
    """
    return -(-side // BOX) * BOX


def rows_of_ring(stage: int, part: int, stages: int) -> int:
    """Return the rows of a ring of stages of so many rows, in whole parts.

    A part is what a consumer has of the side that is cut.
    """
    return -(-stages * stage // part) * part


def in_one(side: int, part: int, most: int, ring: int) -> bool:
    """Return whether one wgmma multiplies all pieces of a side, if rows lie along K.

    Each consumer multiplies it by a `part`, with sums of at most `most` registers. It
    reads that part once for all pieces, and takes up to 40 % less time (bf16 NT, H200).
    The `ring` must be what Triton places first, the largest of all: buffers of parts of
    256 rows may be larger.
    """
    few = part <= 128 and part * side <= 128 * most
    return side & (side - 1) > 0 and few and ring > LARGER


def heights(least: int, most: int) -> list[int]:
    """Return the rows from `least` to `most` of tiles that differ in rows alone.

    Those in pieces are multiples of 16; 48 more than one of 64 take as long as 64 more.
    Those in one are multiples of 8; a power of two has one piece.
    """
    if least < IN_PIECES:
        return list(range(least, most + 1, 8))
    return [side for side in range(least, most + 1, 16) if side % 64 != 48]


def stood_for(
    least: int, most: int, warpgroups: int, rows: bool
) -> list[tuple[int, bool]]:
    """Return the rows, else columns, of tiles that one stands for, as `heights` has.

    And whether K may come in parts. Columns that could be cut would be, not rows.
    """
    return [
        (side, may_part(side, rows))
        for side in heights(least, most)
        if rows or (side % COLUMNS in RESTS and not cuts(side, warpgroups))
    ]


def may_part(side: int, rows: bool) -> bool:
    """Return whether K may come in parts: their sums stay in registers.

    They do not if rows are four pieces, as 120 is, or columns three.
    """
    return side.bit_count() <= (3 if rows else 2)


def share(side: int, most: int, least: int) -> float:
    """Return what part of the time of a block of `most` rows one of fewer takes.

    Both are among the `heights` from `least` on.
    """
    if least < IN_PIECES:
        return max(side, LOADED) / max(most, LOADED)
    return clocks(side) / clocks(most)


def clocks(side: int) -> int:
    """Return what wgmma takes for all pieces of a side, by `CLOCKS`."""
    return sum(CLOCKS[piece] for piece in pieces(side, max(CLOCKS)))


def reused_buffers(
    operands: Sequence[Any], results: Sequence[Any]
) -> tuple[int | None, ...]:
    """Return the operand [m, n] whose buffer each result reuses; None for its own.

    Both are given as types: a tile can lie where one of its type was read.
    """
    found: list[int | None] = []
    for kind in results:
        alike = (at for at, own in enumerate(operands) if own == kind)
        found.append(next((at for at in alike if at not in found), None))
    return tuple(found)


def cut(start: int) -> tuple[float, float]:
    """Return which shares of rows of 128 bytes lie in two lines, in five sectors.

    Of rows that begin at multiples of `start` bytes; the others lie in one line.
    """
    five = max(0.0, 1 - start / SECTOR)
    return 1 - start / LINE - five, five
