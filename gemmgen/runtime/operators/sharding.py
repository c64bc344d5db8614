"""Sharding rules of operators for DTensor, made from the axes of their tensors.

An operator's rules are registered when its first DTensor comes, since the import of
torch.distributed.tensor takes a second.
"""

import itertools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Axes(NamedTuple):
    """The axes of an operator's arguments and results; a number has none.

    Results of parts of K add up if `linear_in` is not None; it names the operands that
    are addends of the results, of which each part then takes a part.
    """

    arguments: Mapping[str, str]
    results: Sequence[str]
    linear_in: Collection[str] | None


def shard(slot: Any) -> None:
    """Register a slot's operator with DTensor, if that is imported."""
    if slot.sharded is not None or "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor.experimental import register_sharding

    slot.sharded = slot.operator.axes
    register_sharding(slot.overload)(lambda *given: [*ways(slot.sharded, given)])


def ways(axes: Axes, given: Sequence[Any]) -> Iterator[tuple[list, list]]:
    """Yield placements of results and arguments along one mesh axis.

    The first ones replicate everything. The first argument is a matrix, whose rows may
    be several leading axes; each of them may be cut. One that is None has no placement.
    """
    from torch.distributed.tensor import Partial, Replicate

    leading = next(one for one in given if one is not None).ndim - 1
    arguments = {
        name: [] if one is None else dims(along, leading)
        for (name, along), one in zip(axes.arguments.items(), given, strict=True)
    }
    results = [dims(along, leading) for along in axes.results]
    whole = [Replicate() if own else None for own in arguments.values()]
    yield [Replicate() for _ in results], whole
    for along in dict.fromkeys(itertools.chain(*arguments.values())):
        contracted = not any(along in own for own in results)
        added = axes.linear_in if contracted else ()
        if added is None:
            continue
        yield (
            [cut(own, along, Partial()) for own in results],
            [
                cut(own, along, Partial() if name in added else Replicate())
                for name, own in arguments.items()
            ],
        )


def dims(axes: str, leading: int) -> list[Any]:
    """Return the axis of each dimension of a tensor, a number for those of its rows."""
    places = ([*range(leading)] if axis == "m" else [axis] for axis in axes)
    return [*itertools.chain(*places)]


def cut(dims: Sequence[Any], along: Any, other: Any) -> Any:
    """Return the placement of a tensor: cut, or `other`; None for a number."""
    from torch.distributed.tensor import Shard

    if not dims:
        return None
    return Shard(dims.index(along)) if along in dims else other
