"""Tricks with files, streams and signals: each a clear error, no traceback, no hang."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmgen.base import files, tree
from gemmgen.base.errors import SpecErrors, UsageError
from gemmgen.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
SPEC = "gemmgen: 1\ntargets: [sm_90]\nkernels: [{name: one, op: linear, dtype: bf16}]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(SPEC)
    return tmp_path


def gemmgen(
    *arguments: str, redirect: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """The command in a shell, where streams can be closed."""
    return subprocess.run(
        [
            "sh",
            "-c",
            f'exec "$0" -m gemmgen "$@" {redirect}',
            sys.executable,
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=300,
    )


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "sparse": sparse,
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["spec.yaml", "tuning/gpu.yaml"])
def test_only_regular_files_of_a_sane_size_are_read(
    home: Path, kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    NO_FILES[kind](path)
    assert main(["build", "spec.yaml"]) == 2
    said = capsys.readouterr().err
    wanted = "more than 1048576 bytes" if kind == "sparse" else "not a regular file"
    assert name in said and wanted in said
    assert not (home / "generated").exists()


def test_not_more_is_read_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * 100)
    assert files.contents(tmp_path / "x", 10) == b"x" * 11


def test_an_empty_name_is_no_folder(home: Path) -> None:
    done = gemmgen("build", "spec.yaml", "-o", "")
    assert done.returncode == 2 and "must name a folder" in done.stderr
    assert sorted(path.name for path in home.iterdir()) == ["spec.yaml"]


@pytest.mark.parametrize(
    ("redirect", "reason"),
    [(">&-", "it is closed"), (">/dev/full", "no space left on device")],
)
@pytest.mark.parametrize("command", [["schema"], ["--help"], ["list", "spec.yaml"]])
def test_what_cannot_be_written_is_an_error(
    home: Path, command: list[str], redirect: str, reason: str
) -> None:
    done = gemmgen(*command, redirect=redirect)
    said = f"gemmgen: cannot write to standard output: {reason}\n"
    assert (done.returncode, done.stderr) == (3, said)


def test_a_closed_stderr_is_no_stdout(home: Path) -> None:
    Path("spec.yaml").write_text("kernels: []")
    done = gemmgen("list", "spec.yaml", redirect="2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_an_encoding_without_our_characters(home: Path) -> None:
    Path("spec.yaml").write_text(SPEC.replace("bf16", "{a: bf16, out: fp32}"))
    done = gemmgen("list", "spec.yaml", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "bf16 \\u2192 fp32" in done.stdout
    assert gemmgen("show", "spec.yaml", "one", PYTHONIOENCODING="ascii").returncode == 0


INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["list", "spec.yaml"]
from gemmgen.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module",
    ["argparse", "gemmgen.cli.main", "gemmgen.cli.commands", "yaml", "pydantic"],
)
def test_control_c_while_modules_are_imported(home: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.replace("MODULE", repr(module))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (130, "gemmgen: interrupted\n")


def test_nothing_is_imported_before_control_c_is_answered() -> None:
    code = "import sys; old = set(sys.modules); import gemmgen.__main__; print(*sorted("
    code += "name for name in set(sys.modules) - old))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == {"gemmgen", "gemmgen.__main__"}


def test_a_lock_that_somebody_keeps_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "PATIENCE", 0.1)
    Path("generated").mkdir()
    held = os.open("generated", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with (
        pytest.raises(UsageError, match=r"cannot lock 'generated': .* has had"),
        tree.pinned(Path("generated"), write=True),
    ):
        pass
    os.close(held)
    with tree.pinned(Path("generated"), write=True) as folder:
        assert folder is not None and folder.locked


def test_a_lock_says_whose_it_is(home: Path) -> None:
    Path("generated").mkdir()
    held = os.open("generated", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    if f":{os.fstat(held).st_ino} " not in Path("/proc/locks").read_text():
        pytest.skip("this file system's locks are not listed")
    assert tree._holder(held).startswith(f"process {os.getpid()} (")
    os.close(held)


def test_a_renamed_spec_takes_its_kernels_along(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = SPEC.replace("]\n", "]\n", 1).replace(
        "kernels: [", "kernels: [{name: two, op: linear, dtype: fp16}, "
    )
    Path("spec.yaml").write_text(two)
    assert main(["build", "spec.yaml"]) == 0
    Path("spec.yaml").unlink()
    Path("new.yaml").write_text(SPEC)
    assert main(["build", "new.yaml"]) == 0
    taken = [path.read_text() for path in Path("generated/one").glob("*.py")]
    assert taken and all('from "new.yaml"' in text for text in taken)
    capsys.readouterr()
    assert main(["build", "--check", "new.yaml"]) == 1
    out = capsys.readouterr().out
    assert "generated/two: without a spec: its spec 'spec.yaml' is not there" in out
    Path("spec.yaml").write_text(two)
    assert main(["build", "--check", "new.yaml"]) == 0


def test_the_kernels_of_a_spec_that_lives_are_not_taken(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "spec.yaml"]) == 0
    Path("new.yaml").write_text(SPEC)
    assert main(["build", "new.yaml"]) == 2
    assert "comes from 'spec.yaml'" in capsys.readouterr().err


@pytest.mark.parametrize("foreign", [False, True])
def test_what_is_refused_is_said_first_and_last(
    home: Path, capsys: pytest.CaptureFixture[str], foreign: bool
) -> None:
    assert main(["build", "spec.yaml"]) == 0
    path = Path("generated/one/tiled.py")
    text = "mine\n" * 900
    path.write_text(text if foreign else path.read_text() + text)
    capsys.readouterr()
    assert main(["build", "spec.yaml"]) == 2
    lines = capsys.readouterr().err.splitlines()
    reason = "gemmgen did not write" if foreign else "edited by hand"
    assert lines[0] == lines[-1] and reason in lines[0]
    assert len(lines) == 2 if foreign else len(lines) < 50
    assert foreign or "more lines: gemmgen build --diff shows all" in lines[-2]


def test_mistakes_of_spec_and_tuning_come_together(
    home: Path,
) -> None:
    from gemmgen.select.plan import load

    Path("tuning").mkdir()
    Path("tuning/gpu.yaml").write_text("gemmgen-tuning: 7\ntarget: sm_90\ngpu: x\n")
    Path("spec.yaml").write_text(SPEC.replace("bf16", "bf61"))
    with pytest.raises(SpecErrors) as caught:
        load(Path("spec.yaml"))
    assert len(caught.value.errors) == 2
