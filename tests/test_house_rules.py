"""The rules that keep the generator small: who imports whom, how long things are."""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from gemmgen.hardware.targets import TARGETS
from gemmgen.output.alone import shared_texts
from gemmgen.output.folder import SHARED, shared_by
from gemmgen.render.names.parts import RUNTIME, TILES
from gemmgen.runtime.table import GRIDS
from gemmgen.schedules import SCHEDULES
from gemmgen.tables.dtypes import DTYPES, PRECISIONS
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "gemmgen").rglob("*.py"))
TEMPLATES = sorted((ROOT / "templates").glob("*.jinja"))
GENERATED = sorted((ROOT / "generated").rglob("*.py"))

# A room imports only rooms that stand before it; inside of one, modules have an order.
ROOMS = (
    *("base", "runtime", "runtime.operators", "runtime.gradients", "runtime.layers"),
    *("runtime.pipeline", "tables"),
    "hardware",
    *("schedules.parts", "schedules", "yaml"),
    *("gate", "epilogue", "spec", "cost", "problem", "select.tuned", "select"),
    *("render.names", "render", "output", "explanation"),
    *("verification.basics", "verification.oracle"),
    *("verification.interpret", "verification.memory", "verification.gluon"),
    "verification.cases",
    *("verification.example", "verification.machine", "measurement"),
    *("verification.stand_in", "verification.launches", "verification.contract"),
    "verification.operators",
    *("verification.run", "verification.sanitize", "verification.faults"),
    *("verification.mutate", "verification", "benchmark"),
    *("tuning.trials", "tuning.fitting", "tuning", "api", "cli", "__main__"),
)
MOST_IN_A_ROOM, MOST_BETWEEN = 13, 110

MAY_IMPORT_TORCH = ("runtime", "verification", "measurement", "benchmark", "tuning")
MAY_PRINT = {"cli", "__main__"}


def tree(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))


@functools.cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def dotted(path: Path) -> str:
    """`gemmgen/tables/dtypes.py` → `gemmgen.tables.dtypes`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


NAMES = {dotted(path) for path in MODULES}


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, in functions too, by full name."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            inner = [name for name in full if name in NAMES]
            yield from inner
            if len(inner) < len(full):
                yield node.module


def room(name: str) -> str:
    """The room, of `ROOMS`, that a module of gemmgen belongs to."""
    parts = name.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in ROOMS else parts[0]


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            yield node


def length(node: ast.FunctionDef) -> int:
    """Lines of a function, decorators and docstring included."""
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return (node.end_lineno or first) - first + 1


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


Check = Callable[[Path], None]


def each(paths: Collection[Path]) -> Callable[[Check], Callable[[], None]]:
    """Make one test of a check, which says all files that fail: thousands take long."""

    def of_all(check: Check) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong.append(f"{by_name(path)}: {error}")
            assert not wrong, "\n".join(wrong)

        test.__doc__ = check.__doc__
        return test

    return of_all


each_module, each_template, each_generated = map(each, (MODULES, TEMPLATES, GENERATED))


def test_every_room_has_its_place_and_some_modules() -> None:
    present = Counter(room(name) for name in NAMES if name != "gemmgen")
    assert sorted(present) == sorted(ROOMS)
    packages = {dotted(path.parent / "__init__.py") for path in MODULES}
    modules = Counter(room(name) for name in NAMES - packages if name != "gemmgen")
    assert max(modules.values()) <= MOST_IN_A_ROOM


@each_module
def test_imports_go_one_way(path: Path) -> None:
    ours = dotted(path)
    if ours == "gemmgen":
        return  # brings out `api`, lazily; nothing may import names from it
    allowed = ROOMS[: ROOMS.index(room(ours)) + 1]
    found = {name for name in imported(path) if name.startswith("gemmgen")}
    assert "gemmgen" not in found
    assert {room(name) for name in found} <= set(allowed)


def test_few_rooms_import_each_other() -> None:
    """Of the outer rooms: each import is one more that a change may concern."""
    pairs = {
        (dotted(path).split(".")[1], name.split(".")[1])
        for path in MODULES
        if dotted(path) != "gemmgen"
        for name in imported(path)
        if name.startswith("gemmgen.")
    }
    assert len({pair for pair in pairs if pair[0] != pair[1]}) < MOST_BETWEEN


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        dotted(path): {name for name in imported(path) if name in NAMES - {"gemmgen"}}
        for path in MODULES
    }
    graphlib.TopologicalSorter(graph).prepare()


@each_module
def test_rows_of_tables_are_not_told_by_their_names(path: Path) -> None:
    """What sets a schedule, dtype, precision or target apart is said in its row."""
    rows = {*SCHEDULES, *DTYPES, *PRECISIONS, *TARGETS}
    told = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Compare)
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and one.value in rows
    ]
    # Generated launchers have the names of schedules, and no table.
    assert dotted(path).startswith("gemmgen.runtime") or told == []


@each_module
def test_only_what_runs_kernels_imports_torch(path: Path) -> None:
    heavy = {name.split(".")[0] for name in imported(path)} & {"torch", "triton"}
    assert not heavy or room(dotted(path)).startswith(MAY_IMPORT_TORCH)


@each_module
def test_only_the_command_line_prints(path: Path) -> None:
    """To the terminal, that is: a print into a file of one's own is writing."""
    prints = [
        ast.unparse(node)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "print"
        and not any(
            one.arg == "file" and "sys." not in ast.unparse(one.value)
            for one in node.keywords
        )
    ]
    assert prints == [] or room(dotted(path)) in MAY_PRINT


@each_module
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@each_module
def test_functions_are_short(path: Path) -> None:
    assert [
        f"{one.name}: {length(one)}" for one in functions(path) if length(one) > 40
    ] == []


@each_module
def test_public_names_have_docstrings(path: Path) -> None:
    """Modules, classes, and functions that other modules can call."""
    module = tree(path)
    if module.body:
        assert ast.get_docstring(module)
    bare = [
        node.name
        for node in module.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert bare == []


@each_template
def test_templates_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 120


@each_template
def test_templates_hardly_decide(path: Path) -> None:
    """At most two paragraphs to keep or drop, never one inside another."""
    depth = deepest = count = 0
    for word in re.findall(r"{%-?\s*(if|elif|endif)\b", path.read_text()):
        depth += {"if": 1, "elif": 0, "endif": -1}[word]
        count += word != "endif"
        deepest = max(deepest, depth)
    assert count <= 2
    assert deepest <= 1


# `tiled` and the like are also English words; only a quoted name can be compared.
CHOICES = [*DTYPES, *LAYOUTS, *SCHEDULES, *PRECISIONS, *OPERATIONS]


WORDS = {"if", "elif", "else", "endif", "for", "endfor"}


def breaches(template: str) -> list[str]:
    """What a template holds that is the plan's to say.

    It places text, and `include` takes the template of a schedule.
    """
    tags = re.findall(r"{[{%]-?\s*(.*?)\s*-?[}%]}", template, re.DOTALL)
    found = [tag for tag in tags if re.search(r"is defined|\|\s*default", tag)]
    found += [
        tag
        for tag in tags
        if any(tag.count(f"{q}{name}{q}") for q in "'\"" for name in CHOICES)
    ]
    for tag in re.findall(r"{%-?\s*(.*?)\s*-?%}", template, re.DOTALL):
        word, _, rest = tag.partition(" ")
        included = word == "include" and rest == 'schedule.name ~ ".py.jinja"'
        if not included and word not in WORDS:
            found.append(tag)
    return found


@each_template
def test_templates_name_no_choice(path: Path) -> None:
    """What depends on a dtype, layout or schedule is the plan's to spell."""
    assert breaches(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "tag",
    [
        '{% set text = kernels["tiled"] %}',
        "{% set rows = 2 * plan.rows %}",
        "{%- set text = kernels.tiled if plan.rows else kernels.gemv %}",
        "{% set text = kernels.tiled | first %}",
        '{% include "tiled.py.jinja" %}',
        '{% include "support.py.jinja" if plan.rows %}',
        '{% import "macros.jinja" as macros %}',
        "{% macro load(name) %}",
        "{% if plan.a.layout == 'NT' %}",
        '{{ "bf16" }}',
        "{% if plan.rows is defined %}",
        "{{ plan.rows | default(1) }}",
    ],
)
def test_a_template_that_decides_is_found(tag: str) -> None:
    assert breaches(f"x = 1\n{tag}\n") != []


def test_each_schedule_has_a_module_and_a_template() -> None:
    rooms = ROOT / "gemmgen" / "schedules"
    assert {path.stem for path in rooms.glob("*.py")} - {"__init__"} == set(SCHEDULES)
    assert len({row.order for row in SCHEDULES.values()}) == len(SCHEDULES)
    shared = {"launcher", "tiles", "epilogue", "schedule", "functions", "package"}
    shared |= {"backward", "grad_epilogue", "module"}
    programs = {path.name.removesuffix(".py.jinja") for path in TEMPLATES} - shared
    assert programs == {row.file for row in SCHEDULES.values()}
    assert set(GRIDS) == set(SCHEDULES)


def test_generated_files_are_clean_under_the_project_s_linter() -> None:
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--output-format=json",
    ]
    done = subprocess.run(
        [*command, "generated"], cwd=ROOT, capture_output=True, text=True
    )
    assert [one["message"] for one in json.loads(done.stdout)] == []


@each_generated
def test_generated_files_are_short(path: Path) -> None:
    """The table of tiles may be wider than the text, and longer."""
    text = path.read_text(encoding="utf-8")
    shared = RUNTIME in path.parts
    longest = 300 if shared else 120
    longest += 30 * (path.stem == TILES)
    assert len(text.splitlines()) <= longest
    prose = re.sub(r"# fmt: off.*?# fmt: on", "", text, flags=re.DOTALL)
    assert max(map(len, prose.splitlines())) <= (90 if shared else 88)


COPIED = [one for one in SHARED if not one.endswith("/functions.py")]


def source_of(name: str) -> Path:
    return ROOT / "gemmgen" / "runtime" / Path(name).relative_to(RUNTIME)


@pytest.mark.parametrize("name", COPIED)
def test_what_launchers_share_is_copied_as_it_stands(name: str) -> None:
    head, _, copied = shared_texts()[name].partition('"""')
    assert all(line.startswith("#") for line in head.splitlines())
    assert f'"""{copied}' == source_of(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COPIED)
def test_what_launchers_share_needs_nothing_that_a_folder_may_lack(name: str) -> None:
    """A folder has what is in no package, operators, and packages that kernels name."""
    always = {*shared_by(["from .._runtime.operators.launcher import launcher\n"])}
    assert {f"{RUNTIME}/support.py", f"{RUNTIME}/operators/entry.py"} <= always
    own = Path(name).parent
    for node in ast.walk(tree(source_of(name))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = own if node.level == 1 else own.parent
            used = place / f"{(node.module or '').replace('.', '/')}.py"
            assert used.as_posix() in always or used.parent == own


@each_generated
def test_generated_files_stand_alone(path: Path) -> None:
    """They import torch, triton and Python's own modules, never gemmgen."""
    own = {name for path in GENERATED for name in (path.stem, path.parent.name)}
    found = {name.split(".")[0] for name in imported(path)} - own
    assert found - sys.stdlib_module_names <= {"torch", "triton"}


@each_generated
def test_generated_names_have_docstrings(path: Path) -> None:
    module = tree(path)
    assert ast.get_docstring(module)
    assert [
        one.name
        for one in module.body
        if isinstance(one, ast.FunctionDef) and not ast.get_docstring(one)
    ] == []
