"""What the names of an epilogue are bound to: operands and results, with dtypes."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from gemmgen.base.errors import not_built, one_of, quoted, unknown
from gemmgen.epilogue.checked import Epilogue
from gemmgen.problem.tensors import Operand, Result
from gemmgen.spec.parse import KernelSpec
from gemmgen.tables.dtypes import DTYPES


class Fail(Protocol):
    """Notes a mistake at the value that a path leads to."""

    def __call__(self, *path: str | int, message: str) -> None:
        """Note it."""


def operands_of(
    spec: KernelSpec, epilogue: Epilogue, arithmetic: str, out: str, fail: Fail
) -> tuple[Operand, ...]:
    """Operands with their dtypes: the out dtype unless the spec names another."""
    named = spec.operands
    known = {operand.name: operand.axes for operand in epilogue.operands}
    for name, dtype in named.items():
        reason = _why_not_typed(name, dtype, known)
        if reason:
            fail("operands", name, message=reason)
    return tuple(
        Operand(
            operand.name,
            operand.axes,
            named.get(operand.name, out) if operand.axes else arithmetic,
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
