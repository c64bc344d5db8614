"""Table of scalings: the factors that products of 8-bit inputs are multiplied with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scaling:
    """The axes of a left matrix's scale and of a right one's; None: there is none.

    No axes are a number, `k/128` one of each block of 128, which only the loop over K
    can apply.
    """

    name: str
    lhs: tuple[str, ...] | None = None
    rhs: tuple[str, ...] | None = None
    built: bool = False


SCALINGS: dict[str, Scaling] = {
    row.name: row
    for row in (
        Scaling("none", built=True),
        Scaling("tensor", (), ()),
        Scaling("row", ("m",), ("n",)),
        Scaling("block128", ("m", "k/128"), ("n/128", "k/128")),
    )
}
