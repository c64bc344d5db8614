"""What tensors hold in an example: kinds of data, each good at showing some faults."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gemmgen.plan import Plan
from gemmgen.verification.constants import OPERAND_LIMIT, narrow_density, wide_limit

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Source:
    """Random numbers for one tensor of a call: A or B (`matrix`), or an operand."""

    plan: Plan
    k: int
    matrix: bool
    random: Generator

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
    reach = 4 if not source.matrix else 7 if source.plan.dtype == "fp16" else 16
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


KINDS: dict[str, Callable[[Source, Shape], Tensor]] = {
    "narrow": _narrow,
    "wide": _wide,
    "normal": _normal,
    "special": _special,
    "positive": _positive,
    "scattered": _scattered,
}
