"""Two threads that take turns at given points."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gemmgen.verification.stand_in.turns import in_turns


@pytest.fixture
def driver() -> Any:
    """Of the stand-in, what turns need."""
    return SimpleNamespace(point=lambda name: None)


def by(driver: Any, letter: str, seen: list[str]) -> Callable[[], str]:
    """An action of three points."""

    def act() -> str:
        for _ in range(3):
            driver.point("anything")
            seen.append(letter)
        return letter.upper()

    return act


@pytest.mark.parametrize(
    ("turns", "wanted"),
    [
        ([], "aaabbb"),
        ([True], "bbbaaa"),
        ([False, True], "abbbaa"),
        ([True] * 12, "ababab"),
    ],
    ids=str,
)
def test_the_other_goes_on_where_it_is_its_turn(
    driver: Any, turns: list[bool], wanted: str
) -> None:
    seen: list[str] = []
    assert in_turns(driver, [by(driver, one, seen) for one in "ab"], turns) == [
        "A",
        "B",
    ]
    assert "".join(seen) == wanted


@pytest.mark.parametrize("place", [0, 1])
def test_what_one_raises_is_raised(driver: Any, place: int) -> None:
    seen: list[str] = []
    actions: list[Any] = [by(driver, one, seen) for one in "ab"]

    def broken() -> None:
        driver.point("anything")
        raise KeyError("here")

    actions[place] = broken
    with pytest.raises(KeyError, match="here"):
        in_turns(driver, actions, [])
    assert len(seen) == 3  # the other went on to its end
