"""Every bad spec in errors/ and exactly what its author gets to read."""

from pathlib import Path

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.select.plan import load

CASES = sorted((Path(__file__).parent / "errors").glob("*.yaml"))


def errors_of(path: Path) -> str:
    """The error lines of a spec, which has some."""
    with pytest.raises(SpecErrors) as caught:
        load(path, path.name)
    return f"{caught.value}\n"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_errors(path: Path, request: pytest.FixtureRequest) -> None:
    found, expected = errors_of(path), path.with_suffix(".txt")
    assert all(character.isprintable() or character == "\n" for character in found)
    if request.config.getoption("--update-golden"):
        expected.write_text(found, encoding="utf-8")
    assert found == expected.read_text(encoding="utf-8")
