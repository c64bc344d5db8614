"""What all tests share: one option, and no limit of time on drawn examples.

The option rewrites expected files instead of comparing.
"""

import os
from collections.abc import Iterator

import black
import pytest
from hypothesis import HealthCheck, settings

from gemmgen.verification.run import pool
from tests import forked

# There is a process a core: a thread that waits for another takes time from a third.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Both are measured by the clock on the wall, and say how busy the machine is.
settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected files under tests/ with what comes out",
    )


@pytest.fixture(autouse=True, scope="session")
def forked_from_one() -> Iterator[None]:
    """The process that forks others ends with the tests, which its time belongs to."""
    yield
    forked.stop()


@pytest.fixture(autouse=True, scope="session")
def verified_by_one(pytestconfig: pytest.Config) -> Iterator[None]:
    """A verification of quick tests has one process: a second one is seldom worth it.

    It imports torch, and there is a process of tests a core already.
    """
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.option.markexpr == "not slow":
            patch.setattr(pool, "_cores", lambda: 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def formatted_once() -> Iterator[None]:
    """black, which takes half of the time of a build, keeps what it formatted."""
    format_str, known = black.format_str, {}

    def remembered(text: str, *, mode: black.Mode) -> str:
        key = text, mode.get_cache_key()
        if key not in known:
            known[key] = format_str(text, mode=mode)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(black, "format_str", remembered)
        yield
