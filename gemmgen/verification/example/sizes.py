"""How large the oracle's bound is for a shape: one seeded draw of normal data."""

import torch

from gemmgen.base.errors import UsageError
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.example.one_example import Call, as_matrices, framed_inputs
from gemmgen.verification.oracle.bounded import Bounded
from gemmgen.verification.oracle.error_budget import Size
from gemmgen.verification.oracle.reference import expected

_MOST_K = 2**17
_SIDE = 64


def describe_draw(m: int, n: int, k: int) -> str:
    """What was drawn, in words."""
    rows, columns = _drawn(m, n)
    part = "" if (rows, columns) == (m, n) else f" of {m}x{n}x{k}"
    return f"normal data, seed 0, {rows}x{columns}x{k}{part}"


def _drawn(m: int, n: int) -> tuple[int, int]:
    """The rows and columns that are drawn: a bound depends on K alone."""
    return min(m, _SIDE), min(n, _SIDE)


def sizes(plan: Plan, m: int, n: int, k: int) -> tuple[Size, ...]:
    """The bound of every result for normal data; numbers are 1."""
    if k > _MOST_K:
        raise UsageError(f"K is at most {_MOST_K} for --shape")
    rows, columns = _drawn(m, n)
    ones = (1.0,) * len(numbers(plan))
    case = Case((rows,), columns, k, "normal", numbers=ones)
    framed = framed_inputs(plan, case, torch.device("cpu"))
    views = {name: one.view for name, one in framed.items()}
    call = Call(views, dict(zip(numbers(plan), ones, strict=True)), None)
    found = expected(plan, as_matrices(plan, call))
    return tuple(
        _size(result.name, found[result.name], DTYPES[result.dtype].roundoff)
        for result in plan.results
    )


def _size(name: str, bounded: Bounded, roundoff: float) -> Size:
    errors = bounded.error[bounded.error.isfinite()]
    value = float(bounded.value.abs().nanmean())
    return Size(
        name,
        value,
        float(errors.mean()) if errors.numel() else None,
        float(errors.max()) if errors.numel() else None,
        roundoff * value,
        1 - errors.numel() / bounded.error.numel(),
    )
