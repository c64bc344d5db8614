"""Whole modules, one per kind of text: read the files, they are the expectation."""

from pathlib import Path

import pytest

from gemmgen.render import render
from gemmgen.select import plan

CASES = sorted(Path(__file__).parent.glob("golden/*/spec.yaml"))


@pytest.mark.parametrize("spec", CASES, ids=lambda path: path.parent.name)
def test_module_is_as_committed(spec: Path, request: pytest.FixtureRequest) -> None:
    (one,) = plan.load(spec, "spec.yaml")
    expected = spec.with_name(f"{one.name}.py")
    made = render.module(one, "spec.yaml")
    if request.config.getoption("--update-golden"):
        expected.write_text(made)
    assert made == expected.read_text()
