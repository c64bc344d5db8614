"""How torch.distributed.tensor may cut an operator's arguments: rules for DTensor.

They are made of the axes of tensors. DTensor hears of an operator when its first one
comes: a process that has none does not import what takes a second.
"""

import itertools
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple


class Axes(NamedTuple):
    """The axes that an operator's arguments and its results lie along.

    A number has none. What is computed for a part of an axis that no result has adds up
    to the results, if the arguments `linear_in` are addends of their own there; where
    that is None, it does not.
    """

    arguments: Mapping[str, str]
    results: Sequence[str]
    linear_in: Collection[str] | None


def shard(slot: Any) -> None:
    """Tell DTensor what it may do with a slot's operator, if there is any DTensor."""
    if slot.sharded is not None or "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor.experimental import register_sharding

    slot.sharded = slot.operator.axes
    register_sharding(slot.overload)(lambda *given: [*ways(slot.sharded, given)])


def ways(axes: Axes, given: Sequence[Any]) -> Iterator[tuple[list, list]]:
    """Yield placements of results and arguments that go together, along one mesh axis.

    First those that cut nothing. What is given first is a matrix, or the rows of one
    over any leading sizes, of which each may be cut.
    """
    from torch.distributed.tensor import Partial, Replicate

    leading = given[0].ndim - 1
    arguments = {name: dims(own, leading) for name, own in axes.arguments.items()}
    results = [dims(own, leading) for own in axes.results]
    whole = [Replicate() if own else None for own in arguments.values()]
    yield [Replicate() for _ in results], whole
    for along in dict.fromkeys(itertools.chain(*arguments.values(), *results)):
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
    """Return what each dimension of a tensor is: an axis, or a number, of the rows."""
    places = ([*range(leading)] if axis == "m" else [axis] for axis in axes)
    return [*itertools.chain(*places)]


def cut(dims: Sequence[Any], along: Any, other: Any) -> Any:
    """Return where a tensor is cut, or what it is instead; None for a number."""
    from torch.distributed.tensor import Shard

    if not dims:
        return None
    return Shard(dims.index(along)) if along in dims else other
