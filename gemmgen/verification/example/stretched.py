"""Cases beyond what a table's tiles allow: many tiles, long sums, many parts of K.

A kernel takes any tile, so that the interpreter sees whole grids of small ones, and
long sides of a few wide ones. A GPU has room for the sizes as they are.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.cases.data import CANCELLING
from gemmgen.verification.example.edge_cases import few_rows, numbered
from gemmgen.verification.example.subject import Variant
from gemmgen.verification.oracle.comparison import Block

GROUP = 2
"""Tiles of a group, so that few are more than one."""
_LONG = 70_000
"""Rows or columns, more than 16 bits count."""
_LONG_K = 2**16 + 48
_MOST_PARTS = 64
_FEW_PROGRAMS, _MANY_PROGRAMS = 12, 40
"""Tiles times K blocks times parts of a drawn case; each takes about 3 ms."""
_PROGRAMS = 65_535 + 65
"""More than the second and third axis of a grid can have."""


def small(variant: Variant) -> Variant:
    """The same kernel with the least tile that differs along every side."""
    if variant.specialized:
        return variant
    return variant.cut_to(_block(variant, 16, 32, 64), group_m=GROUP)


def _block(variant: Variant, m: int, n: int, k: int) -> Block:
    """A tile; where a matrix streams through, of one row, or column, and few others."""
    if not _streams(variant):
        return Block(m, n, k)
    return Block(n // 8, 1, k) if variant.of_a_column else Block(1, n // 8, k)


def _streams(variant: Variant) -> bool:
    """Whether a matrix streams past a row or a column."""
    return SCHEDULES[variant.schedule].memory_bound


def _sides(plan: Plan, variant: Variant, length: int) -> tuple[int, int]:
    """M and N: few rows of such a length, one where a matrix streams, or one column."""
    if variant.of_a_column:
        return length, 1
    return 1 if _streams(variant) else few_rows(plan), length


def _splits(variant: Variant) -> bool:
    """Whether K may be cut into parts."""
    return SCHEDULES[variant.schedule].splits


def stretched(plan: Plan, variant: Variant) -> Iterator[tuple[Variant, Case]]:
    """Long sums, long sides and many parts, each with the tile to interpret it with.

    Where a tile's sides decide which thread has what, one that is far from a square.
    """
    if variant.specialized:
        block = replace(variant.block, k=4 * variant.block.k)
        case = Case((block.m,), block.n, 4096 + 512)
        yield variant.cut_to(block), numbered(plan, case)
        return
    m, n = _sides(plan, variant, 16)
    deep = variant.cut_to(_block(variant, 16, 16, 256))
    for k in (4096 + 48, 4096 + 512):
        yield deep, numbered(plan, Case((m,), n, k))
    if not variant.described(plan):
        long = _block(variant, 16, 16, 4096)
        yield variant.cut_to(long), numbered(plan, Case((1,), 1, _LONG_K))
    if _streams(variant):
        sixteen = _block(variant, 128, 128, 64)
        m, n = (323, 2) if variant.of_a_column else (2, 323)
        yield variant.cut_to(sixteen), numbered(plan, Case((m,), n, 70))
    if SCHEDULES[variant.schedule].by_fma:
        high = variant.cut_to(_block(variant, 256, 16, 16))
        yield high, numbered(plan, Case((m,), n, 70))
    if variant.parts > 1:
        yield from _in_parts(plan, variant)
    if (_splits(variant) and not _streams(variant)) or variant.described(plan):
        return
    streams, (m, n) = _streams(variant), _sides(plan, variant, _LONG + 16)
    wide = _block(variant, 16, 2**16 if streams else 2**13, 16)
    yield variant.cut_to(wide), numbered(plan, Case((m,), n, 16))
    if not streams:
        high = variant.cut_to(Block(2**13, 16, 16))
        yield high, numbered(plan, Case((_LONG + 16,), 16, 16))


def many_tiles(variant: Variant, number: int) -> Iterator[tuple[Variant, int]]:
    """Small tiles with groups and parts as drawn, and how many programs a case has."""
    if variant.specialized:
        return
    draw = random.Random(number)
    for programs in (_FEW_PROGRAMS, _MANY_PROGRAMS):
        block = _block(variant, 16, draw.choice((16, 32)), 16)
        parts = draw.randint(2, programs) if variant.parts > 1 else 0
        cut = variant.cut_to(block, group_m=draw.randint(1, 9), parts=parts)
        yield cut, max(1, programs // max(1, parts))


def _in_parts(plan: Plan, variant: Variant) -> Iterator[tuple[Variant, Case]]:
    """As many parts as blocks, and sums whose order shows in whatever dtype."""
    block = _block(variant, 16, 16, 16)
    m, n = _sides(plan, variant, max(block.m, block.n))
    many = variant.cut_to(block, parts=_MOST_PARTS)
    yield many, numbered(plan, Case((m,), n, _MOST_PARTS * block.k))
    few = variant.cut_to(block, parts=7)
    m, n = _sides(plan, variant, 16)
    yield few, numbered(plan, Case((m,), n, 14 * block.k, CANCELLING))


def large(plan: Plan, variant: Variant) -> Iterator[Case]:
    """What only a GPU has the time for: long sides, more tiles than 16 bits count."""
    block, few = variant.block, few_rows(plan)
    yield numbered(plan, Case((16,), 16, _LONG_K))
    yield numbered(plan, Case((few,), 200_000, 64))
    yield numbered(plan, Case((few,), 2048, 4096 + 512))
    yield numbered(plan, Case((16,), _PROGRAMS * block.n, 16))
    if _splits(variant):
        yield numbered(plan, Case((16,), 64, 14 * block.k, CANCELLING))
    yield numbered(plan, Case((_LONG,), 48, 80))
    yield numbered(plan, Case((_PROGRAMS * block.m,), 16, 16))
