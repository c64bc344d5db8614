"""Specs drawn at random, in which names are any word of the output or the language."""

import builtins
import keyword
import re
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gemmgen.epilogue.checked import AXES
from gemmgen.gate.reserved import OF_TRITON
from gemmgen.hardware.gpus import NAMES
from gemmgen.spec.schema import File, Settings
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import OPS
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS

ROOT = Path(__file__).resolve().parent.parent
_WRITTEN = [*(ROOT / "generated").glob("*.py"), *(ROOT / "templates").iterdir()]
WORDS = sorted(
    {
        *(
            word
            for path in _WRITTEN
            for word in re.findall(r"\b[a-z]\w*", path.read_text())
        ),
        *keyword.kwlist,
        *keyword.softkwlist,
        *dir(builtins),
        *OF_TRITON,
        *OPS,
        *Settings.model_fields,
        *File.model_fields,
    }
)
"""Every word of the generated files, their templates, Python and the language."""

_PARTS = (
    "_kernel",
    "_tma_kernel",
    "_ptr",
    "_desc",
    "_rows",
    "_ring",
    "_tiles",
    "_offs",
)
_DTYPES = [name for name, row in DTYPES.items() if row.built]
_SCHEDULES = [
    "tiled",
    *(f"[tiled, {name}]" for name in ("split_k", "tma", "persistent")),
]
_SCHEDULES += ["auto"] * 9
_SHAPES = [*(f"{name}({{}})" for name, row in OPS.items() if len(row.parameters) == 1)]
_SHAPES += [
    "{}",
    "-{}",
    "where({} > 0, acc, 0.5)",
    "clamp({}, -1, 1)",
    "{} * 2",
    "{} / 0",
]
_CONSTANTS = ["1 / 0", "0 / 0", "2 - 2", "1 / (3 - 3)", "1e38 * 1e38", "-0.0", "1e-45"]


def names(kernel: str) -> SearchStrategy[str]:
    """A name of an operand or result: any word, or one made of the kernel's name.

    Most are harmless: a spec of many names would hardly ever be built.
    """
    made = [kernel + part for part in ("", *_PARTS)] + list("abcxwyz")
    suffixed = st.builds(str.__add__, st.sampled_from(WORDS), st.sampled_from(_PARTS))
    harmless = st.sampled_from(["p1", "p2", "p3", "p4", "p5", "p6"])
    words = st.one_of(st.sampled_from(WORDS), st.sampled_from(made), suffixed)
    return st.one_of(*[harmless] * 4, words)


@st.composite
def epilogues(draw: st.DrawFn, kernel: str) -> str:
    """One to three statements, or a bare expression."""
    count = draw(st.sampled_from([0, 0, 0, 1, 2]))
    targets = draw(st.lists(names(kernel), min_size=count, max_size=count, unique=True))
    known, lines = ["acc"], []
    for target in [*targets, None]:
        value = draw(st.sampled_from(known))
        for name in draw(st.lists(names(kernel), max_size=2)):
            index = AXES[draw(st.sampled_from(list(AXES)))].text
            operator = draw(st.sampled_from("+-*"))
            value = f"{value} {operator} {name}{index}"
        if draw(st.booleans()):
            value = draw(st.sampled_from(_SHAPES)).format(f"({value})")
        if draw(st.integers(0, 9)) == 9:
            value = f"{value} + {draw(st.sampled_from(_CONSTANTS))}"
        if target is None and not lines:
            return value
        target = target or draw(names(kernel))
        lines.append(f"{target} = {value}")
        known.append(target)
    return "; ".join(lines)


@st.composite
def specs(draw: st.DrawFn) -> str:
    """A spec of one kernel, small enough for the interpreter."""
    name = draw(st.one_of(*[st.just("one")] * 3, st.sampled_from(WORDS)))
    sides = st.sampled_from([16, 32])
    op = draw(st.sampled_from([one for one, row in OPERATIONS.items() if row.built]))
    entry = {
        "name": name,
        "op": op,
        "dtype": draw(st.sampled_from(_DTYPES)),
        "epilogue": draw(epilogues(name)),
        "schedule": draw(st.sampled_from(_SCHEDULES)),
        "tiles": f"{{m: {draw(sides)}, n: {draw(sides)}, k: {draw(sides)}}}",
    }
    if OPERATIONS[op].layout is None:
        entry["layout"] = draw(st.sampled_from(list(LAYOUTS)))
    if draw(st.integers(0, 4)) == 4:
        entry["tiles"] = "auto"
    rows = [f"    {key}: {_text(value)}\n" for key, value in entry.items()]
    targets = draw(st.lists(st.sampled_from(list(NAMES)), min_size=1, max_size=3))
    targets_text = ", ".join(dict.fromkeys(targets))
    return f"gemmgen: 1\ntargets: [{targets_text}]\nkernels:\n  -\n{''.join(rows)}"


def _text(value: str) -> str:
    """A value as YAML has it; statements stand on lines of their own."""
    if value.startswith(("{", "[")):
        return value
    if "; " in value:
        return "|\n" + "\n".join(f"      {line}" for line in value.split("; "))
    return f"'{value}'"
