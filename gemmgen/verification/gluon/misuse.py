"""What a kernel does wrong with barriers, shared memory or registers, and where.

A place is a line of the kernel with the tile and the K block that it is at.
"""

import sys
from types import FrameType
from typing import Any

MARK = "__interpreted_gluon__"
"""A global of every function that is interpreted, by which its frames are known."""
_TOLD = ("CONSUMER", "tile", "k", "k_iter", "wave")
"""The local variables that say how far a kernel has got."""


class Misuse(Exception):
    """A rule of the hardware that a kernel breaks, whether or not results show it."""


class Unsupported(Exception):
    """A part of Gluon that the interpreter does not know."""


def frame_here() -> FrameType | None:
    """The innermost frame of the kernel that called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and MARK not in frame.f_globals:
        frame = frame.f_back
    return frame


def place(frame: FrameType | None) -> str:
    """`consume, line 512 (CONSUMER=1, tile=3, k=2)`."""
    if frame is None:
        return "the launch"
    values = [
        f"{name}={frame.f_locals[name]}" for name in _TOLD if name in frame.f_locals
    ]
    there = f"{frame.f_code.co_name}, line {frame.f_lineno}"
    return f"{there} ({', '.join(values)})" if values else there


def here() -> str:
    """The place of the kernel that called."""
    return place(frame_here())


def misused(what: str) -> Misuse:
    """A misuse, with the place where it shows."""
    return Misuse(f"{what}; seen in {here()}")


def cause(error: BaseException) -> BaseException:
    """The misuse that an exception was made from, else the exception itself.

    Triton's interpreter wraps what a device function raises.
    """
    found: Any = error
    while found is not None:
        if isinstance(found, Misuse):
            return found
        found = found.__cause__
    return error
