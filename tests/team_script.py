"""Tunes in two processes, as torchrun starts them, with a fake GPU for each.

A line for each case. Runs in a folder of its own.
"""

import contextlib
import io
import os
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gemmgen.cli.main import main
from gemmgen.select.tuned import tuning_file
from gemmgen.spec.shapes import Shape
from gemmgen.tuning import session, team
from tests.cases import case, run_all
from tests.fake_device import FakeDevice
from tests.test_tuning import FILE, LIST, MADE, SPEC, Raced

COMMAND = ["tune", "spec.yaml", "--shapes", "shapes.yaml"]
RACED = ["one 16x512x512", "two 128x512x512"], ["one 64x1024x1024"]
"""What each process times: every other shape."""


class Left(NamedTuple):
    """What is left of a process: its exit code, what it said, what it raced."""

    code: int
    out: str
    err: str
    raced: list[str]


class Logged(Raced):
    """One that is slow, interrupted, or fails, at a shape."""

    at: Mapping[str, Callable[[], None]] = {}
    raced: list[str] = []  # noqa: RUF012 (of one process)

    def race(self, shape: Shape, usual: Any = ()) -> Any:
        self.at.get(str(shape), lambda: None)()
        self.raced.append(f"{self.plan.name} {shape}")
        return super().race(shape, usual)


def process(rank: int, port: int, gpu: tuple[str, str]) -> Left:
    """Tune as one of two processes."""
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
    }  # fmt: skip
    team.choose = lambda number: gpu if number == rank else ("", "")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(COMMAND)
    return Left(code, out.getvalue(), err.getvalue(), Logged.raced)


def both(
    at: Mapping[str, Callable[[], None]] = {},
    gpus: tuple[tuple[str, str], ...] = (("H200", "a"), ("H200", "b")),
) -> list[Left]:
    """What is left of both."""
    Logged.at = at
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    children = []
    for rank, gpu in enumerate(gpus):
        child = os.fork()  # what was imported took seconds
        if not child:
            said = "Left(-1, '', '', [])"
            with contextlib.suppress(BaseException):
                try:
                    said = repr(process(rank, port, gpu))
                except BaseException:
                    said = repr(Left(-1, "", traceback.format_exc(), []))
            Path(f"{rank}.txt").write_text(said)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return [eval(Path(f"{rank}.txt").read_text()) for rank in range(2)]


def times() -> dict[str, list[str]]:
    """The shapes that the file has times of."""
    kernels = tuning_file.read(FILE).kernels
    return {name: [*map(str, one.times)] for name, one in kernels.items()}


def interrupted() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise RuntimeError("the GPU has fallen off the bus")


def anew() -> None:
    shutil.rmtree("tuning", ignore_errors=True)


@case
def shapes_are_shared_and_merged_into_one_file() -> None:
    assert main(COMMAND) == 0
    alone = FILE.read_text()
    Logged.raced.clear()
    for slow in ("16x512x512", "64x1024x1024"):
        anew()
        first, second = both({slow: lambda: time.sleep(1)})
        assert (first.code, second.code) == (0, 0), (first, second)
        assert (first.raced, second.raced) == RACED
        assert FILE.read_text() == alone
        assert first.out == f"{FILE}: written; next: gemmgen build spec.yaml\n"
        assert "3 shapes to time, about 1 min on 16 cores for each of 2" in first.err
        assert (second.out, second.err) == ("", "")
    first, second = both()
    assert (first.code, first.raced, second.raced) == (0, [], []), first
    assert FILE.read_text() == alone


@case
def an_interrupted_job_goes_on_where_it_stopped() -> None:
    """The first process has written what the second had found until then."""
    anew()

    def late() -> None:
        time.sleep(1)
        interrupted()

    first, second = both({"128x512x512": late})
    assert first.code == 130, first
    assert times() == {"one": ["16x512x512", "64x1024x1024"]}
    first, second = both()
    assert (first.code, second.code) == (0, 0)
    assert (first.raced, second.raced) == (RACED[0][1:], [])
    assert times() == {"one": ["16x512x512", "64x1024x1024"], "two": ["128x512x512"]}


@case
def nobody_waits_for_a_process_that_failed() -> None:
    anew()
    first, second = both({"64x1024x1024": interrupted})
    assert (first.code, second.code) == (3, 130), (first, second)
    assert "another process has failed: process 1: KeyboardInterrupt" in first.err
    assert times() == {"one": ["16x512x512"]}
    anew()
    first, second = both({"64x1024x1024": fail})
    assert first.code == 3 and "process 1: the GPU has fallen off" in first.err
    assert "RuntimeError: the GPU has fallen off" in second.err


@case
def each_process_needs_a_gpu_of_its_own() -> None:
    anew()
    for gpus, said in (
        ((("H200", "a"), ("H200", "a")), "processes 0 and 1 have the same one"),
        ((("H200", "a"), ("A100", "b")), "process 1 has an A100, process 0 an H200"),
    ):
        first, second = both(gpus=gpus)
        assert (first.code, second.code) == (3, 3), second
        assert said in first.err, first
        hears, sees = "process 0: tune needs", "cannot reach the processes"
        assert hears in second.err or sees in second.err, second
    assert not FILE.exists()


if __name__ == "__main__":
    for name, value in {
        "require": lambda what: None,
        "architecture": lambda: 90,
        "environment": lambda: dict(MADE),
        "Gpu": FakeDevice,
        "Trial": Logged,
    }.items():
        setattr(session, name, value)
    Path("spec.yaml").write_text(SPEC)
    Path("shapes.yaml").write_text(LIST)
    run_all()
