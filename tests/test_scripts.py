"""The scripts of benchmarks/ find what they import."""

import pytest

pytest.importorskip("torch")

from tests import scripts

NAMES = sorted(path.stem for path in scripts.FOLDER.glob("*/*.py"))


def test_there_are_scripts() -> None:
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_script_can_be_imported(name: str) -> None:
    assert scripts.script(name).__doc__
