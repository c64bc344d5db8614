"""`Plan` → source text: the one Jinja environment, then black, then the last gate.

Pure: reads its own templates and nothing else; writes nothing.
"""

import ast
import functools
import re
from collections.abc import Sequence
from pathlib import Path

import black
from black.mode import TargetVersion
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gemmgen.base import header
from gemmgen.base.version import RUNTIME, template_root
from gemmgen.gate.allowlist import check_module
from gemmgen.render.docs import Description
from gemmgen.render.kernel_text import KernelText, helpers
from gemmgen.render.launcher_text import LauncherText
from gemmgen.render.meanings import NameTaken, clashes, disguised
from gemmgen.render.names import WIDTH
from gemmgen.render.specialized_text import SpecializedText
from gemmgen.render.table_text import TableText
from gemmgen.select.plan import Plan, fingerprint
from gemmgen.tables.schedules import SCHEDULES

_GLUON = """from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier"""

_KEPT = re.compile(r"(?<=^# fmt: off\n).*?(?=^# fmt: on$)", re.DOTALL | re.MULTILINE)
_STAND_IN = "...\n"
BLACK_MODE = black.Mode(target_versions={TargetVersion.PY310}, line_length=WIDTH)


def module(plan: Plan, source: str) -> str:
    """The module of a kernel, formatted and sealed; `source` names its spec.

    Raises `NameTaken` for names of the spec that it cannot have.
    """
    head = header.head(source, fingerprint(plan), Description(plan).entry)
    raw = _module(plan, head)
    _check_names(plan, ast.parse(raw))
    made = _black(raw)
    check_module(ast.parse(made), plan.name)
    compile(made, f"{plan.name}.py", "exec", dont_inherit=True)
    return header.seal(made)


def _module(plan: Plan, head: str) -> str:
    launcher = LauncherText(plan)
    return _filled(
        "base.py.jinja",
        head=head,
        imports=_gluon(launcher) if plan.specialized else "",
        plan=plan,
        about=Description(plan),
        helpers=helpers(plan),
        kernels={name: _kernel(plan, name) for name in plan.schedules},
        launcher=launcher,
        table=TableText(plan),
    )


def _check_names(plan: Plan, module: ast.Module) -> None:
    """Raise `NameTaken` where a name of the spec has two meanings in its module."""
    other, aliases = disguised(plan)
    taken = clashes(module, ast.parse(_module(other, "")), aliases)
    if taken:
        raise NameTaken(plan.name, taken)


def _gluon(launcher: LauncherText) -> str:
    """The imports of a specialized kernel."""
    return _GLUON + (", tma\n" if launcher.stores_blocks else "\n")


def _kernel(plan: Plan, schedule: str) -> KernelText:
    row = SCHEDULES[schedule]
    return (SpecializedText if row.specialized else KernelText)(plan, row)


def package(names: Sequence[str]) -> str:
    """`__init__.py`, which brings out the launcher of every module in `names`."""
    head = header.head(None, header.entry_hash(sorted(names)), ["name: __init__"])
    made = _formatted("package.py.jinja", head=head, names=sorted(names))
    return header.seal(made)


def shared(file: str) -> str:
    """A module that all launchers share, the same for every folder."""
    name = file.removesuffix(".py")
    head = header.head(None, header.entry_hash(name), [f"name: {name}"])
    text = (RUNTIME / Path(file).name).read_text(encoding="utf-8")
    return header.seal(head + text)


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(template_root()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _formatted(template: str, **values: object) -> str:
    """One template, filled and put in black's form."""
    return _black(_filled(template, **values))


def _filled(template: str, **values: object) -> str:
    return _environment().get_template(template).render(values)


def _black(raw: str) -> str:
    """A text in black's form, which does not see what it is told to leave alone.

    That is a fifth of its work.
    """
    kept = iter(_KEPT.findall(raw))
    made = black.format_str(_KEPT.sub(_STAND_IN, raw), mode=BLACK_MODE)
    return _KEPT.sub(lambda _: next(kept), made)
