"""What tensors hold in an example: kinds of data, each good at showing some faults."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gemmgen.select.plan import Plan
from gemmgen.verification.oracle.constants import (
    OPERAND_LIMIT,
    narrow_density,
    wide_limit,
)
from gemmgen.verification.oracle.reference import torch_dtype

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Random numbers for one tensor of a call: A or B (`matrix`), or an operand.

    A and B lie with K `along` an axis; of one of them the data may have to be
    `opposed` to that of the other.
    """

    plan: Plan
    k: int
    matrix: bool
    random: Generator
    along: int | None = None
    opposed: bool = False

    def whole(self, shape: Shape, limit: int) -> Tensor:
        """Whole numbers up to `limit` either way."""
        return self._integers(shape, -limit, limit + 1)

    def signs(self, shape: Shape, limit: int = 1) -> Tensor:
        """Whole numbers up to `limit` either way, none of them 0."""
        size = self._integers(shape, 1, limit + 1)
        return size * (2 * self._integers(shape, 0, 2) - 1)

    def normal(self, shape: Shape) -> Tensor:
        """The normal distribution."""
        return torch.randn(
            shape, generator=self.random, device=self.random.device
        ).double()

    def uniform(self, shape: Shape) -> Tensor:
        """Numbers in [0, 1)."""
        return torch.rand(
            shape, generator=self.random, device=self.random.device
        ).double()

    def _integers(self, shape: Shape, low: int, high: int) -> Tensor:
        return torch.randint(
            low, high, shape, generator=self.random, device=self.random.device
        ).double()


def _narrow(source: Source, shape: Shape) -> Tensor:
    """Results so small that they are exact: one product lost or doubled shows."""
    if not source.matrix:
        return source.signs(shape, OPERAND_LIMIT)
    density = narrow_density(source.plan, source.k)
    return source.signs(shape) * (source.uniform(shape) < density)


def _wide(source: Source, shape: Shape) -> Tensor:
    """Sums that fill the accumulator to the last bit and are still exact."""
    if not source.matrix:
        return source.signs(shape, OPERAND_LIMIT)
    return source.whole(shape, wide_limit(source.plan, source.k))


def _normal(source: Source, shape: Shape) -> Tensor:
    """What models hold."""
    return source.normal(shape)


def _positive(source: Source, shape: Shape) -> Tensor:
    """Sums that only grow: rounding errors add up in one direction."""
    return source.uniform(shape)


def _scattered(source: Source, shape: Shape) -> Tensor:
    """Magnitudes far apart, as far as the dtype and exp in an epilogue bear."""
    reach = min(16, int(_octaves(source) / 2 - 1)) if source.matrix else 4
    return source.normal(shape) * torch.exp2(source.whole(shape, reach))


def _special(source: Source, shape: Shape) -> Tensor:
    """Small whole numbers with a NaN and an infinity or two among them."""
    data = source.signs(shape, 2)
    if data.numel():
        places = source._integers((2,), 0, data.numel()).long()
        which = source._integers((2,), 0, 3).long()
        odd = torch.tensor([torch.nan, torch.inf, -torch.inf], device=data.device)
        data.view(-1)[places] = odd.double()[which]
    return data


def _cancelling(source: Source, shape: Shape) -> Tensor:
    """Large sums that leave hardly more than what rounding them left, in any order.

    The second half of K takes back the first. Operands are as large as that.
    """
    data = source.normal(shape)
    if source.along is None:
        return data
    half = data.shape[source.along] // 2
    first = data.narrow(source.along, 0, half)
    back = first.flip(source.along)
    rest = data.narrow(source.along, half, data.shape[source.along] - half)
    rest.zero_()
    last = data.narrow(source.along, data.shape[source.along] - half, half)
    last.copy_(-back if source.opposed else back)
    return 2.0 ** min(11, _octaves(source) - 5) * data


def _octaves(source: Source) -> int:
    """So many octaves above 1 has the type of A and B: 16 of fp16."""
    return math.ceil(math.log2(torch.finfo(torch_dtype(source.plan.dtype)).max))


KINDS: dict[str, Callable[[Source, Shape], Tensor]] = {
    "narrow": _narrow,
    "wide": _wide,
    "normal": _normal,
    "special": _special,
    "positive": _positive,
    "scattered": _scattered,
}
CANCELLING = "cancelling"
EXACT = frozenset(("narrow", "wide", "special"))
"""Kinds of which every sum is the same number, or NaN, in whatever order."""
DRAWN = tuple(KINDS)
"""Kinds that say much of any kernel; one more shows the order of a sum and no more."""
KINDS[CANCELLING] = _cancelling
