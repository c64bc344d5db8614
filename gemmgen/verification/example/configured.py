"""Kernels that are autotuned, with one of their configurations forced."""

from collections.abc import Callable
from typing import Any

from gemmgen.verification.oracle.comparison import Block


class Configured:
    """An autotuned kernel with its configuration settled."""

    def __init__(self, kernel: Any, meta: dict[str, Any]) -> None:
        self.kernel = kernel
        self.meta = meta

    def cut_to(self, block: Block, group_m: int) -> "Configured":
        """The same with a tile of other sides, and of other groups if these are."""
        sides = {"BLOCK_M": block.m, "BLOCK_N": block.n, "BLOCK_K": block.k}
        groups = {"GROUP_M": group_m} if group_m else {}
        return Configured(self.kernel, self.meta | sides | groups)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *given, **more: self.kernel[grid](*given, **more, **self.meta)
