"""The text of a schedule's file around its kernel: what it imports.

Every choice between two spellings is made here, so that a template has none.
"""

import re
from dataclasses import dataclass

from gemmgen.render.kernel_text import KernelText
from gemmgen.render.parts import EPILOGUE, shared
from gemmgen.render.specialized_text import SpecializedText
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan

_TRITON = """import triton
import triton.language as tl
"""
_GLUON = """import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
"""
_BLOCKS = (
    *("boxes_of", "buffers", "cut", "finishes_sums", "part_buffers", "ring"),
    *("store_buffers", "store_piece", "sums_of_splits"),
)
_HOPPER = "from triton.experimental.gluon.language.nvidia"


@dataclass(frozen=True)
class ScheduleText:
    """The fragments of a schedule's file that are not its kernel's."""

    plan: Plan
    name: str
    """The file's, which is that of a schedule; others may have the same kernel."""

    @property
    def kernel(self) -> KernelText:
        """What the schedule launches."""
        row = SCHEDULES[self.name]
        return (SpecializedText if row.specialized else KernelText)(self.plan, row)

    @property
    def languages(self) -> str:
        """The imports of the language that the kernel is written in."""
        if not SCHEDULES[self.name].specialized:
            return _TRITON
        text = self.kernel
        stores = text.described("results")
        passes = any(one.is_matrix for one in self.plan.operands)
        used = ["mbarrier"] * passes + ["tma"] * stores
        lines = [f"{_HOPPER} import hopper\n"] * stores
        lines += [f"{_HOPPER}.hopper import {', '.join(used)}\n"] * bool(used)
        return _GLUON + "".join(lines)

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What the file takes from what launchers share: whence, the names."""
        taken = {
            "blocks": self._block_functions,
            "device": self._device_functions,
            "pipeline": self._pipeline_functions,
        }
        beside = [] if self.plan.epilogue.is_empty else [(f".{EPILOGUE}", [EPILOGUE])]
        shared_ = [
            (shared(self.plan, file), names) for file, names in taken.items() if names
        ]
        return [*shared_, *beside]

    @property
    def _device_functions(self) -> list[str]:
        row, text = SCHEDULES[self.name], self.kernel
        offsets = "offs_" in self._addressed
        used = {
            "aligned": text.aligns,
            "finishes": text.splits and not row.specialized,
            "row_dot": row.memory_bound,
            "span": not row.specialized and offsets,
            "span_in": row.specialized and offsets,
            "split_range": text.splits and not row.specialized,
            "sum_splits": text.splits and not row.specialized,
            "swizzle": not row.memory_bound,
        }
        return [name for name, needed in used.items() if needed]

    @property
    def _block_functions(self) -> list[str]:
        text = self.kernel
        if not isinstance(text, SpecializedText):
            return []
        calls = "\n".join([*text.shared, *text.stores])
        always = ("finishes_sums", "sums_of_splits")
        return [
            name for name in _BLOCKS
            if name in always or re.search(rf"\b{name}\(", calls)
        ]  # fmt: skip

    @property
    def _pipeline_functions(self) -> list[str]:
        text = self.kernel
        if not isinstance(text, SpecializedText):
            return []
        return ["multiply", *["parts_of"] * text.swap_ab, "specialize", "tiles_of"]

    @property
    def _addressed(self) -> str:
        """What loads operands and stores results."""
        return "\n".join([*self.kernel.loads_of_operands, *self.kernel.stores])
