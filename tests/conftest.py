"""The one option of the tests: rewrite expected files instead of comparing."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected files under tests/ with what comes out",
    )
