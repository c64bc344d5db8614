"""`Plan` → source text: the one Jinja environment, then black, then the last gate.

Pure: reads its own templates and nothing else; writes nothing.
"""

import ast
import functools
import re
import textwrap
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import black
from black.mode import TargetVersion
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gemmgen.base import header
from gemmgen.base.names import WIDTH, class_name, line
from gemmgen.base.version import RUNTIME_SOURCES, template_root
from gemmgen.gate.allowlist import check_module
from gemmgen.render.backward_text import BackwardText
from gemmgen.render.docs import Description
from gemmgen.render.epilogue_text import EpilogueText, GradEpilogueText
from gemmgen.render.launcher_text import LauncherText
from gemmgen.render.module_text import ModuleText
from gemmgen.render.names import parts
from gemmgen.render.names.meanings import NameTaken, clashes, disguised
from gemmgen.render.names.parts import (
    LAUNCHER,
    RUNTIME,
    TILES,
    file_of,
    header_name,
    parts_of,
    public,
    stems,
)
from gemmgen.render.origin import fingerprint
from gemmgen.render.schedule_text import ScheduleText
from gemmgen.render.table_text import TableText
from gemmgen.select.plan import Plan
from gemmgen.tables.functions import FAST, OPS, Op

_FUNCTION = '''@triton.jit
def {name}({parameters}):
    """{doc}"""
{body}
'''
_KEPT = re.compile(r"(?<=^# fmt: off\n).*?(?=^# fmt: on$)", re.DOTALL | re.MULTILINE)
_STAND_IN = "...\n"
BLACK_MODE = black.Mode(target_versions={TargetVersion.PY310}, line_length=WIDTH)


def files(plan: Plan, source: str) -> dict[str, str]:
    """The files of a kernel's folder by name, formatted and sealed.

    `source` names the spec. Raises `NameTaken` for names of it that they cannot have.
    """
    origin = source, fingerprint(plan)
    raw = {stem: _raw(plan, stem, *origin) for stem in stems(plan)}
    _check_names(plan, raw, origin)
    return {
        file_of(plan, stem): _finished(plan, stem, text) for stem, text in raw.items()
    }


def _finished(plan: Plan, stem: str, raw: str) -> str:
    made = _black(raw)
    name = file_of(plan, stem)
    beside = {"": plan.name} if stem == parts.MODULE else parts_of(plan)
    check_module(ast.parse(made), name, public(plan.name, stem), beside)
    compile(made, name, "exec", dont_inherit=True)
    return header.seal(made)


def _raw(plan: Plan, stem: str, source: str, entry: str) -> str:
    """One file as its template has it."""
    about = Description(plan)
    lines = about.entry_in_header if stem == LAUNCHER else ()
    name = header_name(file_of(plan, stem))
    values = {
        "head": header.head(source, name, entry, lines),
        "plan": plan,
        "about": about,
    }
    if stem == LAUNCHER:
        return _filled("launcher.py.jinja", launcher=LauncherText(plan), **values)
    if stem == TILES:
        return _filled("tiles.py.jinja", table=TableText(plan), **values)
    if text := _of_any_schedule(plan, stem):
        return _filled(f"{stem}.py.jinja", text=text, **values)
    own = ScheduleText(plan, stem)
    return _filled(
        "schedule.py.jinja",
        schedule=own,
        text=own.kernel,
        **values,
    )


def _of_any_schedule(
    plan: Plan, stem: str
) -> EpilogueText | GradEpilogueText | BackwardText | ModuleText | None:
    """The fragments of a file that is the same for all schedules."""
    match stem:
        case parts.EPILOGUE:
            return EpilogueText(plan)
        case parts.GRAD_EPILOGUE:
            return GradEpilogueText(plan)
        case parts.BACKWARD:
            return BackwardText(plan)
        case parts.MODULE:
            return ModuleText(plan)
    return None


def _check_names(plan: Plan, raw: Mapping[str, str], origin: tuple[str, str]) -> None:
    """Raise `NameTaken` where a name of the spec has two meanings in a file."""
    other, aliases = disguised(plan)
    taken = {
        name
        for stem, text in raw.items()
        for name in clashes(text, _raw(other, stem, *origin), aliases)
    }
    if taken:
        names = (name for name in aliases.values() if name in taken)
        raise NameTaken(plan.name, tuple(names))


def package(kernels: Sequence[str], layers: Sequence[str] = ()) -> str:
    """`__init__.py`, which brings out the launchers of kernels, the modules of some."""
    owners = {class_name(kernel): kernel for kernel in sorted(layers)}
    exported = {name: f"{kernel}.{parts.MODULE}" for name, kernel in owners.items()}
    exported |= {name: name for name in sorted(kernels)}
    made = _formatted(
        "package.py.jinja",
        head=header.head(None, LAUNCHER, header.entry_hash([*exported])),
        exported=dict(sorted(exported.items(), key=itemgetter(1))),
        listed=line([f'"{name}"' for name in exported], 4),
        layers=owners,
    )
    return header.seal(made)


def shared(file: str) -> str:
    """A module that all launchers share, the same for every folder."""
    name = header_name(file)
    head = header.head(None, name, header.entry_hash(name))
    path = RUNTIME_SOURCES / Path(file).relative_to(RUNTIME)
    if path.exists():
        return header.seal(head + path.read_text(encoding="utf-8"))
    own = [_function(row) for row in OPS.values() if not row.in_place]
    called = [name for name in FAST if name in "".join(own)]
    return header.seal(
        _formatted(f"{path.name}.jinja", head=head, functions=own, fast=called)
    )


def _function(row: Op) -> str:
    """A function of epilogues that Triton lacks, for the file that all share."""
    return _FUNCTION.format(
        name=row.name,
        parameters=", ".join(row.parameters),
        doc=row.doc,
        body=textwrap.indent("\n".join([*row.steps, f"return {row.triton}"]), "    "),
    )


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
