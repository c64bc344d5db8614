"""Which tests are left to `pytest -m slow`: those of which a faster one is of the kind.

Plain `pytest` is what a newcomer waits for, and what CI runs with every Triton: it may
take five minutes of CPU time.
"""

from collections.abc import Collection
from typing import Any

import pytest


def all_but(fast: set[Any], values: Collection[Any]) -> list[object]:
    """Parameters of which those in `fast` alone are tried where time is short."""
    assert fast <= set(values)
    slow = [pytest.mark.slow]
    several = [one if isinstance(one, tuple) else (one,) for one in values]
    return [
        pytest.param(*each, marks=[] if one in fast else slow)
        for one, each in zip(values, several, strict=True)
    ]
