"""Triton's ConSan over specialized kernels: races, waits that are missing, deadlocks.

Triton compiles its checks into the kernel, which asserts them on the GPU. What is here
runs in the process that calls kernels; it needs no other program.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from gemmgen.select.plan import Plan

if TYPE_CHECKING:
    from types import ModuleType

    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.subject import Variant

CONSAN = "consan"
ENVIRONMENT = {
    "TRITON_INSTRUMENTATION_MODE": CONSAN,
    "CUDA_LAUNCH_BLOCKING": "1",  # so that an assertion is of the call that failed
}
ASSERTED = "Assertion `"
"""Stands in what a GPU writes about an assertion that does not hold."""

_PROGRAMS, _TILES = 2, (1, 3, 5)
"""Of so many programs one has more tiles than the other, or none."""
_EDGE = 16
"""Columns, and numbers along K, of a tile or block that is not whole."""


def concerns(plan: Plan) -> bool:
    """Whether a kernel has anything that it looks at."""
    return plan.specialized is not None


def cases(plan: Plan, variant: "Variant") -> Iterator["Case"]:
    """K of one and two blocks, of a ring and of one more; odd numbers of tiles.

    The last block and tile are not whole. Sizes divide by 16, so Triton compiles once.
    """
    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.edge_cases import numbered

    if not variant.specialized:
        return
    block, stages = variant.block, variant.value[0].stages
    for blocks in dict.fromkeys((1, 2, stages, stages + 1)):
        for tiles in _TILES:
            m = (tiles - 1) * block.m + _EDGE
            n, k = block.n - _EDGE, (blocks - 1) * block.k + _EDGE
            yield numbered(plan, Case((m,), n, k))


@contextmanager
def few_programs(module: "ModuleType") -> Iterator[None]:
    """Have persistent kernels start fewer programs than there are SMs."""
    from gemmgen.verification.example import subject

    table = vars(subject.runtime(module, "table"))
    with patch.dict(table, num_sms=lambda device: _PROGRAMS):
        yield
