"""Which tests are left to `pytest -m slow`: those of which a faster one is of the kind.

Plain `pytest` is what a newcomer waits for, at most five minutes of CPU time in all.
"""

from collections.abc import Collection

import pytest


def all_but(fast: set[str], values: Collection[str]) -> list[object]:
    """Parameters of which those in `fast` alone are tried where time is short."""
    assert fast <= set(values)
    slow = [pytest.mark.slow]
    return [pytest.param(one, marks=[] if one in fast else slow) for one in values]
