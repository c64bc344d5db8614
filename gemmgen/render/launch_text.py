"""The text of one schedule's launch: what it reads off tensors, what the kernel takes.

Every choice between two spellings is made here, so that a template has none.
"""

from dataclasses import dataclass

from gemmgen.problem.tensors import Operand
from gemmgen.render.kernel_text import KernelText, helpers
from gemmgen.render.names import grouped, line, listed
from gemmgen.render.parts import shared
from gemmgen.render.specialized_text import SpecializedText
from gemmgen.select.plan import Plan
from gemmgen.tables.layouts import Matrix
from gemmgen.tables.schedules import SCHEDULES, described, transposes

_TRITON = """import triton
import triton.language as tl
"""
_GLUON = """import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier"""
_CONSTANTS = {
    "BLOCK_M": "tile.m",
    "BLOCK_N": "tile.n",
    "BLOCK_K": "tile.k",
    "GROUP_M": "tile.group_m",
    "STAGES": "tile.stages",
    "WARPGROUPS": "tile.warpgroups",
}
_RACED_GRID = 'lambda tile: (cdiv(M, tile["BLOCK_M"]) * cdiv(N, tile["BLOCK_N"]),)'


def input_names(plan: Plan) -> list[str]:
    """A, B and the operands, as the launcher takes them."""
    return [plan.a.name, plan.b.name, *(one.name for one in plan.operands)]


def result_names(plan: Plan) -> list[str]:
    """The results, as the launcher returns them."""
    return [one.name for one in plan.results]


def launched(plan: Plan) -> list[str]:
    """What each launch takes: the inputs, the results."""
    return [*input_names(plan), *result_names(plan)]


def only_n(plan: Plan) -> str:
    """What a shape of B is unpacked to: K is known from A."""
    return ", ".join("N" if size == "N" else "_" for size in plan.b.stored_sizes)


def read_sizes(plan: Plan) -> list[str]:
    """The statements that read M, N and K off two matrices."""
    return [
        f"{', '.join(plan.a.stored_sizes)} = {plan.a.name}.shape",
        f"{only_n(plan)} = {plan.b.name}.shape",
        "sizes = (M, N, K)",
    ]


@dataclass(frozen=True)
class LaunchText:
    """The fragments of the launch of one schedule's kernel, in the order of reading."""

    plan: Plan
    name: str
    """The schedule's."""

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
        return _GLUON + (", tma\n" if self.kernel.described("results") else "\n")

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What the file takes from what launchers share: whence, the names."""
        taken = {
            "device": self._device_functions,
            "functions": [one.name for one in helpers(self.plan)],
            "launch": [*(["Block"] if self.in_blocks else []), "Launch"],
            "support": self._support,
            "table": [SCHEDULES[self.name].grid] if self.plan.rows else [],
        }
        return [(shared(file), names) for file, names in taken.items() if names]

    @property
    def _device_functions(self) -> list[str]:
        row, text = SCHEDULES[self.name], self.kernel
        used = {
            "load_block": row.specialized,
            "store_block": row.specialized and text.described("results"),
            "swizzle": not row.streams,
        }
        return [name for name, needed in used.items() if needed]

    @property
    def _support(self) -> list[str]:
        used = {
            "alignment": self.kernel.aligns,
            "cdiv": bool(self.plan.configs),
            "offset_type": self.kernel.indexes,
        }
        return [name for name, needed in used.items() if needed]

    @property
    def parameters(self) -> list[str]:
        """What the schedule's function takes."""
        first = ("tile", "sizes") if self.plan.rows else ()
        return [*first, *launched(self.plan)]

    @property
    def preparation(self) -> list[str]:
        """The statements before the `Launch`."""
        return [] if self.plan.rows else read_sizes(self.plan)

    @property
    def call(self) -> str:
        """The `Launch`: kernel and grid, tensors, strides and constants."""
        tile = "tile" if self.plan.rows else "None"
        first = [self.kernel.name, tile, f"{self.plan.a.name}.device", "sizes"]
        splits = ["splits=True"] if SCHEDULES[self.name].splits else []
        lines = [
            line([*first, self.grid], 8),
            f"        {listed(self._tensors, 8)},",
            f"        {grouped(self._values, 8)},",
            *(line([one], 8) for one in splits),
        ]
        return "\n".join(["Launch(", *lines, "    )"])

    @property
    def grid(self) -> str:
        """What tells how many programs there are."""
        return SCHEDULES[self.name].grid if self.plan.rows else _RACED_GRID

    @property
    def in_blocks(self) -> list[str]:
        """The tensors that it takes by descriptors, in the order in which it does."""
        plan, roles = self.plan, described(self.name, self.plan.product.kind)
        by_role = {
            "inputs": [plan.a.name, plan.b.name],
            "operands": [one.name for one in plan.operands if one.is_matrix],
            "results": result_names(plan),
        }
        return [
            name for role, names in by_role.items() for name in names if role in roles
        ]

    @property
    def _tensors(self) -> list[str]:
        """What the kernel takes first: tensors, or their blocks, and numbers."""
        return [
            self._block(name) if name in self.in_blocks else name
            for name in launched(self.plan)
        ]

    def _block(self, name: str) -> str:
        """`Block(w, tile.n, tile.k)`, in the order in which the tensor is stored."""
        plan, sides = self.plan, {axis: f"tile.{axis}" for axis in "mnk"}
        if SCHEDULES[self.name].specialized:  # the part of one consumer
            turned = transposes(self.name, plan.product.kind, plan.layout)
            sides |= {"n": "tile.columns"} if turned else {"m": "tile.rows"}
        inputs = {one.name: one for one in (plan.a, plan.b)}
        axes = inputs[name].stored_axes if name in inputs else ("m", "n")
        arguments = [name, *(sides[axis] for axis in axes)]
        if name in inputs and plan.product.mma.rounds:
            arguments.append("to_tf32=True")
        return f"Block({', '.join(arguments)})"

    @property
    def _values(self) -> list[list[str]]:
        """What the kernel takes after the sizes: strides, types, constants."""
        text, plan = self.kernel, self.plan
        results = [one.matrix for one in plan.results]
        taken: tuple[Matrix | Operand, ...] = (plan.a, plan.b, *plan.operands, *results)
        strides: dict[str, str] = {}
        for one in taken:
            strides |= dict(zip(one.strides, one.stride_values, strict=True))
        pairs = [", ".join(strides[one] for one in each) for each in text.stride_pairs]
        types, constants = list[str](), list[str]()
        if text.indexes:
            tensors = [plan.a.name, plan.b.name, *(one.name for one in plan.tensors)]
            types.append(f"offset_type({', '.join([*tensors, *result_names(plan)])})")
        if text.aligns:
            types.append(f"alignment({plan.a.name}, {plan.b.name})")
        if plan.rows:
            constants += [_CONSTANTS[one] for one in text.schedule.constants]
        return [pairs, types, constants]
