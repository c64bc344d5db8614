"""The orders in which programs that meet run, one launch after another.

A case begins with its seed, so that it repeats. Knows nothing of the interpreter.
"""

import random
from collections.abc import Sequence

Position = tuple[int, ...]
TILE_AFTER_TILE, LAST_PARTS_FIRST, DRAWN = range(3)
"""The orders of a case's launches, of which the third stays."""


class _Turn:
    """Which launch of the case comes next, and whether programs have met in one."""

    seed = 0
    turn = 0
    met = False


def begin(seed: int, turn: int = TILE_AFTER_TILE) -> None:
    """Start a case, whose first launch has the order of this turn."""
    _Turn.seed, _Turn.turn, _Turn.met = seed, turn, False


def meet() -> None:
    """Note that a program has left something for others to read."""
    _Turn.met = True


def mattered() -> bool:
    """Whether programs of the case have met, so that their order may show."""
    return _Turn.met


def next_order(positions: Sequence[Position]) -> list[Position]:
    """The programs of the next launch.

    The last parts of all tiles come before their others in the second, so that tiles
    which share what they may not show.
    """
    turn, _Turn.turn = _Turn.turn, _Turn.turn + 1
    order = list(positions)
    if turn == LAST_PARTS_FIRST:
        order.sort(key=lambda position: position[::-1], reverse=True)
    elif turn >= DRAWN:
        random.Random(f"{_Turn.seed} {turn}").shuffle(order)
    return order
