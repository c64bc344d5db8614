"""The README is true: its specs load, its code runs, its excerpts are what is there.

A comment `<!-- check: … -->` before a block says what it must be; specs without one
must load. `pytest --update-golden` rewrites the excerpts.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gemmgen.base.errors import SpecErrors
from gemmgen.cli import commands
from gemmgen.cli.main import main
from gemmgen.epilogue.checked import AXES
from gemmgen.epilogue.shorthand import STEPS
from gemmgen.hardware.targets import TARGETS
from gemmgen.select import plan
from gemmgen.select.plan import Plan
from gemmgen.spec import parse, shapes
from gemmgen.spec.schema import SCALINGS, DtypeMap, File, ForEach, Kernel, Tile
from gemmgen.tables.dtypes import DTYPES, PRECISIONS
from gemmgen.tables.functions import OPS
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tables.schedules import SCHEDULES

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?:<!-- check: (?P<check>.+?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment before it, its text and its place."""

    language: str
    check: str
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], match["check"] or "", match["text"], line)


BLOCKS = list(blocks(README.read_text(encoding="utf-8")))
SPECS = [one for one in BLOCKS if one.language == "yaml" and not one.check]


def checked(check: str) -> Block:
    """The one block with such a comment."""
    (block,) = [one for one in BLOCKS if one.check == check]
    return block


def whole(text: str) -> str:
    """A spec as a file: a list of kernels alone gets what stands above it."""
    if text.startswith("- "):
        return "gemmgen: 1\nkernels:\n" + text
    return text


def planned(text: str) -> tuple[Plan, ...]:
    return plan.plans(parse.parse(whole(text), "spec.yaml"))


def by_line(block: Block) -> str:
    return f"line {block.line}"


@pytest.mark.parametrize("block", SPECS, ids=by_line)
def test_specs_load(block: Block) -> None:
    assert planned(block.text)


def test_the_part_of_our_own_spec() -> None:
    assert checked("part of spec.yaml").text in (ROOT / "spec.yaml").read_text()


def excerpt(module: str, function: str) -> str:
    """The text of a function of a generated module, decorators included."""
    source = (ROOT / "generated" / f"{module}.py").read_text(encoding="utf-8")
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
    """The README with every block that follows from something else made anew."""
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


def test_excerpts_and_messages_are_real(request: pytest.FixtureRequest) -> None:
    text = README.read_text(encoding="utf-8")
    made = filled(text)
    if request.config.getoption("--update-golden"):
        README.write_text(made, encoding="utf-8")
    else:
        assert text == made


@pytest.mark.slow
def test_code_runs_and_prints_what_is_shown() -> None:
    """All runnable blocks in one process; without a GPU in the mended interpreter."""
    parts = [one for one in BLOCKS if one.check == "run"]
    shown = "".join(one.text for one in BLOCKS if one.check == "printed")
    done = subprocess.run(
        [sys.executable, "-c", _here("\n".join(one.text for one in parts))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **_interpreted()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


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
    texts = "\n".join(whole(one.text) for one in BLOCKS if one.language == "yaml")
    models = (File, Kernel, Tile, DtypeMap)
    keys = {key for model in models for key in model.model_fields} - {"split_k"}
    assert {key for key in keys if not re.search(rf"\b{key}:", texts)} == set()
    assert set(ForEach.model_fields) < set(Kernel.model_fields)


def test_every_word_is_told() -> None:
    text = README.read_text(encoding="utf-8")
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
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+\([a-z, ]+\))` \|", text, re.MULTILINE)
    forms = [f"{op.name}({', '.join(op.parameters)})" for op in OPS.values()]
    assert rows == [*forms, "where(cond, x, y)"]


def test_what_is_not_built_is_named_as_such() -> None:
    text = README.read_text(encoding="utf-8")
    section = text.partition("### Known but not built yet")[2].partition("\n## ")[0]
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


def test_ci_runs_the_second_command_as_it_stands_here() -> None:
    command = checked("second command").text
    assert f"\n{command}" in (ROOT / ".ci" / "run").read_text()


def test_ci_runs_what_the_second_command_leaves_out(
    request: pytest.FixtureRequest,
) -> None:
    options = request.config.getini("addopts")
    assert options[options.index("-m") + 1] == "not slow"
    assert checked("second command").text.endswith("/pytest -n auto\n")
    assert "\n.venv/bin/pytest -n auto -m slow\n" in (ROOT / ".ci/run").read_text()


def gemmgen_commands(text: str) -> list[list[str]]:
    """The arguments of each call of gemmgen in a script or workflow."""
    calls = re.findall(r"(?:^|&& |run: )(?:\.venv/bin/)?(gemmgen [^&\n]*)", text, re.M)
    return [shlex.split(call)[1:] for call in calls]


@pytest.mark.parametrize("name", ["README.md", ".ci/run", "examples/ci/verify.yml"])
def test_commands_that_we_tell_people_exist(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name == "README.md":
        text = "".join(one.text for one in BLOCKS if one.language == "sh")
    for verb in ("build", "verify"):
        monkeypatch.setattr(commands, verb, lambda options: 0)
    found = gemmgen_commands(text)
    assert found
    for arguments in found:
        named = any(one.endswith(".yaml") for one in arguments)
        given = [] if named else ["spec.yaml"]
        assert main([*arguments, *given]) == 0


def test_hooks_are_those_that_the_readme_names() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["gemmgen-build", "gemmgen-check"]
    assert all(hook["require_serial"] and not hook["pass_filenames"] for hook in hooks)
    (repo,) = yaml.safe_load(checked("pre-commit").text)["repos"]
    assert {hook["id"] for hook in repo["hooks"]} <= {hook["id"] for hook in hooks}


GIT = ["git", "-c", "user.name=one", "-c", "user.email=one@example.com"]


@pytest.mark.parametrize("index", [0, 1], ids=["build", "check"])
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
    assert "generated/one.py: not in git; next: git add generated\n" in said
    (tmp_path / ".gitignore").write_text("generated\n")
    assert outcome() == (0, "")
    (tmp_path / ".gitignore").unlink()
    run(*GIT, "add", "generated")
    assert outcome() == (0, "")


def test_no_tag_is_named_that_does_not_exist() -> None:
    tags = subprocess.run(
        ["git", "tag"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()  # fmt: skip
    for name in ("README.md", "examples/ci/verify.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        named = re.findall(r"\.git@(\S+?)\"|rev: (\S+)", text)
        assert named
        assert all(one in (*tags, "COMMIT") for pair in named for one in pair if one)


def test_the_workflow_is_yaml_with_the_jobs_it_promises() -> None:
    text = (ROOT / "examples" / "ci" / "verify.yml").read_text()
    steps = yaml.safe_load(text)["jobs"]["verify"]["steps"]
    runs = [step["run"] for step in steps if "run" in step]
    assert "gemmgen build --check --format github spec.yaml" in runs
    assert any(run.startswith("gemmgen verify ") for run in runs)


def test_the_shapes_file_is_one(tmp_path: Path) -> None:
    path = tmp_path / "shapes.yaml"
    path.write_text(checked("shapes").text)
    found = shapes.read(path, ["mlp_up", "mlp_down"])
    assert [len(one) for one in found.values()] == [2, 1]


def test_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert targets
    assert [one for one in targets if not (ROOT / one).exists()] == []
