"""Which row of a kernel's table serves a shape, as its launcher looks for it.

The launcher sees tensors; here they are contiguous, at aligned addresses.
"""

from collections.abc import Iterator

from gemmgen.cost.time import fills
from gemmgen.hardware.targets import DESCRIBED_BYTES, Target
from gemmgen.schedules import described, schedule_of
from gemmgen.select.model_table import describes_operands
from gemmgen.select.plan import Plan
from gemmgen.select.table import Row
from gemmgen.spec.shapes import Shape
from gemmgen.tables.dtypes import DTYPES

Numbered = tuple[int, Row]
"""A row, and its place in the table, from 1."""


def row_for(
    plan: Plan,
    shape: Shape,
    target: Target,
    *,
    operands: bool = True,
    plain: bool = False,
    clusters: bool = True,
) -> Numbered:
    """The row that serves a shape: the first, or with costs the best of those.

    With `plain`, for tensors that no descriptor can describe; unless `operands`,
    for inputs alone that one can; unless `clusters`, for a Triton that launches none.
    """
    rows = (
        (number, row)
        for number, row in _able(plan, shape, target)
        if (operands or not describes_operands(row.tile))
        and not (plain and schedule_of(row.tile).described)
        and (clusters or row.tile.ctas == 1)
    )
    return _first(rows, plan, shape, target)


def otherwise(plan: Plan, shape: Shape, target: Target) -> Row:
    """The row that serves a shape where no layer has rows of its own."""
    rows = (pair for pair in _able(plan, shape, target) if not pair[1].pin)
    return _first(rows, plan, shape, target)[1]


def _able(plan: Plan, shape: Shape, target: Target) -> Iterator[Numbered]:
    return (
        (number, row)
        for number, row in enumerate(plan.rows, start=1)
        if row.architecture <= target.architecture
        and row.serves(shape.sizes)
        and not (row.full and not fills(row.tile, shape, target))
        and not undescribed(plan, shape, row.tile.schedule)
    )


def _first(
    rows: Iterator[Numbered], plan: Plan, shape: Shape, target: Target
) -> Numbered:
    number, row = next(rows)
    if row.timed is None:
        return number, row

    def predicted(pair: Numbered) -> float:
        tile, timed = pair[1].tile, pair[1].timed
        assert timed is not None
        return timed.predicted(tile, plan.product, shape.sizes, target.sms)

    return min(
        [(number, row), *(pair for pair in rows if pair[1].timed)], key=predicted
    )


def undescribed(plan: Plan, shape: Shape, schedule: str) -> str | None:
    """Why no descriptor of a schedule can describe contiguous tensors, or None."""
    roles = described(schedule, plan.product.kind)
    for name, size in _described_rows(plan, shape, roles):
        if size % DESCRIBED_BYTES:
            return (
                f"rows of {name} are {size:,} bytes, no multiple of {DESCRIBED_BYTES}, "
                "so no descriptor can describe it"
            )
    return None


def _described_rows(
    plan: Plan, shape: Shape, roles: frozenset[str]
) -> Iterator[tuple[str, int]]:
    """The tensors of the roles, and the bytes of a row of each."""
    if "inputs" in roles:
        sizes = dict(zip("MNK", shape.sizes, strict=True))
        for matrix in plan.contraction.inputs:
            row = sizes[matrix.stored_sizes[-1]] * plan.product.bytes
            yield matrix.name, row
    if "operands" in roles:
        for operand in plan.operands:
            if operand.is_matrix:
                yield operand.name, shape.n * DTYPES[operand.dtype].bytes
    if "results" in roles:
        for result in plan.results:
            yield result.name, shape.n * DTYPES[result.dtype].bytes
