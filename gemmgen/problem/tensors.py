"""The tensors and numbers of one kernel beside A and B, and the text they become."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmgen.epilogue.checked import AXES, Statement
from gemmgen.epilogue.expression import Node, in_triton
from gemmgen.tables.dtypes import DTYPES, UNANNOTATED
from gemmgen.tables.layouts import AXIS_SIZES, Matrix, strides_of


@dataclass(frozen=True)
class Tensor:
    """A tensor of a call, as it is passed: its axes in the order of its dimensions.

    `role` is what schedules call it: `inputs`, which are multiplied, `operands`, which
    are indexed [m, n], `vectors`, which are indexed otherwise, or `results`.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    role: str

    @property
    def sizes(self) -> tuple[str, ...]:
        """`("N", "K")`: those of its dimensions."""
        return tuple(AXIS_SIZES[axis] for axis in self.axes)


@dataclass(frozen=True)
class Operand:
    """An extra input: a tensor indexed by `axes`, or a number if there are none.

    `dtype` is its spec name; `arithmetic` that of the epilogue, to which it is cast.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    arithmetic: str

    @property
    def is_number(self) -> bool:
        """Whether it is a Python float and not a tensor."""
        return not self.axes

    @property
    def shape(self) -> str:
        """`[M, N]`, for docstrings."""
        return f"[{', '.join(AXIS_SIZES[axis] for axis in self.axes)}]"

    @property
    def strides(self) -> tuple[str, ...]:
        """The kernel's stride arguments."""
        return strides_of(self.name, self.axes)

    @property
    def is_matrix(self) -> bool:
        """Whether it is indexed [m, n], as results are."""
        return self.axes == ("m", "n")

    @property
    def by_rows(self) -> bool:
        """Whether what it has for a row of the results is its own row, or number."""
        return self.axes[:1] == ("m",)

    @property
    def parameter(self) -> str:
        """The kernel's parameter. A float argument is fp32 unless annotated."""
        if not self.is_number:
            return f"{self.name}_ptr"
        if self.arithmetic == UNANNOTATED:
            return self.name
        return f"{self.name}: tl.{DTYPES[self.arithmetic].triton}"

    @property
    def passed(self) -> Tensor:
        """It as a tensor of a call."""
        role = "operands" if self.is_matrix else "vectors"
        return Tensor(self.name, self.axes, self.dtype, role)

    @property
    def in_kernel(self) -> str:
        """The operand in a formula over the tile: `bias[None, :]`."""
        return self.name + AXES[self.axes].broadcast

    @property
    def loads(self) -> list[str]:
        """The statements that load a tile's part of it, cast to the arithmetic."""
        row = AXES[self.axes]
        offsets = row.offsets.format(**dict(zip(self.axes, self.strides, strict=True)))
        value = f"{self.name} = tl.load({self.name}_ptr + {{}}, mask={row.mask})"
        value += self.cast
        if len(self.axes) == 1:
            return [value.format(offsets)]
        name = f"{self.name}_offs"
        return [f"{name} = {offsets}", value.format(name)]

    @property
    def cast(self) -> str:
        """The conversion of what was loaded, if the arithmetic is another type."""
        if self.dtype == self.arithmetic:
            return ""
        return f".to(tl.{DTYPES[self.arithmetic].triton})"


@dataclass(frozen=True)
class Result:
    """An output [M, N]: the epilogue's value `value`, rounded to `dtype` and stored."""

    name: str
    value: str
    dtype: str
    arithmetic: str

    @property
    def matrix(self) -> Matrix:
        """The result as a matrix over m and n."""
        return Matrix(self.name, ("m", "n"))

    @property
    def passed(self) -> Tensor:
        """It as a tensor of a call."""
        return Tensor(self.name, ("m", "n"), self.dtype, "results")

    @property
    def rounded(self) -> str:
        """The value, rounded once, as kernel text."""
        if self.dtype == self.arithmetic:
            return self.value
        return f"{self.value}.to(tl.{DTYPES[self.dtype].triton})"

    def store(self, value: str) -> list[str]:
        """The statements that store a tile's value through pointers."""
        offsets, matrix = f"{self.name}_offs", self.matrix
        return [
            f"{offsets} = {matrix.offsets}",
            f"tl.store({self.name}_ptr + {offsets}, {value}, mask={matrix.mask})",
        ]


def formula(
    node: Node,
    operands: Iterable[Operand],
    stated: Iterable[Statement],
    arithmetic: str,
) -> str:
    """An expression over operands and what was stated before, as kernel text."""
    operands = list(operands)
    numbers = [one.name for one in operands if one.is_number]
    numbers += [one.target for one in stated if not one.axes]
    spelled = {one.name: one.in_kernel for one in operands}
    wide = arithmetic != UNANNOTATED
    told = f"tl.{DTYPES[arithmetic].triton}" if wide else ""
    return in_triton(node, spelled, numbers, told)


def rows_first(a: Matrix, operands: Sequence[Operand]) -> bool:
    """Whether A and what else has an axis m are stored by rows of the results."""
    return not a.transposed and all(one.by_rows for one in operands if "m" in one.axes)
