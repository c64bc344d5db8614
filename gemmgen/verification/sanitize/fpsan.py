"""Triton's FPSan over all tiles of a kernel, which must agree in every bit.

It makes floats a ring of integers, in which sums and products are exact and come in any
order to the same. So what two schedules return differs only if one of them left out an
element, took one twice or took another's: there is no tolerance in which a fault could
hide. What is here runs in the process that calls kernels; it needs no other program.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gemmgen.select.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor

    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.subject import Variant

FPSAN = "fpsan"
ENVIRONMENT = {"TRITON_INSTRUMENTATION_MODE": FPSAN}
SINCE = "3.8"
"""The first Triton that has it for NVIDIA's GPUs."""

_SIZES = 8 * 37, 8 * 53, 8 * 67
"""M, N, K: rows of whole 16 bytes, beyond the largest tile, multiples of no side."""

_TENSOR_CORE = 16
"""The least side of a tile that it multiplies."""


def concerns(plan: Plan) -> bool:
    """Whether a kernel has tiles that must agree."""
    return not plan.configs


def cases(plan: Plan, variant: "Variant") -> Iterator["Case"]:
    """The same for every tile; odd sizes for those that take no descriptors."""
    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.edge_cases import numbered

    m, n, k = _SIZES
    yield numbered(plan, Case((m,), n, k, "normal"))
    if not variant.described(plan):
        yield numbered(plan, Case((m - 1,), n - 1, k - 1, "normal"))


class Agreement:
    """What the tiles of one kernel returned, of which each is held against the first.

    Those that compute the same formula in the ring, that is. Rounding to tf32 is none
    of its operations: descriptors round unseen, where pointers do so in the kernel. Nor
    are three products of parts in tf32 the one of the whole, as which what needs no
    tensor core takes it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.first: dict[object, tuple[str, list[Tensor]]] = {}

    def differs(
        self, case: "Case", variant: "Variant", results: Sequence["Tensor"]
    ) -> str:
        """How results differ from those of an earlier tile; empty if they do not."""
        mma, block = self.plan.product.mma, variant.block
        unseen = mma.rounds and bool(variant.described(self.plan))
        whole = mma.terms > 1 and min(block.m, block.n) < _TENSOR_CORE
        kept = [one.clone() for one in results]
        key = case, unseen, whole
        name, expected = self.first.setdefault(key, (variant.name, kept))
        wrong = [
            f"{int(differing.sum())} of {differing.numel()} elements of {result.name}"
            for result, ours, theirs in zip(
                self.plan.results, kept, expected, strict=True
            )
            if (differing := _bits(ours) != _bits(theirs)).any()
        ]
        if not wrong:
            return ""
        return f"{' and '.join(wrong)} differ under FPSan from those of {name}"


def _bits(tensor: "Tensor") -> "Tensor":
    """The elements as integers, so that NaN are compared as all others are."""
    import torch

    widths = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(widths[tensor.element_size()])
