"""Table of operations: what each calls its matrices and sums, how they are passed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """One operation: the names of its left matrix, its right ones and the result.

    Each right matrix has its sum, which epilogues call by the name of `accumulators`;
    `epilogue` is the text of the one that a spec leaves out. `layout` is the only
    layout it may have, if one; `leading` says that the rows of the left matrix may be
    spread over any leading axes, `layer` that the right one may be a layer's weight.
    """

    name: str
    lhs: str = "a"
    rhs: tuple[str, ...] = ("b",)
    result: str = "c"
    accumulators: tuple[str, ...] = ("acc",)
    epilogue: str = "acc"
    layout: str | None = None
    leading: bool = False
    layer: bool = False
    built: bool = True


OPERATIONS: dict[str, Operation] = {
    row.name: row
    for row in (
        Operation("gemm"),
        Operation("linear", "x", ("w",), "y", layout="NT", leading=True, layer=True),
        Operation("bmm", built=False),
        Operation(
            "gated_linear", "x", ("w_gate", "w_up"), "y", ("gate", "up"),
            "silu(gate) * up", layout="NT", leading=True, built=False,
        ),
        Operation("grouped", built=False),
    )
}  # fmt: skip
