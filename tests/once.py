"""What is made once for all processes of a run of the tests, since it takes long."""

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def asked(request: pytest.FixtureRequest) -> list[str]:
    """Of the tests that run, the `name` of each that takes a fixture of its module."""
    return [
        test.callspec.params["name"]
        for test in request.session.items
        if isinstance(test, pytest.Function)
        and test.path == request.path
        and request.fixturename in test.fixturenames
    ]


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]
) -> Made:
    """What `make` returns for a new folder; pytest-xdist's processes share it.

    The first that asks makes it, the others wait.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    kept = root / f"{name}.pickle"
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            made = make(Path(tempfile.mkdtemp(prefix=name, dir=root)))
            kept.write_bytes(pickle.dumps(made))
        return pickle.loads(kept.read_bytes())
