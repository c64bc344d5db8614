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
    """A tile; where rows of A stream through B, of one row and fewer columns."""
    streams = SCHEDULES[variant.schedule].memory_bound
    return Block(1, n // 8, k) if streams else Block(m, n, k)


def _splits(variant: Variant) -> bool:
    """Whether K may be cut into parts."""
    return SCHEDULES[variant.schedule].splits


def stretched(plan: Plan, variant: Variant) -> Iterator[tuple[Variant, Case]]:
    """Long sums, long sides and many parts, each with the tile to interpret it with."""
    if variant.specialized:
        block = replace(variant.block, k=4 * variant.block.k)
        case = Case((block.m,), block.n, 4096 + 512)
        yield variant.cut_to(block), numbered(plan, case)
        return
    streams = SCHEDULES[variant.schedule].memory_bound
    rows = 1 if streams else few_rows(plan)
    deep = variant.cut_to(_block(variant, 16, 16, 256))
    for k in (4096 + 48, 4096 + 512):
        yield deep, numbered(plan, Case((rows,), 16, k))
    if not variant.described(plan):
        long = variant.cut_to(Block(1, 1, 4096))
        yield long, numbered(plan, Case((1,), 1, _LONG_K))
    if streams:
        yield variant.cut_to(Block(1, 16, 64)), numbered(plan, Case((2,), 323, 70))
    if variant.parts > 1:
        yield from _in_parts(plan, variant)
    if _splits(variant) or variant.described(plan):
        return
    wide = variant.cut_to(_block(variant, 16, 2**13, 16))
    yield wide, numbered(plan, Case((rows,), _LONG + 16, 16))
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
    block = Block(16, 16, 16)
    many = variant.cut_to(block, parts=_MOST_PARTS)
    yield many, numbered(plan, Case((few_rows(plan),), 16, _MOST_PARTS * block.k))
    few = variant.cut_to(block, parts=7)
    yield few, numbered(plan, Case((16,), 16, 14 * block.k, CANCELLING))


def large(plan: Plan, variant: Variant) -> Iterator[Case]:
    """What only a GPU has the time for: each side long, more tiles than 16 bits count.

    A grid has a row of A along an axis of at most 65,535 where rows stream through.
    """
    block, streams = variant.block, SCHEDULES[variant.schedule].memory_bound
    few = few_rows(plan)
    yield numbered(plan, Case((16,), 16, _LONG_K))
    yield numbered(plan, Case((few,), 200_000, 64))
    yield numbered(plan, Case((few,), 2048, 4096 + 512))
    yield numbered(plan, Case((16,), _PROGRAMS * block.n, 16))
    if _splits(variant):
        yield numbered(plan, Case((16,), 64, 14 * block.k, CANCELLING))
    if not streams:
        yield numbered(plan, Case((_LONG,), 48, 80))
        yield numbered(plan, Case((_PROGRAMS * block.m,), 16, 16))
