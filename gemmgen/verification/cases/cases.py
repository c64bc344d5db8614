"""Examples: sizes, memory layouts, kind of data and a seed, never tensors.

The simplest choice stands first in every list, for that is where shrinking ends.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies

from gemmgen.hardware.targets import DESCRIBED_BYTES
from gemmgen.select.plan import Plan
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.cases.data import DRAWN
from gemmgen.verification.cases.views import ALIGNED, DESCRIBABLE, FOR_OUTPUTS, VIEWS
from gemmgen.verification.oracle.comparison import Block

_MOST_STEPS = 12
"""Tiles times K blocks of one interpreted example: what takes about 0.1 s."""
NUMBERS = strategies.one_of(
    strategies.sampled_from((1.0, -0.5, 2.0, 0.3)),
    strategies.floats(-8, 8, allow_subnormal=False),
    strategies.sampled_from((0.0, -0.0, 1e-30, -3e5, 1e30)),
)
"""Numbers of a call: plain ones, any with many digits, and extreme ones."""
_SEEDS = strategies.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Case:
    """One call of a launcher.

    `rows` are the leading sizes, one for a plain matrix; `views` are by tensor, inputs
    first; `given` says that the caller brings `out`.
    """

    rows: tuple[int, ...]
    n: int
    k: int
    kind: str = "narrow"
    views: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    seed: int = 0
    given: bool = True

    @property
    def m(self) -> int:
        """All rows together."""
        product = 1
        for size in self.rows:
            product *= size
        return product

    def view(self, position: int) -> str:
        """The view of a tensor; contiguous unless the case says otherwise."""
        return self.views[position] if position < len(self.views) else "contiguous"

    def described(self, tensors: Sequence[str], numbers: Sequence[str]) -> str:
        """The case in a line, with the names of its tensors and numbers."""
        rows = "x".join(map(str, self.rows)) or "()"
        parts = [f"M={rows} N={self.n} K={self.k}"]
        parts += [
            f"{name} {self.view(position)}"
            for position, name in enumerate(tensors)
            if self.view(position) != "contiguous"
        ]
        values = zip(numbers, self.numbers, strict=False)
        parts += [f"{name}={value}" for name, value in values]
        given = "out given" if self.given else "out made"
        return ", ".join([*parts, f"{self.kind} data, seed {self.seed}, {given}"])


def input_tensors(plan: Plan) -> list[str]:
    """The inputs that are tensors, in the launcher's order."""
    return [one.name for one in plan.inputs]


def numbers(plan: Plan) -> list[str]:
    """The inputs that are floats."""
    return [operand.name for operand in plan.operands if operand.is_number]


def describe_case(plan: Plan, case: Case) -> str:
    """A case of a kernel, in a line."""
    return case.described([one.name for one in plan.passed], numbers(plan))


def interpreted_cases(
    plan: Plan, block: Block, described: Collection[str] = (), programs: int = 0
) -> strategies.SearchStrategy[Case]:
    """Cases for the interpreter: at most a few tiles and K blocks, any mix of views.

    With a number of `programs`, so many tiles or blocks, in any proportion. With roles
    of `described` tensors, three of four have sizes that descriptors can describe, and
    such views of these tensors.
    """

    @strategies.composite
    def case(draw: Callable[..., Any]) -> Case:
        fitting = described and draw(strategies.sampled_from((True, True, True, False)))
        unit = DESCRIBED_BYTES // plan.product.bytes if fitting else 1
        sizes = _many(draw, block, programs) if programs else _few(draw, block, unit)
        m, n, k = sizes[0], *(_up(size, unit) for size in sizes[1:])
        if plan.contraction.lhs.transposed:
            m = _up(m, unit)

        def view(role: str) -> str:
            free = FOR_OUTPUTS if role == "results" else tuple(VIEWS)
            held = fitting and role in described
            return draw(strategies.sampled_from(DESCRIBABLE if held else free))  # type: ignore[no-any-return]

        views = [view("inputs"), view("inputs")]
        views += [view("operands") for _ in plan.tensors]
        views += [view("results") for _ in plan.results]
        return _filled(draw, plan, Case(draw(_rows(plan, m)), n, k, views=tuple(views)))

    return case()


def _few(draw: Callable[..., Any], block: Block, unit: int) -> tuple[int, int, int]:
    """Sizes around the edges of one tile or two."""
    m, n = draw(_near(block.m, 2)), _up(draw(_near(block.n, 2)), unit)
    tiles = -(-m // block.m) * -(-n // block.n)
    most = max(1, min(3, _MOST_STEPS // max(1, tiles)))
    return m, n, draw(_near(block.k, most))


def _many(draw: Callable[..., Any], block: Block, most: int) -> tuple[int, int, int]:
    """Sizes of tiles that are many along some side."""
    counts = []
    for _ in range(3):
        counts.append(draw(strategies.integers(1, max(1, most))))
        most //= counts[-1]
    counts = draw(strategies.permutations(counts))
    m, n, k = (
        count * side - draw(strategies.integers(0, side - 1))
        for count, side in zip(counts, (block.m, block.n, block.k), strict=True)
    )
    return m, n, k


def compiled_cases(
    plan: Plan,
    block: Block,
    described: Collection[str] = (),
    views: Sequence[str] | None = None,
) -> strategies.SearchStrategy[Case]:
    """Cases for a GPU: larger, and few combinations of what a kernel is compiled for.

    Each new combination of unit strides and divisors of rows compiles a kernel anew, so
    all tensors share a view, one of `views` if these are given, and all sizes are
    multiples of 16, or all are odd. With roles of `described` tensors, three of four
    are what descriptors can describe, but for results that come as pointers, which may
    be transposed.
    """

    @strategies.composite
    def case(draw: Callable[..., Any]) -> Case:
        fitting = described and draw(strategies.sampled_from((True, True, True, False)))
        aligned = fitting or draw(strategies.booleans())
        m = draw(_near(block.m, 3, 257, 1021))
        if plan.contraction.lhs.transposed:
            m = _aligned(m, aligned)
        n, k = (
            _aligned(draw(_near(side, 3, 331, 2003)), aligned)
            for side in (block.n, block.k)
        )
        choice = views or (ALIGNED if aligned else tuple(VIEWS))
        view = draw(strategies.sampled_from(DESCRIBABLE if fitting else choice))
        out = view if view in FOR_OUTPUTS else "contiguous"
        if fitting and "results" not in described and not views:
            out = draw(strategies.sampled_from((out, "transposed")))
        every = (*[view] * len(input_tensors(plan)), *[out] * len(plan.results))
        return _filled(draw, plan, Case(draw(_rows(plan, m)), n, k, views=every))

    return case()


def _filled(draw: Callable[..., Any], plan: Plan, case: Case) -> Case:
    """The rest of a case: what the tensors hold."""
    return replace(
        case,
        kind=draw(strategies.sampled_from(DRAWN)),
        numbers=tuple(draw(NUMBERS) for _ in numbers(plan)),
        seed=draw(_SEEDS),
        given=draw(strategies.booleans()),
    )


def _near(side: int, most: int, *more: int) -> strategies.SearchStrategy[int]:
    """Sizes around a tile's edges, up to `most` tiles; and small and odd ones."""
    sizes = [1, 2, 7, side - 1, side, side + 1]
    if most > 1:
        sizes += [13, 2 * side - 1, 2 * side, side + side // 2 + 1]
    if most > 2:
        sizes += [2 * side + 1, 3 * side]
    return strategies.sampled_from([*dict.fromkeys([*sizes, *more]), 0])


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _aligned(size: int, aligned: bool) -> int:
    if aligned:
        return _up(size, 16)
    return size | 1


def _rows(plan: Plan, m: int) -> strategies.SearchStrategy[tuple[int, ...]]:
    """M as the launcher may get it: one size, or leading sizes of about M rows."""
    if not OPERATIONS[plan.op].leading:
        return strategies.just((m,))
    shapes = [(m,), (), (2, m // 2), (3, m // 3), (2, 1, m // 2)]
    return strategies.sampled_from(shapes)
