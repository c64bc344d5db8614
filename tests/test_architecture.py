"""docs/architecture.md is true: its rooms are those there are, in their own words."""

import ast
import re
from pathlib import Path

import pytest

from gemmgen.output.folder import PACKAGE, SHARED
from tests.test_house_rules import ROOMS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
TABLE = re.compile(r"(?<=<!-- check: rooms -->\n).*?\n(?=\n)", re.DOTALL)
ENTRY = re.compile(
    r"(?<=<!-- check: entry linear_bias_gelu -->\n).*?\n```\n", re.DOTALL
)
ALONE = {"api", "__main__"}
"""Modules that are no package."""


def job(room: str) -> str:
    """The first paragraph of a package's docstring, in one line."""
    path = ROOT / "gemmgen" / room.replace(".", "/") / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def rooms() -> str:
    rows = [f"| `{room}` | {job(room)} |" for room in ROOMS if room not in ALONE]
    return "\n".join(["| room | its job |", "| --- | --- |", *rows]) + "\n"


def entry() -> str:
    """The kernel's own lines of spec.yaml."""
    lines = (ROOT / "spec.yaml").read_text(encoding="utf-8").split("\n")
    first = lines.index("  - name: linear_bias_gelu")
    others = (at for at, line in enumerate(lines) if line.startswith("  - "))
    last = next(at for at in others if at > first)
    return "\n".join(["```yaml", *lines[first:last], "```"]) + "\n"


def test_what_the_page_copies_is_so(request: pytest.FixtureRequest) -> None:
    """`--update-golden` copies it anew."""
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda _: rooms(), text)
    made = ENTRY.sub(lambda _: entry(), made)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, encoding="utf-8")
    else:
        assert text == made


def test_files_that_the_page_names_are_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"`([a-z_]+/[a-z_0-9./]+)`", text):
        found = [ROOT / name, ROOT / "gemmgen" / name]
        assert any(path.exists() for path in found) or name in SHARED, name
    said = set(re.findall(r"`[^`\n]+`", text))
    assert {f"`{name}`" for name in SHARED if Path(name).name != PACKAGE} <= said
