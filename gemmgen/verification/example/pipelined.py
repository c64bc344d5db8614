"""Warp-specialized kernels in the interpreter of Gluon: small tiles, full pipelines.

A kernel takes any tile that wgmma does, so the smallest show what large ones do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.consumers import columns_along_k, multiplies_in_one
from gemmgen.schedules.parts.schedule import Schedule
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.cases.cases import Case, input_tensors
from gemmgen.verification.cases.data import CANCELLING
from gemmgen.verification.example.edge_cases import numbered
from gemmgen.verification.example.subject import ANYWHERE, Variant, runtime
from gemmgen.verification.oracle.comparison import Block

_ROWS, _OTHER = 64, 32
"""The rows that wgmma multiplies at least, and columns: no two alike."""
_K_BYTES = {1: 32, 2: 128, 3: 128}
"""By the groups of warps that share a tile, the bytes of K of its blocks: what wgmma
multiplies, or in how many steps large tiles of several pieces do."""
_PARTS = {1: 256, 2: _ROWS, 3: _ROWS}
"""By the groups of warps that share a tile, the rows of one: the most or the least."""
_STAGES = {1: 3, 2: 2, 3: 4}
"""By the groups of warps that share a tile, the stages that it is tried with."""
_COMPOSED = {1: 32, 2: 56, 3: 136}
_ALONG_M = {1: 32, 2: 192, 3: 64}
"""By the same, sides of one, three and two pieces; those of a matrix that lies along
them, whose pieces are lines of 128 bytes at least."""
_COLUMNS = {1: 72, 2: 208, 3: 96}
"""By the same, columns of two and three pieces, where rows are cut."""
_SPLIT = {1: (20, 40), 2: (2, 4), 3: (3, 1)}
"""By the same, the parts of K that it is tried with too, on so many SMs: with two
programs for each part, of several tiles, and with more parts than SMs."""
_CLUSTER, _SMS_OF_CLUSTERS = (2, 4 * _ROWS, 136), 4
"""Groups of warps, columns and rows of a tile that two CTAs share, which each stores in
parts of its own size, and the SMs of which two clusters take all."""
_IN_ONE = ((1, 40, 2 * _ROWS), (2, 24, 2 * _ROWS), (2, 2 * _ROWS, 72))
"""Groups of warps, rows and columns of tiles whose pieces one wgmma multiplies: of two
and of one box; where each consumer has 128 rows of what is multiplied, and 64; where
rows are cut."""
_LINES, _DEEP = 128, 4
"""Bytes of K of their blocks, and stages: a ring must be larger than all beside it."""
_IN_PIECES = (
    ((1, 2 * _ROWS, 104), _LINES, 2),
    ((1, 4 * _ROWS, 72), _LINES, 2),
    ((2, 4 * _ROWS, 208), _LINES, 2),
    ((3, 6 * _ROWS, 136), _LINES, 2),
    ((1, _ROWS, 72), 32, _DEEP),
)
"""Of tiles like those which it may not: groups of warps, rows, columns, bytes of K, and
stages. Of elements of 4 bytes the buffers of two consumers are as large as the ring, or
larger; a sum takes more registers than a thread has; blocks are no lines."""
_HALVED = 256
"""Columns of one product that are stored in two parts."""
_LINE = 16
"""Bytes that rows end at."""
_Shape = tuple[int, int, int]
"""Groups of warps that share a tile, its rows and columns."""


@dataclass(frozen=True)
class Pipelined(Variant):
    """A tile of a warp-specialized kernel, the stages of its ring, the GPU's SMs.

    One that is large, and like others but for what becomes of sums, has few cases.
    """

    stages: int = 2
    large: bool = False
    sms: int = 2

    @property
    def tile(self) -> Tile:
        """The tile as the generator has it."""
        one = self.value[0]
        how = one.stages, one.warps, one.schedule, one.split_k
        return Tile(one.m, one.n, one.k, one.group_m, *how, ctas=one.ctas)

    @property
    def name(self) -> str:
        """The tile, its stages, the groups of warps that share it, the parts of K."""
        tile = self.value[0]
        told = f"{super().name}, {self.stages} stages, {tile.warps} warps"
        told += f" of {tile.ctas} CTAs" * (tile.ctas > 1)
        return f"{told}, K in {self.parts} parts" if self.parts > 1 else told

    @contextmanager
    def forced(self, module: ModuleType) -> Iterator[None]:
        """Make every launch use it, although there is no GPU that specializes."""
        table = runtime(module, "table")
        anywhere = patch.multiple(table, specializes=lambda *_: True, CLUSTERS=True)
        walking = patch.object(table, "num_sms", lambda *_: self.sms)
        with anywhere, walking, super().forced(module):
            yield

    def cases(self, plan: Plan) -> Iterator[Case]:
        """Rings not full, full, reused; odd numbers of tiles; three columns; edges."""
        m, n, k, stages = self.block.m, self.block.n, self.block.k, self.stages
        unit = _unit(plan)
        rows = unit if plan.contraction.lhs.transposed else 3
        padded = ("padded",) * len(input_tensors(plan))
        if self.parts > 1:
            yield from self._in_parts(plan, unit, rows)
            return
        yield numbered(plan, Case((m,), n, k, "normal"))
        yield numbered(plan, Case((2 * m + rows,), n + unit, (stages - 1) * k, "wide"))
        if self.large:
            return
        yield numbered(plan, Case((3 * m,), n, stages * k, "wide"))
        more = Case((4 * m + rows,), n, stages * k + unit, "special", padded)
        yield numbered(plan, replace(more, given=False))
        yield numbered(plan, Case((6 * m + rows,), n, unit))
        yield numbered(plan, Case((4 * m + rows,), 2 * n + unit, 2 * k))
        yield numbered(plan, Case((m + rows,), n, (2 * stages + 1) * k, "wide"))

    def _in_parts(self, plan: Plan, unit: int, rows: int) -> Iterator[Case]:
        """Fewer blocks than parts; odd numbers of tiles; sums whose order shows."""
        m, n, k = self.block.m, self.block.n, self.block.k
        yield numbered(plan, Case((2 * m + rows,), n - unit, unit))
        yield numbered(plan, Case((m,), n, 14 * k, CANCELLING))
        long = (self.parts * self.stages - 1) * k + unit
        more = Case((2 * m + rows,), n, long, "wide", given=False)
        yield numbered(plan, more)


def _unit(plan: Plan) -> int:
    """Of how many elements rows are a multiple, for descriptors to describe them."""
    names = [plan.dtype, *(result.dtype for result in plan.results)]
    names += [operand.dtype for operand in plan.operands]
    return _LINE // min(DTYPES[name].bytes for name in names)


def pipelined(plan: Plan, module: ModuleType) -> list[Pipelined]:
    """Small tiles for each number of groups of warps that may share one."""
    table: Any = getattr(module, "TILES", ())
    found = [row for row in table if row.schedule == plan.specialized]
    if not found:
        return []
    shapes = _shapes(plan)
    large = [(2, *_lying(plan, _PARTS[2] * 2, _HALVED)), *_of_rows(plan)]
    whole = [_small(plan, found[0], table[-1], *each) for each in shapes]
    whole += [
        replace(_small(plan, found[0], table[-1], *each), large=True) for each in large
    ]
    if any(row.ctas > 1 for row in found):
        groups, columns, rows = _CLUSTER
        sides = _ALONG_M[groups] if plan.contraction.lhs.transposed else rows, columns
        shared = _small(plan, found[0], table[-1], groups, *sides, ctas=2)
        whole.append(replace(shared, sms=_SMS_OF_CLUSTERS))
    whole += [
        one
        for shape in _IN_ONE
        for one in [
            _small(plan, found[0], table[-1], *shape, line=_LINES, stages=_DEEP)
        ]
        if multiplies_in_one(one.tile, plan.product)
    ]
    if columns_along_k(plan.product):
        for shape, line, stages in _IN_PIECES:
            small = _small(plan, found[0], table[-1], *shape, line=line, stages=stages)
            whole.append(replace(small, large=True))
    return whole + [
        _small(plan, found[0], table[-1], *each, *_SPLIT[each[0]]) for each in shapes
    ]


def _shapes(plan: Plan) -> list[_Shape]:
    """For each number of groups, what all of its tiles are like."""
    others = _sides(plan)
    return [
        (groups, *_lying(plan, side * groups, others[groups]))
        for groups, side in _PARTS.items()
    ]


def _schedule(plan: Plan) -> Schedule:
    return SCHEDULES[plan.specialized or ""]


def _lying(plan: Plan, cut: int, other: int) -> tuple[int, int]:
    """Rows and columns, of which groups of warps cut one."""
    if _schedule(plan).shared_axis(plan.product.kind, plan.layout) == "m":
        return cut, other
    return other, cut


def _of_rows(plan: Plan) -> list[_Shape]:
    """Tiles of which groups cut the rows, if their sides may say so."""
    if not _schedule(plan).composes(plan.product.kind, plan.layout):
        return []
    return [(groups, _ROWS * groups, side) for groups, side in _COLUMNS.items()]


def _sides(plan: Plan) -> dict[int, int]:
    """By the groups of warps that share a tile, the side that they do not cut."""
    if not _schedule(plan).composes(plan.product.kind, plan.layout):
        return dict.fromkeys(_STAGES, _OTHER)
    return _ALONG_M if plan.contraction.lhs.transposed else _COMPOSED


def _small(
    plan: Plan,
    row: Any,
    last: Any,
    groups: int,
    m: int,
    n: int,
    parts: int = 1,
    sms: int = 2,
    ctas: int = 1,
    line: int = 0,
    stages: int = 0,
) -> Pipelined:
    """The smallest such tile of so many groups; any tensor will do for the last row."""
    line, stages = line or _K_BYTES[groups], stages or _STAGES[groups]
    block = Block(m, n, line // plan.product.bytes)
    tile = row._replace(
        **ANYWHERE,
        m=block.m,
        n=block.n,
        k=block.k,
        group_m=2,
        split_k=parts,
        stages=stages,
        warps=4 * groups,
        ctas=ctas,
    )
    rows = (tile, last._replace(sm=0))
    return Pipelined(block, rows, row.schedule, parts, stages, sms=sms)
