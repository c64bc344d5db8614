"""The orders in which programs that meet run, one launch after another.

A case begins with its seed, so that it repeats. Knows nothing of the interpreter.
"""

import random
from collections.abc import Sequence

Position = tuple[int, ...]


class _Turn:
    """Which launch of the case comes next."""

    seed = 0
    launch = 0


def begin(seed: int) -> None:
    """Start a case."""
    _Turn.seed, _Turn.launch = seed, 0


def mattered() -> bool:
    """Whether programs of the case have met, and so would run in another order."""
    return _Turn.launch > 0


def next_order(positions: Sequence[Position]) -> list[Position]:
    """The programs of the next launch.

    First tile after tile; then the last parts of all tiles before their others, so that
    tiles which share what they may not show; from then on as drawn.
    """
    turn, _Turn.launch = _Turn.launch, _Turn.launch + 1
    order = list(positions)
    if turn == 1:
        order.sort(key=lambda position: position[::-1], reverse=True)
    elif turn > 1:
        random.Random(f"{_Turn.seed} {turn}").shuffle(order)
    return order
