"""What the cost model knows of a kernel: its product, from the plan's parts."""

from collections.abc import Sequence

from gemmgen.epilogue.checked import Epilogue
from gemmgen.problem.contraction import Contraction
from gemmgen.problem.tensors import Operand, Result
from gemmgen.schedules.parts.tile import Product, reused_buffers
from gemmgen.spec.parse import KernelSpec
from gemmgen.tables.dtypes import DTYPES, PRECISIONS


def product_of(
    spec: KernelSpec,
    precision: str | None,
    contraction: Contraction,
    epilogue: Epilogue,
    operands: Sequence[Operand],
    results: Sequence[Result],
) -> Product:
    """The product of a kernel whose operands and results are known."""
    size = {operand.name: DTYPES[operand.dtype].bytes for operand in operands}
    size |= {result.name: DTYPES[result.dtype].bytes for result in results}
    matrices = [operand for operand in operands if operand.is_matrix]
    types = [one.dtype for one in matrices], [one.dtype for one in results]
    reused = zip(results, reused_buffers(*types), strict=True)
    own = tuple(size[one.name] for one, place in reused if place is None)
    matrix_bytes = sum(size[operand.name] for operand in matrices)
    vectors = [size[operand.name] for operand in operands if len(operand.axes) == 1]
    return Product(
        kind=_kind(spec.dtype.a, precision),
        bytes=DTYPES[spec.dtype.a].bytes,
        out_bytes=max(size[result.name] for result in results),
        tile_bytes=matrix_bytes + sum(own),
        layout=spec.layout,
        vector_bytes=max(vectors, default=0),
        matrix_bytes=matrix_bytes,
        own_bytes=own,
        result_bytes=sum(size[result.name] for result in results),
        passed=len(operands) + len(results) - 1,
        operations=epilogue.instructions,
        rights=len(contraction.rhs),
    )


def _kind(dtype: str, precision: str | None) -> str:
    """The key of `Target.flops_per_clock` for inputs of `dtype`."""
    return precision or next(iter(PRECISIONS)) if DTYPES[dtype].precise else dtype
