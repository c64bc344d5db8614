"""`gemmgen tune` in the processes of a job, each with a GPU of its own, all fake."""

from pathlib import Path

import pytest

from gemmgen.base.processes import Processes, started
from tests.cases import names_in, said_by
from tests.once import once

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each case of the script."""

    def run(folder: Path) -> dict[str, str]:
        return said_by("team_script", folder)

    return once(tmp_path_factory, "team", run)


@pytest.mark.slow
@pytest.mark.parametrize("name", names_in("team_script"))
def test_what_two_processes_tune(said: dict[str, str], name: str) -> None:
    assert said[name] == "", said[name]


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, Processes()),
        ({"RANK": "1", "WORLD_SIZE": "2"}, Processes()),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "x"}, Processes()),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, Processes(1, 2, 1, 2)),
        (
            {
                "RANK": "9",
                "WORLD_SIZE": "16",
                "LOCAL_RANK": "1",
                "LOCAL_WORLD_SIZE": "8",
            },
            Processes(9, 16, 1, 8),
        ),
    ],
)
def test_processes_are_those_that_variables_tell_of(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], wanted: Processes
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert started() == wanted
