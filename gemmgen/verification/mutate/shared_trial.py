"""The kernels by which the modules that launchers share are tried, in every self-test.

Those of a user's specs may leave half of a shared module unused. What is wrong there
would be wrong for the next spec, and the modules are the same in every folder.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gemmgen.output import alone
from gemmgen.output.folder import PACKAGE
from gemmgen.render import render
from gemmgen.render.names.parts import ROLES, SIMT, file_of
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.tables.functions import OPS
from gemmgen.verification.basics.part import WHOLE, Part
from gemmgen.verification.mutate.trial_specs import (
    ADDING,
    CALLING,
    COSTED,
    FOR_OLDER,
    FOUR_COLUMNS,
    OF_ROWS,
    SPEC,
    STREAMING,
    TRAINED,
    TUNED,
)
from gemmgen.verification.run.process import Subject


@cache
def trial_plans() -> tuple[Plan, ...]:
    """The kernels, the one that uses most first, then the one that chooses most."""
    texts = SPEC, *(FOR_OLDER.format(target=one) for one in ("sm_90", "sm_80"))
    costed = plans(parse(COSTED.encode(), "self-test"), [TUNED])
    first, *others = (
        plan for text in texts for plan in plans(parse(text.encode(), "self-test"))
    )
    learning = (one for one in _trained() if one.folder == one.name)
    adding = (one for one, _ in _adding())
    return first, *costed, *others, *adding, *learning


@cache
def _trained() -> tuple[Plan, ...]:
    """Each kernel with a backward, then those of its backward."""
    return plans(parse(TRAINED.encode(), "self-test"))


def callers_of(module: str, function: str) -> tuple[tuple[Plan, str | None], ...]:
    """The kernels that call a function of a module, each with the file that does.

    One for a function of epilogues, or of products of rows. What warp-specialized
    kernels share is tried by several, since layouts and operands decide what each does;
    the rest by the first. So are multiply-adds.
    """
    if function in OPS:
        return ((_caller_of(function), None),)
    if function in OF_ROWS:
        return (_streaming(),)
    if module == SIMT:
        return _adding()
    if module not in ROLES:
        return ((trial_plans()[0], None),)
    return tuple((one, one.specialized) for one in trial_plans() if one.specialized)


@cache
def _streaming() -> tuple[Plan, str]:
    (plan,) = plans(parse(STREAMING.encode(), "self-test"), [FOUR_COLUMNS])
    return plan, next(one for one in plan.files if SCHEDULES[one].memory_bound)


@cache
def _adding() -> tuple[tuple[Plan, str | None], ...]:
    return tuple(
        (plan, next(one for one in plan.files if SCHEDULES[one].by_fma))
        for plan in plans(parse(ADDING.encode(), "self-test"))
    )


@cache
def _caller_of(function: str) -> Plan:
    arguments = ["acc", "0.1", "0.5"][: len(OPS[function].parameters)]
    text = CALLING.format(function, f"{function}({', '.join(arguments)})")
    return plans(parse(text.encode(), "self-test"))[0]


@cache
def _files(plan: Plan) -> Mapping[str, str]:
    """The package, a kernel and, where it has one, its backward's kernels."""
    parts = [one for one in _trained() if one.folder.startswith(f"{plan.name}/")]
    made = {PACKAGE: render.package([plan.name], [plan.name] * plan.module)}
    for one in (plan, *parts):
        made |= render.files(one, "self-test")
    return made


def written(
    folder: Path,
    plan: Plan,
    changed: Mapping[str, str],
    part: Part = WHOLE,
    file: str | None = None,
) -> Subject:
    """A kernel in a folder of its own, with the text of some shared modules changed.

    Of its steps a `part` is tried; with a `file`, only the tiles of its schedules.
    """
    alone.write(folder, {**alone.shared_texts(), **_files(plan), **changed})
    return Subject(plan, folder / file_of(plan), part=part, file=file)
