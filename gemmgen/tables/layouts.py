"""Table of layouts, and `Matrix`: a logical operand over its storage.

A matrix spells its own fragments of kernel text, so that templates never ask whether
it is stored transposed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gemmgen.runtime.tile import stride_name

AXIS_SIZES = {"m": "M", "n": "N", "k": "K"}


@dataclass(frozen=True)
class Layout:
    """Whether A and B are passed as they are multiplied (N) or transposed (T)."""

    name: str
    a_transposed: bool
    b_transposed: bool


LAYOUTS: dict[str, Layout] = {
    row.name: row
    for row in (
        Layout("NN", False, False),
        Layout("NT", False, True),
        Layout("TN", True, False),
        Layout("TT", True, True),
    )
}


def strides_of(tensor: str, axes: Iterable[str]) -> tuple[str, ...]:
    """A kernel's arguments for the strides of a tensor along its axes."""
    return tuple(stride_name(tensor, axis) for axis in axes)


@dataclass(frozen=True)
class Matrix:
    """A matrix with logical axes `axes` (such as m, k), stored [rows, columns].

    `transposed` says that the tensor passed holds the axes in the other order.
    """

    name: str
    axes: tuple[str, str]
    transposed: bool = False

    @property
    def stored_axes(self) -> tuple[str, str]:
        """The axes in the order of the tensor's dimensions."""
        return (self.axes[1], self.axes[0]) if self.transposed else self.axes

    @property
    def stored_sizes(self) -> tuple[str, ...]:
        """`("N", "K")`: the sizes of the tensor passed."""
        return tuple(AXIS_SIZES[axis] for axis in self.stored_axes)

    @property
    def contiguous_axis(self) -> str:
        """The axis that is contiguous when the tensor passed is."""
        return self.stored_axes[1]

    @property
    def strides(self) -> tuple[str, ...]:
        """The kernel's stride arguments, in logical order."""
        return strides_of(self.name, self.axes)

    def stride(self, axis: str) -> str:
        """That along an axis."""
        return stride_name(self.name, axis)

    @property
    def row_stride(self) -> str:
        """The stride argument from one row of the tensor passed to the next."""
        return stride_name(self.name, self.stored_axes[0])

    @property
    def product_text(self) -> str:
        """The operand as a formula writes it: `b.T` if it is stored transposed."""
        return f"{self.name}.T" if self.transposed else self.name

    @property
    def transpose(self) -> "Matrix":
        """The same tensor with its axes named the other way round."""
        return Matrix(self.name, (self.axes[1], self.axes[0]), not self.transposed)

    def block(self, *, rows: str) -> str:
        """A block as its descriptor loads it, transposed unless it is stored by `rows`.

        Kernel text: `w.T` for a block [BLOCK_N, BLOCK_K] where k is to be first.
        """
        return self.name if self.stored_axes[0] == rows else f"{self.name}.T"

    def corner(self, **origins: str) -> str:
        """The first element of a block, by the tensor's own axes, as kernel text."""
        return f"[{', '.join(origins[axis] for axis in self.stored_axes)}]"

    @property
    def offsets(self) -> str:
        """Offsets of a tile at `offs_<axis>` in elements, as kernel text."""
        rows, columns = self.axes
        row_stride, column_stride = self.strides
        return (
            f"offs_{rows}[:, None] * {row_stride}"
            f" + offs_{columns}[None, :] * {column_stride}"
        )

    @property
    def mask(self) -> str:
        """Which elements of a tile exist, as kernel text over `mask_<axis>`."""
        rows, columns = self.axes
        return f"mask_{rows}[:, None] & mask_{columns}[None, :]"
