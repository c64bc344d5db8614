"""A call in two parts, cut in each way in which DTensor is told that it may be.

Parts are tensors as ever: placements stand in for torch's, whose import takes a second
and makes operators register with DTensor.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from gemmgen.verification.example.one_example import Wrong

_PARTS = 2
_ROUNDINGS = 4
"""Of the largest, by which a sum of parts may differ: parts are rounded, and terms.

Of an element's own size it may be more, for terms may cancel.
"""


@dataclass(frozen=True)
class Replicate:
    """Every part has all."""


@dataclass(frozen=True)
class Shard:
    """Parts follow each other along a dimension."""

    dim: int


@dataclass(frozen=True)
class Partial:
    """Parts add up."""


PLACEMENTS: Any = SimpleNamespace(Partial=Partial, Replicate=Replicate, Shard=Shard)
"""What stands in for torch's module of them."""
Call = Callable[..., Sequence[Tensor]]


def check_cut(sharding: Any, axes: Any, call: Call, inputs: Sequence[Any]) -> int:
    """Raise `Wrong` where parts do not make up a call's results; how many ways.

    `sharding` is the module of a package that says in which ways tensors of such `axes`
    may be cut.
    """
    with patch.dict(sys.modules, {"torch.distributed.tensor": PLACEMENTS}):
        ways = [*sharding.ways(axes, inputs)]
    wanted = call(*inputs)
    for results, arguments in ways:
        parts = _parts(call, inputs, arguments)
        for how, want, *made in zip(results, wanted, *parts, strict=True):
            if not _made_up(made, how, want):
                raise Wrong(f"{arguments} make no {results} of the result")
    return len(ways)


def _parts(
    call: Call, inputs: Sequence[Any], arguments: Sequence[Any]
) -> Iterator[Sequence[Tensor]]:
    """What each process returns."""
    for at in range(_PARTS):
        own = zip(inputs, arguments, strict=True)
        yield call(*(_part(one, how, at) for one, how in own))


def _part(whole: Any, how: Any, at: int) -> Any:
    """What a process has; of an addend the first has all. Numbers have no placement."""
    if isinstance(whole, Tensor) == (how is None):
        raise Wrong(f"{how} is no placement of {type(whole).__name__}")
    if isinstance(how, Shard):
        return whole.tensor_split(_PARTS, how.dim)[at]
    if isinstance(how, Partial) and at > 0:
        return torch.zeros_like(whole)
    return whole


def _made_up(parts: Sequence[Tensor], how: Any, want: Tensor) -> bool:
    """Whether parts make up a result; without rounding, unless they add up."""
    within = torch.zeros((), dtype=torch.float64)
    found = parts[-1].double()
    if isinstance(how, Shard):
        found = torch.cat(list(parts), how.dim).double()
    elif isinstance(how, Partial):
        found = torch.stack(list(parts)).double().sum(0)
        sizes = torch.stack(list(parts)).double().abs().sum(0)
        within = _ROUNDINGS * torch.finfo(want.dtype).eps * sizes.max()
    if found.shape != want.shape:
        return False
    alike = found == want.double()
    near = (found - want.double()).abs() <= within.to(found.device)
    return bool((alike | near | (found.isnan() & want.isnan())).all())
