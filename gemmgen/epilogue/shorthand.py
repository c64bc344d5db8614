"""The short form of an epilogue: a list of steps → the expression it stands for.

Every piece of the expression knows its step, so that an error in it can be placed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gemmgen.tables.functions import OPS

OPERANDS: dict[str, tuple[str, str]] = {
    "bias": ("+", "bias[n]"),
    "row_bias": ("+", "row_bias[m]"),
    "residual": ("+", "residual[m, n]"),
    "scale": ("*", "scale[n]"),
    "row_scale": ("*", "row_scale[m]"),
    "alpha": ("*", "alpha[]"),
}
"""The operator and the operand that a step puts after what came before it."""

STEPS = (*OPERANDS, *(op.name for op in OPS.values() if len(op.parameters) == 1))


@dataclass(frozen=True)
class Piece:
    """A part of an expression and the step that it comes from."""

    text: str
    step: int | None


@lru_cache
def expand(steps: tuple[str, ...], product: str) -> tuple[Piece, ...]:
    """The pieces that make `gelu(acc + bias[n])` of `[bias, gelu]`, `product` acc.

    That is no sum, so that what it is multiplied with needs no brackets.
    """
    before: list[Piece] = []
    after: list[Piece] = []
    is_sum = False
    for index, step in enumerate(steps):
        operator, operand = OPERANDS.get(step, ("", ""))
        if not operator:
            before.append(Piece(f"{step}(", index))
            after.append(Piece(")", index))
        elif operator == "*" and is_sum:
            before.append(Piece("(", index))
            after.append(Piece(f") * {operand}", index))
        else:
            after.append(Piece(f" {operator} {operand}", index))
        is_sum = operator == "+"
    return (*reversed(before), Piece(product, None), *after)


def step_at(pieces: Sequence[Piece], offset: int) -> int | None:
    """The step that the character at `offset` of the expression comes from."""
    for piece in pieces:
        if offset < len(piece.text):
            return piece.step
        offset -= len(piece.text)
    return None
