"""The pages are true: their specs load, their code runs, their excerpts are real.

| page | what is held here |
| --- | --- |
| README.md | both commands, the first kernel from `init` to the call, the speeds |
| docs/language.md | every spec, key, word and function; messages; what is not built |
| docs/calling.md | the code and what it prints, excerpts of a module, the API's names |
| docs/commands.md | commands, shapes, layers; the rest by test_commands_page.py |
| docs/verification.md | the hooks |
| benchmarks/README.md | each report, with the command that the report names |
| all | no block that nothing holds; links, sections, commands in the text |

What a block must be is said by a comment before it, `<!-- check: … -->`; specs without
one must load. `pytest --update-golden` rewrites the excerpts. docs/stages.md is held by
test_explain.py, docs/architecture.md by test_architecture.py.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import gemmgen
from gemmgen.base.errors import SpecErrors
from gemmgen.cli import commands
from gemmgen.cli.arguments import parser
from gemmgen.cli.init_spec import STARTER
from gemmgen.cli.main import main
from gemmgen.epilogue.checked import AXES
from gemmgen.epilogue.shorthand import STEPS
from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules import SCHEDULES
from gemmgen.select import plan
from gemmgen.select.plan import Plan
from gemmgen.spec import parse, shapes
from gemmgen.spec.schema import DtypeMap, File, ForEach, Kernel, Tile
from gemmgen.tables.dtypes import DTYPES, PRECISIONS
from gemmgen.tables.functions import OPS
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.scalings import SCALINGS
from tests.own import OWN
from tests.pages import BLOCK, PAGES, ROOT, Block, Page, read, sections
from tests.slow import all_but

BLOCKS = [block for page in PAGES for block in page.blocks]
SPECS = [one for one in BLOCKS if one.language == "yaml" and not one.check]
EXCERPTS = ("README.md", "docs/language.md", "docs/calling.md")

# What the comment before a block can be.
CHECKS = {
    "yaml": r"|refused|shapes|layers|pre-commit|part of (spec.yaml|the starter)"
    r"|entry \w+",
    "python": r"run|run on a GPU|first call|generated \w+/\w+ \w+",
    "sh": r"|(first|second) command|first steps",
    "text": r"printed|refusal|explain .+",
}
PICTURES = {"docs/architecture.md"}
"""Pages with a text that is drawn by hand."""


def checked(page: str, check: str) -> Block:
    """The one block of a page with such a comment."""
    (block,) = [one for one in BLOCKS if (one.page, one.check) == (page, check)]
    return block


def whole(text: str) -> str:
    """A spec as a file: a list of kernels alone gets what stands above it."""
    if text.startswith("- "):
        return "gemmgen: 1\nkernels:\n" + text
    return text


def planned(text: str) -> tuple[Plan, ...]:
    return plan.plans(parse.parse(whole(text), "spec.yaml"))


def by_line(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", BLOCKS, ids=by_line)
def test_no_block_is_held_by_nothing(block: Block) -> None:
    drawn = block.language == "text" and not block.check and block.page in PICTURES
    assert drawn or re.fullmatch(CHECKS[block.language], block.check)


@pytest.mark.parametrize("block", SPECS, ids=by_line)
def test_specs_load(block: Block) -> None:
    assert planned(block.text)


def test_parts_of_specs_are_theirs() -> None:
    ours = checked("docs/calling.md", "part of spec.yaml")
    assert ours.text in read("spec.yaml")
    assert checked("README.md", "part of the starter").text in STARTER


def excerpt(file: str, function: str) -> str:
    """The text of a function of a generated file, decorators included."""
    source = (ROOT / "generated" / f"{file}.py").read_text(encoding="utf-8")
    (node,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno]) + "\n"


def refusal(text: str) -> str:
    """What the author of a bad spec gets to read."""
    with pytest.raises(SpecErrors) as caught:
        planned(text)
    return f"{caught.value}\n"


def filled(text: str) -> str:
    """A page with every block that follows from something else made anew."""
    refused = ""

    def fill(match: re.Match[str]) -> str:
        nonlocal refused
        check, now = match["check"] or "", match["text"]
        new = now
        if check == "refused":
            refused = now
        elif check == "refusal":
            new = refusal(refused)
        elif check.startswith("generated "):
            new = excerpt(*check.split()[1:])
        start = match.start("text") - match.start()
        return match[0][:start] + new + match[0][start + len(now) :]

    return BLOCK.sub(fill, text)


@pytest.mark.parametrize("name", EXCERPTS)
def test_excerpts_and_messages_are_real(
    name: str, request: pytest.FixtureRequest
) -> None:
    text = read(name)
    made = filled(text)
    if request.config.getoption("--update-golden"):
        (ROOT / name).write_text(made, encoding="utf-8")
    else:
        assert text == made


def test_excerpts_stand_on_those_pages_alone() -> None:
    followed = re.compile(r"refused|refusal|generated .+")
    assert {one.page for one in BLOCKS if followed.fullmatch(one.check)} <= {*EXCERPTS}


def shown(page: str) -> str:
    """What the code of a page prints."""
    return "".join(
        one.text for one in BLOCKS if (one.page, one.check) == (page, "printed")
    )


def test_pages_whose_code_is_run() -> None:
    kinds = ("run", "run on a GPU", "printed", "first call")
    pages = {one.page for one in BLOCKS if one.check in kinds}
    assert pages == {"README.md", "docs/calling.md"}


@pytest.mark.slow
def test_code_runs_and_prints_what_is_shown() -> None:
    """All runnable blocks in one process; without a GPU in the mended interpreter."""
    kinds = ("run",) if _interpreted() else ("run", "run on a GPU")
    parts = [
        one for one in BLOCKS if one.page == "docs/calling.md" and one.check in kinds
    ]
    done = _python(_here("\n".join(one.text for one in parts)), ROOT, _interpreted())
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown("docs/calling.md")


def _python(
    code: str, folder: Path, more: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run code in a folder, with gemmgen at hand."""
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **more},
        capture_output=True,
        text=True,
    )


def _first_steps(folder: Path, script: str) -> str:
    """Run the README's commands in a folder; what they print."""
    ours = f'gemmgen() {{ {shlex.quote(sys.executable)} -m gemmgen "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-e", "-c", ours + script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


VERIFY = "gemmgen verify spec.yaml --only mlp_up\n"


def test_the_first_kernel_is_built_and_called(tmp_path: Path) -> None:
    """But for verify, which is slow; without a GPU in the mended interpreter."""
    pytest.importorskip("torch")
    script = checked("README.md", "first steps").text
    assert VERIFY in script
    _first_steps(tmp_path, script.replace(VERIFY, ""))
    code = checked("README.md", "first call").text
    done = _python(_here(code), tmp_path / "first", _interpreted())
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown("README.md")


@pytest.mark.slow
def test_the_first_kernel_is_verified(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = _first_steps(tmp_path, checked("README.md", "first steps").text)
    (line,) = re.findall("`(1 kernel, .+)`", read("README.md"))
    assert f"\n{line}, " in out


@pytest.mark.slow
def test_the_first_kernel_is_called_without_a_gpu(tmp_path: Path) -> None:
    """With the words changed that README says, and the interpreter as it is."""
    pytest.importorskip("torch")
    script = checked("README.md", "first steps").text.replace(VERIFY, "")
    fp16 = "sed -i 's/dtype: bf16/dtype: fp16/' spec.yaml\n"
    _first_steps(tmp_path, script.replace("gemmgen init\n", f"gemmgen init\n{fp16}"))
    code = checked("README.md", "first call").text
    for old, new in (
        ("torch.bfloat16", "torch.float16"),
        ('device = "cuda"', 'device = "cpu"'),
    ):
        assert old in code
        code = code.replace(old, new)
    done = _python(code, tmp_path / "first", {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown("README.md").replace("bfloat16", "float16")


def _here(code: str) -> str:
    """Code for a GPU, for the CPU where there is none: bf16 needs more than a word."""
    if not _interpreted():
        return code
    mended = (
        "from gemmgen.verification.interpret import interpreter\ninterpreter.mend()\n"
    )
    return mended + code.replace('device = "cuda"', 'device = "cpu"')


def _interpreted() -> dict[str, str]:
    torch = pytest.importorskip("torch")
    return {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}


@pytest.mark.slow
def test_the_first_kernel_is_right() -> None:
    """What the first command ends with."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "examples.first_kernel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert ": right, error" in done.stdout


@pytest.mark.parametrize("block", BLOCKS, ids=by_line)
def test_code_is_python(block: Block) -> None:
    if block.language == "python":
        ast.parse(block.text)


def test_every_key_is_shown() -> None:
    """In a spec that loads, with a value; `scaling` and the like only as refused."""
    texts = "\n".join(
        whole(one.text)
        for one in BLOCKS
        if one.language == "yaml" and one.page == "docs/language.md"
    )
    models = (File, Kernel, Tile, DtypeMap)
    keys = {key for model in models for key in model.model_fields} - {"split_k"}
    assert {key for key in keys if not re.search(rf"\b{key}:", texts)} == set()
    assert set(ForEach.model_fields) < set(Kernel.model_fields)


def test_every_word_is_told() -> None:
    text = read("docs/language.md")
    words = {*DTYPES, *PRECISIONS, *OPERATIONS, *SCHEDULES, *SCALINGS, *TARGETS, *STEPS}
    assert {
        word for word in words if f"`{word}`" not in text and f"`{word}(" not in text
    } == set()
    assert {name for name in LAYOUTS if not re.search(rf"\b{name}\b", text)} == set()
    indexes = [row.text for row in AXES.values()]
    assert [
        index
        for index in indexes
        if not re.search(rf"\| `\w+{re.escape(index)}` \|", text)
    ] == []


def test_every_function_is_in_the_table_with_its_parameters() -> None:
    text = read("docs/language.md")
    rows = re.findall(r"^\| `(\w+\([a-z, ]+\))` \|", text, re.MULTILINE)
    forms = [f"{op.name}({', '.join(op.parameters)})" for op in OPS.values()]
    assert rows == [*forms, "where(cond, x, y)"]


def test_what_is_not_built_is_named_as_such() -> None:
    text = read("docs/language.md")
    section = text.partition("## Known but not built yet")[2].partition("\n## ")[0]
    unbuilt = {
        row.name
        for table in (OPERATIONS, DTYPES)
        for row in table.values()
        if not row.built
    }
    listed, _, _ = section.partition("<!--")
    named = set(re.findall(r"`(\w+)`", listed)) - {
        *SCALINGS,
        "scaling",
        "split_k",
        "false",
    }
    assert named == unbuilt


def test_every_public_name_is_told() -> None:
    text = read("docs/calling.md")
    assert [name for name in gemmgen.__all__ if f"gemmgen.{name}" not in text] == []


def test_ci_runs_the_second_command_as_it_stands_here() -> None:
    command = checked("README.md", "second command").text
    assert f"\n{command}" in (ROOT / ".ci" / "run").read_text()


def test_ci_runs_what_the_second_command_leaves_out(
    request: pytest.FixtureRequest,
) -> None:
    options = request.config.getini("addopts")
    assert options[options.index("-m") + 1] == "not slow"
    assert checked("README.md", "second command").text.endswith("/pytest -n auto\n")
    assert "\n.venv/bin/pytest -n auto -m slow\n" in (ROOT / ".ci/run").read_text()


def gemmgen_commands(text: str) -> list[list[str]]:
    """The arguments of each call of gemmgen in a script or workflow."""
    calls = re.findall(r"(?:^|&& |run: )(?:\.venv/bin/)?(gemmgen [^&\n]*)", text, re.M)
    return [shlex.split(call)[1:] for call in calls]


SHELL = sorted({one.page for one in BLOCKS if one.language == "sh"})


@pytest.mark.parametrize("name", [*SHELL, ".ci/run", "examples/ci/verify.yml"])
def test_commands_that_we_tell_people_exist(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read(name)
    if name in SHELL:
        found = [one for one in BLOCKS if (one.page, one.language) == (name, "sh")]
        text = "".join(one.text for one in found)
    for verb in ("build", "verify", "init"):
        monkeypatch.setattr(commands, verb, lambda options: 0)
    found = gemmgen_commands(text)
    assert found
    for arguments in found:
        named = any(one.endswith(".yaml") for one in arguments)
        given = [] if named else ["spec.yaml"]
        assert main([*arguments, *given]) == 0


PLACEHOLDER = re.compile(r"\b[A-Z]+\b|\.\.\.|[|]")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_within_the_text_are_read(page: Page) -> None:
    """Those that are whole: `gemmgen verify spec.yaml --seed 7`, not `… SPEC`."""
    for code in re.findall(r"(?<!`)`(gemmgen [^`]+)`(?!`)", page.prose):
        words = shlex.split(code)[1:]
        if PLACEHOLDER.search(code) or words[0].startswith("-"):
            continue
        specs = [] if any(one.endswith(".yaml") for one in words) else ["spec.yaml"]
        if words[0] in ("init", "schema"):
            specs = []
        if words[0] in ("explain", "show") and len(words) == 1:
            specs = ["spec.yaml", "a_kernel"]
        parser().parse_args([*words, *specs])


def test_hooks_are_those_that_the_page_names() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["gemmgen-build", "gemmgen-check"]
    assert all(hook["require_serial"] and not hook["pass_filenames"] for hook in hooks)
    (repo,) = yaml.safe_load(checked("docs/verification.md", "pre-commit").text)[
        "repos"
    ]
    assert {hook["id"] for hook in repo["hooks"]} <= {hook["id"] for hook in hooks}


GIT = ["git", "-c", "user.name=one", "-c", "user.email=one@example.com"]


@pytest.mark.parametrize("index", all_but({0}, [0, 1]), ids=["build", "check"])
def test_a_hook_fails_until_git_knows_the_kernels(index: int, tmp_path: Path) -> None:
    """pre-commit itself sees no file that is untracked."""
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[index]
    _, *entry = shlex.split(hook["entry"])
    (tmp_path / "spec.yaml").write_text(
        "gemmgen: 1\nkernels: [{name: one, op: linear, dtype: bf16}]\n"
    )
    main(["build", str(tmp_path / "spec.yaml")])

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=os.environ | {
            "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)  # fmt: skip

    def outcome() -> tuple[int, str]:
        done = run(sys.executable, *entry, *hook["args"])
        return done.returncode, done.stderr

    run(*GIT, "init", "-q")
    run(*GIT, "add", "spec.yaml")
    code, said = outcome()
    assert code == 1
    assert "generated/one: not in git; next: git add generated\n" in said
    (tmp_path / ".gitignore").write_text("generated\n")
    assert outcome() == (0, "")
    (tmp_path / ".gitignore").unlink()
    run(*GIT, "add", "generated")
    assert outcome() == (0, "")


def test_no_tag_is_named_that_does_not_exist() -> None:
    tags = subprocess.run(
        ["git", "tag"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()  # fmt: skip
    for name in ("docs/verification.md", "examples/ci/verify.yml"):
        text = read(name)
        named = re.findall(r"\.git@(\S+?)\"|rev: (\S+)", text)
        assert named
        assert all(one in (*tags, "COMMIT") for pair in named for one in pair if one)


def test_the_workflow_is_yaml_with_the_jobs_it_promises() -> None:
    text = (ROOT / "examples" / "ci" / "verify.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["verify"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert "gemmgen build --check --format github spec.yaml" in runs
    assert any(run.startswith("gemmgen verify ") for run in runs)


def test_the_layers_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(checked("docs/commands.md", "layers").text)
    kernels = list(OWN)
    assert sum(map(len, shapes.read(path, kernels, shapes.LAYERS).values())) == 2


def test_the_shapes_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "shapes.yaml"
    path.write_text(checked("docs/commands.md", "shapes").text)
    found = shapes.read(path, ["mlp_up", "mlp_down"])
    assert [len(one) for one in found.values()] == [2, 1]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    """To a file that is there, and to a section that it has."""
    for target in page.links:
        name, _, section = target.partition("#")
        path = (ROOT / page.name).parent / name if name else ROOT / page.name
        assert path.exists(), target
        assert path.resolve().is_relative_to(ROOT), target
        if section:
            assert section in sections(path.read_text(encoding="utf-8")), target


def test_every_page_can_be_reached() -> None:
    """From README by links, through other pages."""
    known = {page.name: page for page in PAGES}
    reached, todo = set(), ["README.md"]
    while todo:
        name = todo.pop()
        if name in reached or name not in known:
            continue
        reached.add(name)
        folder = (ROOT / name).parent
        links = [one.partition("#")[0] for one in known[name].links]
        todo += [
            (folder / one).resolve().relative_to(ROOT).as_posix()
            for one in links
            if one
        ]
    assert reached == known.keys()


SPEED = re.compile(
    r"^(\| \w+ \|.+\|) \[\w+\]\((benchmarks/[\w/]+\.md)\) \|$", re.MULTILINE
)


def test_the_site_has_every_page() -> None:
    """But for the reports, which benchmarks/README.md lists."""
    nav = yaml.safe_load(read("mkdocs.yml"))["nav"]
    named = re.findall(r"[\w/]+\.md", yaml.safe_dump(nav))
    reports = {one.name for one in PAGES if one.name.startswith("benchmarks/")}
    pages = {one.name for one in PAGES}
    assert pages - reports <= {*named} <= pages


def test_speeds_are_those_of_the_reports() -> None:
    """Row for row, with the GPU, the versions and the command that the report names."""
    text = read("README.md")
    versions = re.search(r"^(gpu .+)\.$", text, re.MULTILINE)
    (date,) = re.findall(r"measured on ([\d-]+) with", text)
    rows = SPEED.findall(text)
    assert versions
    table = text.partition("<!-- check: speeds -->\n")[2].partition("\n\n")[0]
    assert len(rows) == table.count("\n") - 1 > 0
    for row, name in rows:
        report = read(name)
        made = re.match("Made by (`.+`)\\.", report)
        assert made
        assert made[1] in text
        assert f"date {date}, {versions[1]}" in report
        assert f"\n{row} " in report


def test_every_report_is_told_with_its_command() -> None:
    text = read("benchmarks/README.md")
    for path in (ROOT / "benchmarks").glob("*/*"):
        if "__pycache__" in path.parts:
            continue
        name = path.relative_to(ROOT / "benchmarks").as_posix()
        assert f"({name})" in text, name
        if path.suffix == ".md":
            head = path.read_text(encoding="utf-8").replace("\n", " ")
            for command in re.findall("Made by (`[^`]+`)", head):
                assert re.search(
                    rf"^\| \[{path.name}\].*\| {re.escape(command)}", text, re.MULTILINE
                ), command


def test_paths_that_contributors_are_told_exist() -> None:
    text = read("CONTRIBUTING.md")
    paths = re.findall(
        r"(?<![\w./])((?:tests|docs|benchmarks|gemmgen|\.ci|\.github)/[\w/.]*\w)",
        text.replace("tests/test_*.py", ""),
    )
    assert len(paths) > 20
    assert [one for one in paths if not (ROOT / one).exists()] == []


def test_how_long_all_checks_take_is_said_alike() -> None:
    (minutes,) = re.findall(r"On two cores (about .+)\.", read(".ci/run"))
    assert f"| {minutes} on two cores, " in read("CONTRIBUTING.md")
