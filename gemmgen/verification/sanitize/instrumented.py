"""Triton's own sanitizers, by name: checks that it compiles into kernels."""

from collections.abc import Callable
from typing import Any

from gemmgen.verification.sanitize import consan, fpsan

OWN = {consan.CONSAN: consan, fpsan.FPSAN: fpsan}
"""Those that need no program to run under: each what it concerns, and its cases."""


def allocate(zeros: Callable[..., Any]) -> None:
    """Give Triton the memory that the checks keep their state in.

    All of it zero, as what Triton itself gives them since 3.8: they take it as it is.
    """
    import triton
    from triton.runtime._allocation import set_profile_allocator

    def allocator(size: int, alignment: int, stream: int | None) -> Any:
        return zeros(size, device="cuda")

    triton.set_allocator(allocator)
    set_profile_allocator(allocator)
