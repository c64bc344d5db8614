"""Shapes spread over all that is called: what costs of tiles are fitted to."""

from collections.abc import Iterator
from itertools import count, islice

from gemmgen.spec.shapes import Shape

_ROWS, _LONGEST = (2, 16384), 28672
"""The least and most of M, the most of N and K, each octave as likely as another..."""
_FEW = (48, 1536)
"""... but every second M is among these, where a choice among tiles matters most."""
_LINE = 64
"""What N and K are multiples of."""
_MOST_FLOPS = 2e12
"""2 M N K at most: three milliseconds of an H200."""
_BASES = (3, 5, 7)


def spread(number: int, start: int = 1, least: int = 256) -> tuple[Shape, ...]:
    """So many shapes, the same ones each time; none of another `start` further on.

    The points of a Halton sequence (Numerische Mathematik 2, 1960) in octaves; N and K
    are `least` or more.
    """
    return tuple(islice(_shapes(start, least), number))


def _shapes(start: int, least: int) -> Iterator[Shape]:
    for place in count(start):
        along = [_radical_inverse(place, base) for base in _BASES]
        m = round(_between(_FEW if place % 2 else _ROWS, along[0]))
        sides = (_between((least, _LONGEST), share) for share in along[1:])
        n, k = (_LINE * round(side / _LINE) for side in sides)
        if 2 * m * n * k <= _MOST_FLOPS:
            yield Shape(m, n, k)


def _between(ends: tuple[int, int], share: float) -> float:
    low, high = ends
    return float(low * (high / low) ** share)


def _radical_inverse(number: int, base: int) -> float:
    """The digits of a number, read backwards behind the point."""
    found, place = 0.0, 1.0
    while number:
        number, digit = divmod(number, base)
        place /= base
        found += digit * place
    return found
