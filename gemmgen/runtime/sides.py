"""What tiles take up: sides, which warps cut into pieces, lines of rows, and buffers.

Without torch or triton: the generator reckons with the same.
"""

from collections.abc import Sequence
from typing import Any

# What wgmma takes for a piece of so many columns beside 64 rows of 32 bytes, which it
# reads in registers (16 bits, H200; of tiles of 136 to 256 rows, within 2 %).
CLOCKS = {8: 10, 16: 13, 32: 17, 64: 31, 128: 64}

LINE, SECTOR = 128, 32  # bytes of L2: what has an address of its own, what is moved


def most_columns(warpgroups: int) -> int:
    """Return how many columns wgmma multiplies at a time for so many groups of warps.

    Of three, each thread has 128 registers when the kernel begins, where 256 columns
    take 154 (ptxas 12.8).
    """
    return 256 if warpgroups < 3 else 128


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


def heights(least: int, most: int) -> list[int]:
    """Return the rows from `least` to `most` of tiles that differ in rows alone.

    Those are multiples of 16; 48 more than one of 64 take as long as 64 more.
    """
    return [side for side in range(least, most + 1, 16) if side % 64 != 48]


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
