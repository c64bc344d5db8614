"""What all tests share: one option, and no limit of time on drawn examples.

The option rewrites expected files instead of comparing.
"""

import pytest
from hypothesis import HealthCheck, settings

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
