"""What the names of an epilogue are bound to: operands and results, with dtypes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from gemmgen.base.errors import not_built, one_of, quoted, unknown
from gemmgen.epilogue.checked import Epilogue
from gemmgen.epilogue.checked import Operand as Bound
from gemmgen.epilogue.expression import Binary, Name, Node, names, substituted
from gemmgen.problem.contraction import Contraction
from gemmgen.problem.tensors import Operand, Result
from gemmgen.spec.parse import KernelSpec
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix
from gemmgen.tables.scalings import Scaling


class Fail(Protocol):
    """Notes a mistake at the value that a path leads to."""

    def __call__(self, *path: str | int, message: str) -> None:
        """Note it."""


def scales_of(scaling: Scaling, contraction: Contraction) -> dict[str, tuple[str, ...]]:
    """The scales of what is multiplied, and their axes."""
    sides = {one.name: scaling.rhs for one in contraction.rhs}
    sides[contraction.lhs.name] = scaling.lhs
    return {
        scale_name(one): axes
        for one in contraction.inputs
        if (axes := sides[one.name]) is not None
    }


def scale_name(matrix: Matrix) -> str:
    """What a launcher calls the scale of a matrix."""
    return f"scale_{matrix.name}"


def scaled(epilogue: Epilogue, scaling: Scaling, contraction: Contraction) -> Epilogue:
    """The epilogue of products whose inputs have scales, which are operands of it.

    Each sum becomes its product with the scales of its two sides, whatever it is then
    used for.
    """
    scales = scales_of(scaling, contraction)
    if not scales:
        return epilogue
    lhs = Name(scale_name(contraction.lhs))
    sums: dict[str, Node] = {
        name: Binary("*", Binary("*", Name(name), lhs), Name(scale_name(right)))
        for name, right in contraction.products.items()
    }

    statements = tuple(
        replace(one, value=substituted(one.value, sums)) for one in epilogue.statements
    )
    used = [name for one in statements for name in names(one.value)]
    axes = scales | {one.name: one.axes for one in epilogue.operands}
    operands = (name for name in dict.fromkeys(used) if name in axes)
    own = tuple(Bound(name, axes[name]) for name in operands)
    return replace(epilogue, statements=statements, operands=own)


def operands_of(
    spec: KernelSpec, epilogue: Epilogue, arithmetic: str, out: str, fail: Fail
) -> tuple[Operand, ...]:
    """Operands with their dtypes, those of the spec or by default the out dtype.

    Vectors beside inputs that may have scales are as exact as these by default.
    """
    named, vector = spec.operands, out
    if DTYPES[spec.dtype.a].scaled:
        vector = arithmetic
    defaults = (arithmetic, vector, out)
    known = {operand.name: operand.axes for operand in epilogue.operands}
    for name, dtype in named.items():
        reason = _why_not_typed(name, dtype, known)
        if reason:
            fail("operands", name, message=reason)
    return tuple(
        Operand(
            operand.name,
            operand.axes,
            named.get(operand.name, defaults[len(operand.axes)]),
            arithmetic,
        )
        for operand in epilogue.operands
    )


def _why_not_typed(
    name: str, dtype: str, known: dict[str, tuple[str, ...]]
) -> str | None:
    """Why an operand cannot have a dtype."""
    if name not in known:
        if known:
            return unknown("operand", name, known)
        return f"the epilogue has no operand {quoted(name)}"
    if not known[name]:
        return f"{name}[] is a Python float and has no dtype"
    return None if DTYPES[dtype].built else not_built(f"operand dtype {dtype}")


def results_of(
    spec: KernelSpec, epilogue: Epilogue, arithmetic: str, out: str, fail: Fail
) -> tuple[Result, ...]:
    """What is returned: the last statement, or what `outputs` names."""
    targets = [statement.target for statement in epilogue.statements]
    chosen = spec.outputs or ((targets[-1], None),)
    results = []
    for position, (name, dtype) in enumerate(chosen):
        key = name if dtype is not None else position
        if name not in targets:
            fail("outputs", key, message=unknown("output", name, targets))
            continue
        if dtype and dtype not in DTYPES[spec.dtype.a].outputs:
            allowed = one_of(DTYPES[spec.dtype.a].outputs)
            message = f"output {quoted(name)} cannot be {dtype} {allowed}"
            fail("outputs", key, message=message)
        value = epilogue.bare or name
        results.append(Result(name, value, dtype or out, arithmetic))
    if len(results) == len(chosen):
        for message in _misused(epilogue, [name for name, _ in chosen]):
            fail("epilogue", message=message)
    return tuple(results)


def _misused(epilogue: Epilogue, returned: Sequence[str]) -> Iterator[str]:
    """What is neither returned nor used, or is returned and spans no matrix."""
    for statement in epilogue.statements:
        name = quoted(statement.target)
        if statement.target not in (*returned, *epilogue.used):
            yield f"{name} is neither used nor returned"
        if statement.target in returned and not statement.whole:
            yield (
                f"output {name} does not vary along both m and n, so it is no matrix "
                "[M, N]"
            )
