"""Cases of a script that runs in Triton's interpreter, in a process of its own."""

import ast
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tests import forked

ROOT = Path(__file__).parent.parent
CASES: dict[str, Callable[[], None]] = {}


def case(check: Callable[[], None]) -> Callable[[], None]:
    """Note a check under its name."""
    CASES[check.__name__] = check
    return check


def refused(call: Callable[[], Any], *words: str) -> None:
    """Hold that a call raises, and says these words."""
    try:
        call()
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("not refused")


def run_all(names: Collection[str] = CASES) -> None:
    """Run cases: a line has a name and what went wrong, both as Python has it."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for name in names:
        check, said = CASES[name], ""
        try:
            check()
        except BaseException:
            said = traceback.format_exc()
        print(name, ascii(said), file=answers, flush=True)


def names_in(script: str) -> list[str]:
    """The cases of a script of this folder."""
    text = (ROOT / "tests" / f"{script}.py").read_text(encoding="utf-8")
    return [
        node.name
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]


def _beside(folder: Path) -> dict[str, str]:
    """Where torch keeps what it compiles for a script that runs beside a folder.

    Elsewhere it would find graphs of earlier runs, whose kernels of the same names had
    other parts.
    """
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled")}


def in_interpreter(folder: Path, *command: str) -> str:
    """What a script prints that runs beside a folder, where torch is imported."""
    done = forked.python(folder, *command, **_beside(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_new_process(folder: Path, *command: str, interpret: bool = True) -> str:
    """The same where nothing is imported."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": str(int(interpret)),
             "PYTHONPATH": str(ROOT), **_beside(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def said_by(
    script: str,
    folder: Path,
    *words: str,
    run: Callable[..., str] = in_interpreter,
) -> dict[str, str]:
    """What went wrong in each case of a script that runs beside a folder."""
    lines = run(folder, "-m", f"tests.{script}", *words).splitlines()
    return {
        name: ast.literal_eval(text)
        for name, _, text in (line.partition(" ") for line in lines)
    }
