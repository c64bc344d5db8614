"""The text of a kernel: helpers, signature, product, epilogue.

Every choice between two spellings is made here, so that a template has none.
"""

import textwrap
from dataclasses import dataclass

from gemmgen.dtypes import DTYPES
from gemmgen.expression import spell, triton_function
from gemmgen.functions import OPS
from gemmgen.model import Tile
from gemmgen.plan import Plan

BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
_HELPER = '''@triton.jit
def {name}({parameters}):
    """{doc}"""
{body}'''


@dataclass(frozen=True)
class KernelText:
    """The fragments of one kernel, in the order in which it reads."""

    plan: Plan

    @property
    def helpers(self) -> list[str]:
        """The functions that the epilogue calls and Triton lacks, in order of use."""
        rows = [OPS[name] for name in self.plan.epilogue.functions if name in OPS]
        return [
            _HELPER.format(
                name=row.name,
                parameters=", ".join(row.parameters),
                doc=row.doc,
                body=textwrap.indent(
                    "\n".join([*row.steps, f"return {row.triton}"]), "    "
                ),
            )
            for row in rows
            if not row.in_place
        ]

    @property
    def decorator(self) -> str:
        """`@triton.jit`, told which sizes need no kernel of their own; autotuning.

        M is only compared with unless it runs along A's contiguous axis.
        """
        jit = "@triton.jit"
        if self.plan.a.contiguous_axis != "m":
            jit = '@triton.jit(do_not_specialize=["M"])'
        if not self.plan.configs:
            return jit
        configs = ", ".join(_config(tile) for tile in self.plan.configs)
        return f'@triton.autotune([{configs}], key=["M", "N", "K"])\n{jit}'

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters, in order."""
        plan = self.plan
        return [
            f"{plan.a.name}_ptr",
            f"{plan.b.name}_ptr",
            *(one.parameter for one in plan.operands),
            *(f"{one.name}_ptr" for one in plan.results),
            *("M", "N", "K"),
            *plan.a.strides,
            *plan.b.strides,
            *(stride for one in plan.operands for stride in one.strides),
            *(stride for one in plan.results for stride in one.matrix.strides),
            "INDEX: tl.constexpr",
            *(f"{block}: tl.constexpr" for block in BLOCKS),
        ]

    @property
    def accumulator(self) -> str:
        """The accumulator's Triton type."""
        return f"tl.{DTYPES[self.plan.accumulator].triton}"

    @property
    def dot(self) -> str:
        """The product of one K block."""
        plan = self.plan
        arguments = [plan.a.name, plan.b.name, "acc"]
        if plan.precision:
            arguments.append(f'input_precision="{plan.precision}"')
        if plan.accumulator != "fp32":
            arguments.append(f"out_dtype={self.accumulator}")
        return f"tl.dot({', '.join(arguments)})"

    @property
    def statements(self) -> list[str]:
        """The epilogue as kernel text; nothing for the identity."""
        spelled = {one.name: one.in_kernel for one in self.plan.operands}
        return [
            f"{one.target} = "
            + spell(one.value, lambda name: spelled.get(name, name), triton_function)
            for one in self.plan.epilogue.statements
            if not self.plan.epilogue.is_identity(one.target)
        ]


def _config(tile: Tile) -> str:
    values = zip(BLOCKS, (tile.m, tile.n, tile.k, tile.group_m), strict=True)
    blocks = ", ".join(f'"{key}": {value}' for key, value in values)
    return (
        f"triton.Config({{{blocks}}}, num_stages={tile.stages}, num_warps={tile.warps})"
    )
