"""What a checked epilogue is: its statements, its operands, and their axes.

The table `AXES` says what each operand index means; the parser is next door.
"""

from collections.abc import Collection
from dataclasses import dataclass

from gemmgen.epilogue.expression import Call, Name, Node, names, walk
from gemmgen.tables.functions import OPS

_POLYNOMIALS = ("erf", "normal_cdf")
"""Functions that keep several values of an element at once."""


@dataclass(frozen=True)
class Axes:
    """What an operand's index says: its sizes, and how it meets the tile [m, n].

    Kernel text: `offsets` of a tile's elements, from the strides along the axes that
    braces name, and their `mask`; `broadcast` follows what was loaded in a formula,
    `in_torch` the tensor in a formula over whole tensors, for docstrings.
    """

    axes: tuple[str, ...]
    offsets: str
    mask: str
    broadcast: str = ""
    in_torch: str = ""

    @property
    def text(self) -> str:
        """`[m, n]`, as the language writes it."""
        return f"[{', '.join(self.axes)}]"


AXES: dict[tuple[str, ...], Axes] = {
    row.axes: row
    for row in (
        Axes((), "", ""),
        Axes(("n",), "offs_n * {n}", "mask_n", "[None, :]"),
        Axes(("m",), "offs_m * {m}", "mask_m", "[:, None]", "[..., None]"),
        Axes(
            ("m", "n"),
            "offs_m[:, None] * {m} + offs_n[None, :] * {n}",
            "mask_m[:, None] & mask_n[None, :]",
        ),
    )
}


def default_target(result: str, operands: Collection[str]) -> str:
    """The name of a bare expression's result, which steps aside for an operand's."""
    return "out" if result in operands else result


@dataclass(frozen=True)
class Operand:
    """An extra input of the epilogue and the axes that index it."""

    name: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """`target = value`; `axes` are those along which the value varies."""

    target: str
    value: Node
    axes: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the value is a matrix over m and n."""
        return len(self.axes) == 2


@dataclass(frozen=True)
class Epilogue:
    """A checked epilogue: statements in order, operands in order of first use.

    `accumulators` are the names of the sums that it starts from.
    """

    statements: tuple[Statement, ...]
    operands: tuple[Operand, ...]
    accumulators: tuple[str, ...]

    @property
    def bare(self) -> str | None:
        """The sum that is stored as it stands, if the epilogue is no more: `y = acc`.

        Such a one leaves no trace.
        """
        match self.statements:
            case (Statement(value=Name(name)),) if name in self.accumulators:
                return name
        return None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is computed of the product before it is stored."""
        return self.bare is not None

    @property
    def used(self) -> frozenset[str]:
        """Every name that some statement reads."""
        return frozenset(
            name for statement in self.statements for name in names(statement.value)
        )

    @property
    def registers(self) -> int:
        """Registers to keep free beside the accumulator: 0, 64 or 96 in a thread.

        A tile of values, such as a matrix operand or a function's argument, lives
        beside the accumulator; several do beside each other.
        """
        uses = [
            name for statement in self.statements for name in names(statement.value)
        ]
        tiles = sum(len(operand.axes) == 2 for operand in self.operands)
        tiles += len(self.functions) + len(self.statements) - 1
        tiles += sum(uses.count(name) - 1 for name in self.accumulators)
        return 0 if tiles == 0 else 64 if tiles <= 2 else 96

    @property
    def live_tiles(self) -> int:
        """How many tiles of values live beside the accumulator at the worst moment.

        A matrix operand is one, a function that keeps its argument another; a
        polynomial, such as that of the error function, has more on the way.
        """
        rows = [OPS[name] for name in self.functions if name in OPS]
        polynomials = sum(3 for row in rows if any(map(row.triton.count, _POLYNOMIALS)))
        helpers = sum(not row.in_place for row in rows)
        matrices = sum(len(operand.axes) == 2 for operand in self.operands)
        return polynomials + helpers + matrices

    @property
    def instructions(self) -> int:
        """About how many instructions an element takes, for estimates of time."""
        parts = [
            part for statement in self.statements for part in walk(statement.value)
        ]
        called = [part.function for part in parts if isinstance(part, Call)]
        calls = sum(OPS[name].instructions if name in OPS else 1 for name in called)
        return calls + sum(not isinstance(part, (Call, Name)) for part in parts)

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions called, in order of first use."""
        calls = (
            part.function
            for statement in self.statements
            for part in walk(statement.value)
            if isinstance(part, Call)
        )
        return tuple(dict.fromkeys(calls))
