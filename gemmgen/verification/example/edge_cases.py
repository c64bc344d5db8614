"""Examples that are always tried: one for each kind of bug that GEMMs are known for."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.cases import Case, input_tensors, numbers
from gemmgen.verification.cases.views import DESCRIBABLE, FOR_OUTPUTS, INDESCRIBABLE
from gemmgen.verification.oracle.comparison import Block

_NUMBERS = (0.2968017, -0.5137, 1.0)


def edge_cases(
    plan: Plan, block: Block, processors: int = 0, group: int = 0
) -> Iterator[Case]:
    """Empty and smallest sizes, one beyond a tile, broadcasting, a second L2 group.

    A group has as many tiles as the largest of the plan, if nothing else is said. On a
    GPU of so many processors also one tile more than they are.
    """
    group = group or max(tile.group_m for _, tile in plan.tiles)
    for case in _cases(plan, block, group):
        yield numbered(plan, case)
    if processors:
        case = Case(((processors + 1) * block.m,), block.n, block.k + 1)
        yield numbered(plan, case)


def beyond(plan: Plan, block: Block, described: bool) -> Case:
    """Part of a tile beyond a whole one along every side; or, for descriptors, 16."""
    m, n, k = (few_rows(plan), 16, 16) if described else (1, 1, 1)
    return numbered(plan, Case((block.m + m,), block.n + n, block.k + k))


def indescribable(plan: Plan, described: Collection[str]) -> Iterator[Case]:
    """Tensors of which one fails one condition of what descriptors can describe.

    `described` are the roles of the tensors that must be. Rows of all that have a size
    fail together, for that is another's size too.
    """
    case = numbered(plan, Case((32,), 32, 32))
    roles = [one.role for one in plan.passed]
    for position, role in enumerate(roles):
        for view in INDESCRIBABLE if role in described else ():
            if role != "results" or view in FOR_OUTPUTS:
                views = ["contiguous"] * len(roles)
                views[position] = view
                yield replace(case, views=tuple(views))
    rounded_up = ("rows rounded up",) * len(roles)
    if described:
        yield replace(case, n=33, views=rounded_up)
        yield replace(case, k=33, views=rounded_up)
        if plan.contraction.lhs.transposed:
            yield replace(case, rows=(33,), views=rounded_up)


def plain(case: Case) -> bool:
    """Whether a kernel needs no compilation of its own for the case.

    Triton makes others for sizes of 1, and for strides of 0 or 1 in unusual places.
    """
    return min(case.m, case.n, case.k) > 1 and set(case.views) <= {"padded"}


def describable(plan: Plan, case: Case) -> bool:
    """Whether descriptors can describe all tensors of the case, in whatever dtype."""
    sides = (case.n, case.k, *((case.m,) if plan.contraction.lhs.transposed else ()))
    whole = case.m > 0 and all(side and side % 16 == 0 for side in sides)
    return whole and set(case.views) <= set(DESCRIBABLE)


def few_rows(plan: Plan) -> int:
    """Few rows that descriptors can describe: where these lie along M, 16."""
    return 16 if plan.contraction.lhs.transposed else 3


def numbered(plan: Plan, case: Case) -> Case:
    """The case with a number for each that the kernel takes, of many digits."""
    return replace(case, numbers=_NUMBERS[: len(numbers(plan))])


def _cases(plan: Plan, block: Block, group: int) -> Iterator[Case]:
    m, n, k = block.m, block.n, block.k
    count = len(input_tensors(plan))
    blocks = max(2, min(8, 1024 // k))  # 8 in three parts: 3, 3, 2
    yield Case((5,), 7, 0)
    yield Case((0,), 7, 5, given=False)
    yield Case((5,), 0, 3)
    yield Case((1,), 1, 1, "normal")
    odd = beyond(plan, block, described=False)
    yield odd
    yield replace(odd, kind="special", given=False)
    yield Case((m - 1,), n - 1, 2 * k - 1, "wide")
    yield Case((m,), n, k, "normal")
    shared = ("rows shared", "columns shared")
    for views in (shared, shared[::-1]):
        yield Case((7,), 9, k + 3, "wide", (views * count)[:count])
    yield Case((3,), 5, blocks * k + 3, "wide")
    yield Case((3,), n + 4, k + 4)  # loads of four elements
    # What descriptors can describe, in whatever dtype and layout.
    rows = few_rows(plan)
    yield Case((rows,), 16, 16, "normal")
    more = beyond(plan, block, described=True)
    yield replace(more, kind="special", views=("padded",) * count, given=False)
    yield Case((2 * m,), 2 * n, blocks * k, "wide")
    yield Case((group * m + 1,), 2 * n + 1, 1)
    yield Case((group * m + rows,), 2 * n + 16, 16)
    if OPERATIONS[plan.op].leading:
        yield Case((), n + 1, k + 1)
        yield Case(
            (2, 3), 5, 7, "normal", ("swapped",) * (len(input_tensors(plan)) + 1)
        )
        yield Case((2, 0), 5, 7)
