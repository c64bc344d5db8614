"""The text of the functions of epilogues that Triton lacks, which all kernels share."""

import textwrap

from gemmgen.tables.functions import FAST, OPS, Op

_FUNCTION = '''@triton.jit
def {name}({parameters}):
    """{doc}"""
{body}
'''


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
