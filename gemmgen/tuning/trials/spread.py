"""Shapes spread over all that is called: what costs of tiles are fitted to."""

from collections.abc import Iterator
from itertools import count, islice

from gemmgen.spec.shapes import Shape

_ROWS, _LONGEST = (2, 16384), 28672
"""The least and most of M, the most of N and K, each octave as likely as another..."""
_FEW = (48, 1536)
"""... but every second M is among these, where a choice among tiles matters most."""
_LINES = (64, 64)
"""What N and K are multiples of, unless asked for others..."""
_WIDTH = 8
"""... those of every other pair of shapes also of an eighth of the power of two below,
as the widths of models are: 4096, 4608, 5120 and so on up to 8192..."""
_BATCH = 2
"""... and M of every other four of a half, as batches and lengths of texts are. There
whole waves of tiles, or a tile more, decide, which other sizes seldom meet."""
MOST_FLOPS = 2e12
"""2 M N K of what is timed: three milliseconds of an H200. Above, tiles differ in
little but their waves."""
_BASES = (3, 5, 7)


def spread(
    number: int,
    start: int = 1,
    least: int = 256,
    lines: tuple[int, int] = _LINES,
) -> tuple[Shape, ...]:
    """So many shapes, the same ones each time; none of another `start` further on.

    The points of a Halton sequence (Numerische Mathematik 2, 1960) in octaves; N and K
    are `least` or more, and multiples of `lines`.
    """
    return tuple(islice(_shapes(start, least, lines), number))


def _shapes(start: int, least: int, lines: tuple[int, int]) -> Iterator[Shape]:
    for place in count(start):
        along = [_radical_inverse(place, base) for base in _BASES]
        m = round(_between(_FEW if place % 2 else _ROWS, along[0]))
        sides = (_between((least, _LONGEST), share) for share in along[1:])
        pairs = zip(sides, lines, strict=True)
        n, k = (line * round(side / line) for side, line in pairs)
        if place // 2 % 2 and lines == _LINES:
            both = (_rounded(side, _WIDTH) for side in (n, k))
            n, k = (
                line * round(side / line)
                for side, line in zip(both, lines, strict=True)
            )
        if place // 4 % 2:
            m = _rounded(m, _BATCH)
        if 2 * m * n * k <= MOST_FLOPS:
            yield Shape(m, n, k)


def _between(ends: tuple[int, int], share: float) -> float:
    low, high = ends
    return float(low * (high / low) ** share)


def _rounded(size: int, parts: int) -> int:
    """To a multiple of the power of two below, divided into so many parts."""
    step = max(1, (1 << size.bit_length() - 1) // parts)
    return step * round(size / step)


def _radical_inverse(number: int, base: int) -> float:
    """The digits of a number, read backwards behind the point."""
    found, place = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        place /= base
        found += digit * place
    return found
