"""The text of an epilogue: what becomes of a tile's sum before it is stored.

One function of the device for all schedules of a kernel, each of which loads operands
in its own way. And the text of the functions that epilogues call, of which all kernels
share one file.
"""

import textwrap
from dataclasses import dataclass

from gemmgen.epilogue.expression import spell, triton_function
from gemmgen.render.parts import EPILOGUE, shared
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import FAST, OPS, Op

_FUNCTION = '''@triton.jit
def {name}({parameters}):
    """{doc}"""
{body}
'''


@dataclass(frozen=True)
class EpilogueText:
    """The fragments of one epilogue, and of its call."""

    plan: Plan

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """The functions that it calls and Triton lacks: whence, the names."""
        names = sorted(name for name in self.plan.epilogue.functions if name in OPS)
        own = [name for name in names if not OPS[name].in_place]
        return [(shared("functions"), own)] if own else []

    @property
    def arguments(self) -> str:
        """Its parameters, which kernels call their values by as well."""
        sums = self.plan.contraction.accumulators
        return ", ".join([*sums, *(one.name for one in self.plan.operands)])

    @property
    def call(self) -> str:
        """What a kernel does to have its results."""
        names = ", ".join(one.name for one in self.plan.results)
        return f"{names} = {EPILOGUE}({self.arguments})"

    @property
    def statements(self) -> list[str]:
        """What is computed."""
        spelled = {one.name: one.in_kernel for one in self.plan.operands}
        return [
            f"{one.target} = "
            + spell(one.value, lambda name: spelled.get(name, name), triton_function)
            for one in self.plan.epilogue.statements
        ]

    @property
    def meaning(self) -> str:
        """What it returns, with types."""
        said = [f"{one.name} in {one.dtype}" for one in self.plan.results]
        return f"{' and '.join(said)}, of a tile's sum"

    @property
    def returned(self) -> str:
        """The results, each in its type."""
        return ", ".join(
            f"{one.name}.to(tl.{DTYPES[one.dtype].triton})" for one in self.plan.results
        )


def functions() -> list[str]:
    """All of them, in the order of the table."""
    return [_spelled(row) for row in OPS.values() if not row.in_place]


def fast() -> list[str]:
    """The functions of the device that they call."""
    text = "".join(functions())
    return [name for name in FAST if name in text]


def _spelled(row: Op) -> str:
    body = "\n".join([*row.steps, f"return {row.triton}"])
    return _FUNCTION.format(
        name=row.name,
        parameters=", ".join(row.parameters),
        doc=row.doc,
        body=textwrap.indent(body, "    "),
    )
