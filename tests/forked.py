"""Python commands that need not wait until modules are imported: forked from what has.

Importing torch, its compiler and Triton takes three seconds, longer than most of what
tests run there. One process has imported them, and forks another for each command.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
INTERPRETER = ("torch._dynamo", "triton.language")
"""For kernels in Triton's interpreter."""
COMMAND_LINE = ("gemmgen.cli.main", "gemmgen.cli.commands")


@dataclass(frozen=True)
class Done:
    """How a command ended: exit code, CPU seconds, most memory, what it said."""

    returncode: int
    seconds: float
    bytes: int
    stdout: str
    stderr: str


def python(
    folder: Path,
    *command: str | Path,
    modules: Sequence[str] = INTERPRETER,
    **variables: str,
) -> Done:
    """Run a command as Python takes it, in a folder.

    With `variables` beside those of this process. Of what may be imported, `modules`
    have been; this repository comes before all but the command's own folder.
    """
    server = _server(*modules)
    assert server.stdin is not None and server.stdout is not None
    order: dict[str, Any] = {"folder": str(folder), "command": list(map(str, command))}
    order["variables"] = {**os.environ, **_ALWAYS, **variables}
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        order["files"] = [os.devnull, out.name, err.name]
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        ended = json.loads(server.stdout.readline())
        return Done(*ended, *(stream.read().decode() for stream in (out, err)))


_ALWAYS = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
_started: list["subprocess.Popen[str]"] = []


@cache
def _server(*modules: str) -> "subprocess.Popen[str]":
    """The process that forks, with these modules."""
    code = "import sys; from tests.forked import serve; serve(*sys.argv[1:])"
    server = subprocess.Popen(
        [sys.executable, "-c", code, *modules],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **_ALWAYS},
    )  # fmt: skip
    _started.append(server)
    return server


def stop() -> None:
    """End the processes that fork."""
    while _started:
        _started.pop().communicate()
    _server.cache_clear()


def serve(*modules: str) -> None:
    """Answer each line, a command, with how the process ended that ran it."""
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(**json.loads(line))
        _, status, used = os.wait4(child, 0)
        seconds, code = used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)
        print(json.dumps([code, seconds, used.ru_maxrss * 1024]), flush=True)


def _become(
    folder: str, command: Sequence[str], variables: dict[str, str], files: Sequence[str]
) -> NoReturn:
    """Be the process of a command, as far as its code can tell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, name in enumerate(files):
        os.dup2(os.open(name, os.O_RDWR), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as it runs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    code = 1
    try:
        _run(*command)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(first: str, *rest: str) -> None:
    """`-c` and code, `-m` and a module, or a script; then its arguments."""
    if first == "-c":
        sys.argv = [first, *rest[1:]]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv = list(rest)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")
