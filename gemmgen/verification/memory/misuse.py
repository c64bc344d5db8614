"""What a kernel does wrong with barriers, shared memory or registers, and where.

A place is a line of the kernel with the tile and the K block that it is at.
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
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
    return next(frames(sys._getframe(1)), None)


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Those of the kernel's functions, from a frame outwards."""
    while frame is not None:
        if MARK in frame.f_globals:
            yield frame
        frame = frame.f_back


def place(frame: FrameType | None) -> str:
    """`multiply, line 151, for consume, line 48 (CONSUMER=1, tile=3, k=2)`.

    First the line itself, then that of the loop over tiles if another function has it.
    """
    own = [(one, _told(one)) for one in frames(frame)]
    if not own:
        return "the launch"
    looping = [one for one in own[1:] if "tile" in one[1]][:1]
    there = ", for ".join(
        f"{one.f_code.co_name}, line {one.f_lineno}" for one, _ in (own[0], *looping)
    )
    known: dict[str, Any] = {}
    for _, told in reversed(own):
        known |= told
    values = [f"{name}={known[name]}" for name in _TOLD if name in known]
    return f"{there} ({', '.join(values)})" if values else there


def _told(frame: FrameType) -> dict[str, Any]:
    names = _names(frame.f_code)
    values = frame.f_locals if names else {}
    return {name: values[name] for name in names if name in values}


@lru_cache(1024)
def _names(code: CodeType) -> list[str]:
    """Those of the local variables of a function that are told."""
    return [name for name in _TOLD if name in code.co_varnames + code.co_cellvars]


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
