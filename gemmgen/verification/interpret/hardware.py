"""What CUDA requires of a launch: its grid, and the tensors that descriptors describe.

The interpreter would run all the same. Limits: CUDA C++ Programming Guide, technical
specifications by compute capability; CUDA driver API, cuTensorMapEncodeTiled.
"""

from collections.abc import Iterable, Sequence
from typing import Any

_MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""Programs along each axis of a grid."""
_LINE = 16
"""Bytes that addresses and steps of a described tensor are multiples of."""
_MOST_ELEMENTS, _MOST_BYTES = 2**32, 2**40
"""Elements along an axis of such a tensor, bytes from one row to the next: below it."""


class Refused(Exception):
    """A launch that a GPU refuses, or runs with a result that nobody asked for."""


def check_grid(grid: Sequence[int]) -> None:
    """Raise `Refused` for more programs than a grid can have."""
    for axis, count, most in zip("xyz", grid, _MOST_PROGRAMS, strict=False):
        if not 0 <= count <= most:
            raise Refused(f"the grid has {count} programs along {axis}, of {most}")


def check_unrolled(start: int, end: int) -> None:
    """Raise `Refused` for an unrolled loop that ends before it begins.

    The number of its turns is divided as that of a loop that has some (MLIR's
    `loopUnrollByFactor`), and what remains is huge.
    """
    if end < start:
        raise Refused(f"an unrolled loop goes from {start} to {end}, and on from there")


def check_described(matrix: Any, block: Sequence[int]) -> None:
    """Raise `Refused` unless a tensor map can be made of a tensor and its block."""
    for problem in _problems(matrix, block):
        raise Refused(f"a descriptor of {_told(matrix)} in blocks {block}: {problem}")


def _problems(matrix: Any, block: Sequence[int]) -> Iterable[str]:
    size = matrix.element_size()
    *steps, unit = matrix.stride()
    if matrix.data_ptr() % _LINE:
        yield f"its address is no multiple of {_LINE} bytes"
    if unit != 1:
        yield "its columns are not contiguous"
    if any(step * size % _LINE for step in steps):
        yield f"the step between its rows is no multiple of {_LINE} bytes"
    if any(step * size >= _MOST_BYTES for step in steps):
        yield "its rows are too far apart"
    if not all(0 < count < _MOST_ELEMENTS for count in matrix.shape):
        yield "it is empty or has too many rows or columns"
    shared = matrix.stride(-2) < matrix.shape[-1] and matrix.shape[-2] > 1
    if shared:
        yield "its rows overlap"
    if block[-1] * size % _LINE:
        yield f"a row of its blocks is no multiple of {_LINE} bytes"


def check_stored(width: int) -> None:
    """Raise `Refused` for a store into a described tensor whose rows have such bytes.

    It fills up the last 16 bytes of a row.
    """
    if width % _LINE:
        raise Refused(
            f"a store through a descriptor writes beyond rows of {width} bytes, "
            f"which is no multiple of {_LINE}"
        )


def _told(matrix: Any) -> str:
    sizes = " x ".join(map(str, matrix.shape))
    return f"{sizes} elements with strides {tuple(matrix.stride())}"
