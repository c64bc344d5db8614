"""The text of a schedule's file around its kernel: what it imports.

Every choice between two spellings is made here, so that a template has none.
"""

import re
from dataclasses import dataclass

from gemmgen.render.kernel_text import KernelText
from gemmgen.render.names.parts import EPILOGUE, shared
from gemmgen.render.specialized_text import SpecializedText
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan

_TRITON = """import triton
import triton.language as tl
"""
_GLUON = """import triton.language as tl
from triton.experimental import gluon
"""
_ROLES = {
    "pipeline.blocks": ("boxes_of",),
    "pipeline.parts": ("load_part", "part_columns", "part_rows", "store_part"),
    "pipeline.roles": ("specialize",),
}
"""What warp-specialized kernels call, by module."""
_SIMT = "pipeline.simt"
"""The module of what kernels by multiply-adds call in place of device functions."""


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
        return _GLUON if SCHEDULES[self.name].in_gluon else _TRITON

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What the file takes from what launchers share: whence, the names."""
        row = SCHEDULES[self.name]
        plain = {"device": self._device_functions, "support": self._configures}
        taken = self._roles if row.specialized else plain
        if row.by_fma:
            taken |= {_SIMT: self._layouts}
        beside = [] if self.plan.epilogue.is_empty else [(f".{EPILOGUE}", [EPILOGUE])]
        shared_ = [
            (shared(self.plan, file), names) for file, names in taken.items() if names
        ]
        return [*shared_, *beside]

    @property
    def _device_functions(self) -> list[str]:
        row, text = SCHEDULES[self.name], self.kernel
        in_triton = not row.in_gluon
        offsets = "offs_" in self._addressed
        used = {
            "aligned": text.aligns,
            "finishes": text.splits and in_triton,
            "row_dot": row.memory_bound,
            "span": offsets and in_triton,
            "split_range": text.splits,
            "sum_splits": text.splits and in_triton,
            "swizzle": not row.memory_bound,
        }
        return [name for name, needed in used.items() if needed]

    @property
    def _layouts(self) -> list[str]:
        """What a kernel by multiply-adds calls that knows its layouts."""
        splits = self.kernel.splits
        used = {"finishes": splits, "multiply_add": True, "sum_splits": splits}
        called = [name for name, needed in used.items() if needed]
        return [*called, "tile_columns", "tile_rows"]

    @property
    def _configures(self) -> list[str]:
        """What lists the configurations of a kernel that is autotuned."""
        return ["config"] * bool(self.plan.configs)

    @property
    def _roles(self) -> dict[str, list[str]]:
        """What a warp-specialized kernel and its end of a part call."""
        text = self.kernel
        assert isinstance(text, SpecializedText)
        calls = "\n".join(
            [self._addressed, "specialize(", text.arguments_of_specialize]
        )
        return {
            module: [name for name in names if re.search(rf"\b{name}\(", calls)]
            for module, names in _ROLES.items()
        }

    @property
    def _addressed(self) -> str:
        """What loads operands and stores results."""
        return "\n".join([*self.kernel.loads_of_operands, *self.kernel.stores])
