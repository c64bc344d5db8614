"""Whole folders, one per kind of text: read the files, they are the expectation."""

from pathlib import Path

import pytest

from gemmgen.epilogue.checked import AXES
from gemmgen.output import alone
from gemmgen.render import render
from gemmgen.schedules import SCHEDULES
from gemmgen.select import plan
from gemmgen.tables.layouts import LAYOUTS

CASES = sorted(Path(__file__).parent.glob("golden/*/spec.yaml"))
OPERANDS = {(): "scalar", ("m",): "column", ("n",): "row", ("m", "n"): "matrix"}


@pytest.mark.parametrize("spec", CASES, ids=lambda path: path.parent.name)
def test_a_folder_is_as_committed(spec: Path, request: pytest.FixtureRequest) -> None:
    one, *_ = plan.load(spec, "spec.yaml")  # those of a backward are as any other
    home = spec.parent
    made = render.files(one, "spec.yaml")
    if request.config.getoption("--update-golden"):
        for path in home.glob("*/*.py"):
            path.unlink()
        alone.write(home, made)
    found = {path.relative_to(home).as_posix(): path for path in home.glob("*/*.py")}
    assert made == {name: path.read_text() for name, path in found.items()}


def test_every_kind_of_text_has_a_case() -> None:
    names = {path.parent.name for path in CASES}
    wanted = {f"schedule_{name}" for name in SCHEDULES}
    wanted |= {f"layout_{name.lower()}" for name in LAYOUTS}
    wanted |= {f"operand_{OPERANDS[axes]}" for axes in AXES} | {"gradient", "layer"}
    assert wanted <= names


@pytest.mark.parametrize("spec", CASES, ids=lambda path: path.parent.name)
def test_a_case_is_short_enough_to_read(spec: Path) -> None:
    lengths = [len(one.read_text().splitlines()) for one in spec.parent.glob("*/*.py")]
    assert max(lengths) <= 270 and len(lengths) <= 5
