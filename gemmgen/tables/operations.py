"""Table of operations: what each calls its matrices and how they are passed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """One operation: the names of A, B and the result.

    `layout` is the only layout it may have, if one; `leading` says that the rows of A
    may be spread over any leading axes.
    """

    name: str
    a: str = "a"
    b: str = "b"
    result: str = "c"
    layout: str | None = None
    leading: bool = False
    built: bool = True


OPERATIONS: dict[str, Operation] = {
    row.name: row
    for row in (
        Operation("gemm"),
        Operation("linear", "x", "w", "y", layout="NT", leading=True),
        Operation("bmm", built=False),
        Operation("gated_linear", "x", "w", "y", layout="NT", built=False),
        Operation("grouped", built=False),
    )
}
