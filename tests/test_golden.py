"""Whole folders, one per kind of text: read the files, they are the expectation."""

from pathlib import Path

import pytest

from gemmgen.output import alone
from gemmgen.render import render
from gemmgen.select import plan

CASES = sorted(Path(__file__).parent.glob("golden/*/spec.yaml"))


@pytest.mark.parametrize("spec", CASES, ids=lambda path: path.parent.name)
def test_a_folder_is_as_committed(spec: Path, request: pytest.FixtureRequest) -> None:
    (one,) = plan.load(spec, "spec.yaml")
    home = spec.parent
    made = render.files(one, "spec.yaml")
    if request.config.getoption("--update-golden"):
        for path in home.glob("*/*.py"):
            path.unlink()
        alone.write(home, made)
    found = {path.relative_to(home).as_posix(): path for path in home.glob("*/*.py")}
    assert made == {name: path.read_text() for name, path in found.items()}
