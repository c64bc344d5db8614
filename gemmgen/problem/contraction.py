"""What a kernel multiplies: a left matrix, right ones beside each other, their sums."""

from dataclasses import dataclass

from gemmgen.tables.layouts import LAYOUTS, Matrix
from gemmgen.tables.operations import Operation


@dataclass(frozen=True)
class Contraction:
    """`lhs` [m, k] times each matrix [k, n] of `rhs`, summed over k.

    `accumulators` are the names of the sums, one for each right side, by which kernels
    and epilogues know them.
    """

    lhs: Matrix
    rhs: tuple[Matrix, ...]
    accumulators: tuple[str, ...]

    @property
    def inputs(self) -> tuple[Matrix, ...]:
        """All that is multiplied, as launchers take it."""
        return (self.lhs, *self.rhs)

    @property
    def first(self) -> Matrix:
        """The right side that says what N is."""
        return self.rhs[0]

    @property
    def products(self) -> dict[str, Matrix]:
        """The right side of each sum, by the sum's name."""
        return dict(zip(self.accumulators, self.rhs, strict=True))


def contraction_of(operation: Operation, layout: str) -> Contraction:
    """What an operation multiplies, its matrices passed in such a layout."""
    row = LAYOUTS[layout]
    return Contraction(
        Matrix(operation.lhs, ("m", "k"), row.a_transposed),
        tuple(Matrix(name, ("k", "n"), row.b_transposed) for name in operation.rhs),
        operation.accumulators,
    )
