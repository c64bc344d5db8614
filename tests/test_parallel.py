import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gemmgen.base import parallel
from gemmgen.base.parallel import FEW, run


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_cores", lambda: 2)


def where(job: int) -> tuple[int, int]:
    return job, os.getpid()


def first_alone(job: int) -> int:
    """The process of the first job; the others never end."""
    while job:
        signal.pause()
    return os.getpid()


def only_at_home(home: int) -> str:
    if os.getpid() != home:
        os._exit(9)
    return "done"


def test_many_jobs_go_to_other_processes() -> None:
    jobs = list(range(20))
    done = dict(run(where, jobs))
    assert sorted(done) == jobs
    assert all(job == got for job, (got, _) in done.items())
    assert os.getpid() not in {process for _, process in done.values()}


def test_a_signal_of_the_terminal_does_not_reach_them() -> None:
    assert os.getsid(0) not in dict(run(os.getsid, [0] * 12)).values()


@pytest.mark.parametrize("count", [0, 1, FEW])
def test_few_jobs_stay_here(count: int) -> None:
    done = list(run(where, range(count)))
    assert done == [(job, (job, os.getpid())) for job in range(count)]


def test_an_error_in_a_worker_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        list(run(int, [*"123456789", "x"]))


def test_what_a_killed_worker_left_is_done_here() -> None:
    assert [text for _, text in run(only_at_home, [os.getpid()] * 12)] == ["done"] * 12


def test_leaving_early_ends_the_workers() -> None:
    before = threading.active_count()
    results = run(first_alone, range(20))
    _, process = next(results)
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert threading.active_count() == before


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from gemmgen.base import parallel\n"
        "parallel._cores = lambda: 2\n"
        "print('start')\n"
        "done = dict(parallel.run(str.upper, list('abcdefghij')))\n"
        "print(*sorted(done.values()))\n"
    )
    # A module of this name beside the script must not be what the worker imports.
    (tmp_path / "pickle.py").write_text("open('imported', 'w')\n")
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=script,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (tmp_path / "imported").exists()
    assert done.stdout.splitlines() == ["start", "A B C D E F G H I J"]
