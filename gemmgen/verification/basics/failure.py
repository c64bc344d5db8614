"""What an exception says about a kernel: an outcome's status and a line of story."""

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from gemmgen.verification.basics.outcome import OUT_OF_RESOURCES

_STATUS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((torch.OutOfMemoryError, OutOfResources, MemoryError), OUT_OF_RESOURCES),
    ((CompilationError, PTXASError), "compile error"),
    ((torch.AcceleratorError,), "crashed"),
)
"""The first row that holds an exception's type names it."""


_NO_MEMORY = ("CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
"""What CUDA and its libraries say of a GPU whose memory others have: no fault."""


class Fault(Exception):
    """Something is wrong: the outcome's status and the whole story."""

    def __init__(self, status: str, story: str) -> None:
        super().__init__(status, story)
        self.status = status
        self.story = story


def fault_of(error: Exception) -> Fault:
    """Any exception but a wrong result as a fault."""
    rows = (status for types, status in _STATUS if isinstance(error, types))
    starved = any(text in str(error) for text in _NO_MEMORY)
    return Fault(OUT_OF_RESOURCES if starved else next(rows, "error"), _line(error))


def _line(error: BaseException) -> str:
    """Its type and first line; of one that holds others, such as Hypothesis' of what
    failed once and not again, also those of the first."""
    line = (str(error).strip() or "no message").splitlines()[0][:300]
    held = getattr(error, "exceptions", ())
    more = f", first {_line(held[0])}" if held else ""
    return f"{type(error).__name__}: {line}{more}"
