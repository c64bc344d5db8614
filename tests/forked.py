"""Python in Triton's interpreter, without waiting each time for torch to be imported.

Importing torch, its compiler and Triton takes three seconds, longer than most of what
tests run there. One process has imported them, and forks another for each command.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
_ALWAYS = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}


def python(
    folder: Path, *command: str | Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command as Python takes it, in a folder: what it prints, and its exit.

    With `variables` beside those of this process. Of what may be imported, torch and
    Triton have been; this repository comes before all but the command's own folder.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    order: dict[str, Any] = {"folder": str(folder), "command": list(map(str, command))}
    order["variables"] = {**os.environ, **_ALWAYS, **variables}
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        order["files"] = [os.devnull, out.name, err.name]
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        said = [stream.read().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(command, code, *said)


@cache
def _server() -> "subprocess.Popen[str]":
    """The process that forks."""
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.forked import serve; serve()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, **_ALWAYS},
    )  # fmt: skip


def stop() -> None:
    """End the process that forks, if there is one."""
    if _server.cache_info().currsize:
        _server().communicate()
        _server.cache_clear()


def serve() -> None:
    """Answer each line, a command, with the exit code of the process that ran it."""
    import torch._dynamo  # noqa: F401
    import triton.language  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


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
