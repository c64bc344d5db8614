"""The types that a kernel computes in, checked against those of its inputs."""

from collections.abc import Collection, Sequence

from gemmgen.base.errors import one_of, quoted
from gemmgen.hardware.targets import Target
from gemmgen.problem.bindings import Fail
from gemmgen.spec.parse import KernelSpec
from gemmgen.tables.dtypes import DTYPES, PRECISIONS


def out_and_accumulator(
    spec: KernelSpec, targets: Sequence[Target], refused: Collection[str], fail: Fail
) -> tuple[str, str]:
    """The out dtype and the accumulator."""
    names = spec.dtype
    row = DTYPES[names.a]
    if "dtype" in refused:
        return names.out, row.accumulator
    if names.b != names.a:
        fail(
            "dtype", "b",
            message=f"a is {names.a} and b is {names.b}: both must be the same",
        )  # fmt: skip
    if names.acc not in (None, row.accumulator):
        fail(
            "dtype", "acc",
            message=f"{names.a} accumulates in {row.accumulator}, not {names.acc}",
        )  # fmt: skip
    for target in targets:
        if target.architecture < row.since:
            message = f"{names.a} needs sm_{row.since}, {target.name} is a target"
            fail("dtype", message=message)
    if names.out not in row.outputs:
        fail(
            "dtype", "out",
            message=f"out {quoted(names.out)} is not possible for {names.a} inputs "
            + one_of(row.outputs),
        )  # fmt: skip
    return names.out, row.accumulator


def precision_of(spec: KernelSpec, refused: Collection[str], fail: Fail) -> str | None:
    """How fp32 is multiplied; None for other inputs."""
    if DTYPES[spec.dtype.a].precise:
        return spec.precision or next(iter(PRECISIONS))
    if spec.precision is not None and "dtype" not in refused:
        fail(
            "precision",
            message=f"precision chooses how fp32 is multiplied; dtype is "
            f"{spec.dtype.a}",
        )
    return None
