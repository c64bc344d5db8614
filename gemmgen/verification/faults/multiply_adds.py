"""The faults that only kernels by multiply-adds have: of copies, stages and layouts.

Each is an edit of one node, as in `faults`; texts are those of what kernels share.
"""

from collections.abc import Iterator

from gemmgen.base.ast_edits import Edit, passed_as
from gemmgen.verification.faults.edits import changed, dropped, replaced

_WAIT, _COMMIT = "async_copy.wait_group", "async_copy.commit_group"
_EXISTS, _IS_LEFT = "exists", "along_k < k_left"


def multiply_add_families() -> Iterator[tuple[str, Edit]]:
    """Every kind of fault, with the edit that makes it."""
    yield "wait for copies dropped", dropped([_WAIT])
    yield "a group too few waited for", changed(_WAIT, 0, "{} + 1")
    yield "group not committed", dropped([_COMMIT])
    yield "copied into another stage", replaced(
        "(i + STAGES - 1) % STAGES", "i % STAGES"
    )
    yield "stage of another block", replaced("i % STAGES", "(i + 1) % STAGES")
    yield "block copied again", replaced("ptr + step", "ptr")
    yield "step of another length", replaced(
        "tl.cast(stride_k, INDEX) * BLOCK_K", "tl.cast(stride_k, INDEX)"
    )
    mask = f"{_EXISTS} & ({_IS_LEFT})"
    yield "copied beyond K", passed_as("mask", mask, _EXISTS)
    yield "copied beyond the last line", passed_as("mask", mask, _IS_LEFT)
    yield "more of K than is left", replaced("rest - i * BLOCK_K", "rest")
    yield "more of K than is left", replaced("K - i * BLOCK_K", "K")
    for side in ("a", "b"):
        yield "block of another split", replaced(
            f"tl.cast({side}_lines[3], INDEX) * k_begin", "0"
        )
    yield "sum begun anew", changed(
        "gl.dot_fma", 2, "gl.zeros({0}.shape, gl.float32, {0}.type.layout)"
    )
    for axis in ("m", "n"):
        yield "tile of another", replaced(f"first_{axis}", "0")
