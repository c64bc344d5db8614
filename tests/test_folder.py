import errno
import os
import random
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from gemmgen.base.errors import UsageError
from gemmgen.base.header import entry_hash, head, seal
from gemmgen.output.changes import Refused, State
from gemmgen.output.folder import (
    LOCK,
    PACKAGE,
    Contents,
    Wanted,
    inspect,
    look,
    publish,
)

Act = Callable[..., object]


NAMES: dict[str, str] = {}
"""What the kernels of these texts are called."""


def kernel(name: str, value: object = 1, source: str | None = "spec.yaml") -> str:
    text = seal(head(source, name, entry_hash(value)) + f"X = {value!r}\n")
    NAMES[text] = name
    return text


def listing(found: Contents, others: Contents) -> dict[str, str]:
    """A package and a lock that list the kernels of other specs."""
    names = " ".join(sorted(others))
    return {PACKAGE: kernel("__init__", names, None), LOCK: f"{names}\n"}


def wanted(*texts: str, sources: tuple[str, ...] = ("spec.yaml",)) -> Wanted:
    return Wanted({f"{NAMES[text]}.py": text for text in texts}, set(sources))


def states(path: Path, want: Wanted) -> dict[str, State]:
    return {change.name: change.state for change in inspect(path, want)}


def tree(path: Path) -> dict[str, bytes]:
    """What the files of a folder, and of the folders in it, hold."""
    return {
        one.relative_to(path).as_posix(): one.read_bytes()
        for one in path.rglob("*")
        if one.is_file()
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "generated"


A, B = kernel("a"), kernel("b")
A_NEW = kernel("a", 2)
EDITED = A.replace("X = 1", "X = 3")


class TestStates:
    def test_a_missing_folder_misses_every_file(self, out: Path) -> None:
        assert states(out, wanted(A, B)) == dict.fromkeys(
            ["a.py", "b.py"], State.MISSING
        )
        assert not out.exists()

    def test_what_was_published_is_fresh(self, out: Path) -> None:
        found = publish(out, wanted(A, B))
        assert [(c.name, c.state) for c in found] == [
            ("a.py", State.MISSING),
            ("b.py", State.MISSING),
        ]
        assert set(states(out, wanted(A, B)).values()) == {State.FRESH}
        assert tree(out) == {"a.py": A.encode(), "b.py": B.encode()}

    def test_an_outdated_file_is_rewritten(self, out: Path) -> None:
        publish(out, wanted(A))
        assert states(out, wanted(A_NEW)) == {"a.py": State.OUTDATED}
        publish(out, wanted(A_NEW))
        assert (out / "a.py").read_text() == A_NEW

    def test_a_file_left_over_is_removed(self, out: Path) -> None:
        publish(out, wanted(A, B))
        assert states(out, wanted(A))["b.py"] is State.LEFTOVER
        publish(out, wanted(A))
        assert set(tree(out)) == {"a.py"}

    def test_a_shared_file_of_an_older_version_is_left_over(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "_old.py").write_text(kernel("_old", source=None))
        assert states(out, wanted(A))["_old.py"] is State.LEFTOVER

    def test_an_edited_file_is_refused_unless_forced(self, out: Path) -> None:
        publish(out, wanted(A, B))
        (out / "a.py").write_text(EDITED)
        before = tree(out)
        with pytest.raises(Refused) as refused:
            publish(out, wanted(A_NEW, kernel("b", 2), kernel("c")))
        [change] = refused.value.changes
        assert (change.name, change.state) == ("a.py", State.EDITED)
        assert "-X = 3" in change.diff() and "+X = 2" in change.diff()
        message = f"'{out}/a.py': edited by hand; --force overwrites it"
        assert str(refused.value) == message
        assert tree(out) == before
        publish(out, wanted(A_NEW), force=True)
        assert tree(out) == {"a.py": A_NEW.encode()}

    def test_an_edit_back_to_the_wanted_text_is_fresh(self, out: Path) -> None:
        publish(out, wanted(A))
        unsealed = A.replace("X = 1", "X = 1  # as wanted")
        (out / "a.py").write_text(unsealed)
        assert states(out, Wanted({"a.py": unsealed}, {"spec.yaml"})) == {
            "a.py": State.FRESH
        }

    def test_an_edited_file_left_over_is_refused_unless_forced(self, out: Path) -> None:
        publish(out, wanted(A, B))
        (out / "a.py").write_text(EDITED)
        with pytest.raises(Refused, match="no spec asks for it"):
            publish(out, wanted(B))
        assert (out / "a.py").read_text() == EDITED
        publish(out, wanted(B), force=True)
        assert set(tree(out)) == {"b.py"}

    def test_a_merge_conflict_is_an_edit(self, out: Path) -> None:
        publish(out, wanted(A))
        first, rest = A.split("\n", 1)
        (out / "a.py").write_text(f"{first}\n<<<<<<< HEAD\n{rest}")
        assert states(out, wanted(A)) == {"a.py": State.EDITED}

    def test_bytes_that_are_no_text_are_an_edit(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "a.py").write_bytes(A.encode() + b"# \xff\x1b[2J\n")
        [change] = inspect(out, wanted(A))
        assert change.state is State.EDITED
        assert "-# \\udcff\\x1b[2J" in change.diff()

    def test_a_file_of_another_spec_stays(self, out: Path) -> None:
        publish(out, wanted(A))
        other = kernel("z", source="other.yaml")
        publish(out, wanted(other, sources=("other.yaml",)))
        assert tree(out) == {"a.py": A.encode(), "z.py": other.encode()}
        assert states(out, wanted(A)) == {"a.py": State.FRESH}

    def test_an_edited_file_of_another_spec_is_no_concern(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "a.py").write_text(EDITED)
        publish(out, wanted(kernel("z", source="o.yaml"), sources=("o.yaml",)))
        assert (out / "a.py").read_text() == EDITED

    def test_a_name_of_another_spec_is_refused_unless_forced(self, out: Path) -> None:
        publish(out, wanted(A))
        mine = wanted(kernel("a", source="new.yaml"), sources=("new.yaml",))
        with pytest.raises(Refused, match=r"comes from 'spec\.yaml'"):
            publish(out, mine)
        assert (out / "a.py").read_text() == A
        publish(out, mine, force=True)
        assert states(out, mine) == {"a.py": State.FRESH}

    def test_a_copy_under_another_name_is_not_ours(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "mine.py").write_text(EDITED)
        assert states(out, wanted(A)) == {"a.py": State.FRESH}
        assert states(out, wanted(kernel("mine"), A))["mine.py"] is State.FOREIGN

    def test_a_fault_in_a_name_writes_nothing(self, out: Path) -> None:
        for name in (
            "../a.py",
            "A.py",
            "a.py\n",
            "a.txt",
            ".a.py",
            "A/b.py",
            "a/b/c/d.py",
            "a/",
        ):
            with pytest.raises(ValueError, match="no name for a generated file"):
                publish(out, Wanted({name: A}, {"spec.yaml"}))
        assert tree(out) == {}

    def test_a_diff_shows_a_missing_line_end(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "a.py").write_text(A.removesuffix("\n"))
        [change] = inspect(out, wanted(A))
        assert change.state is State.EDITED
        assert "-\\ no newline at end of file\n" in change.diff()

    def test_a_diff_of_a_missing_file_is_all_of_it(self, out: Path) -> None:
        [change] = inspect(out, wanted(A))
        added = change.diff().splitlines()[3:]
        assert added == [f"+{line}" for line in A.splitlines()]


BELOW = kernel("below/a")


class TestBelow:
    """Files of a folder in the folder are as safe as those beside it."""

    def test_they_are_written_rewritten_and_removed(self, out: Path) -> None:
        assert states(out, wanted(A, BELOW))["below/a.py"] is State.MISSING
        publish(out, wanted(A, BELOW))
        assert (out / "below/a.py").read_text() == BELOW
        assert set(states(out, wanted(A, BELOW)).values()) == {State.FRESH}
        changed = wanted(A, kernel("below/a", 2))
        assert states(out, changed)["below/a.py"] is State.OUTDATED
        publish(out, changed)
        assert states(out, wanted(A))["below/a.py"] is State.LEFTOVER
        publish(out, wanted(A))
        assert os.listdir(out) == ["a.py"]

    def test_what_python_compiled_goes_with_the_last_file(self, out: Path) -> None:
        publish(out, wanted(A, BELOW))
        (out / "below/__pycache__").mkdir()
        (out / "below/__pycache__/a.cpython-311.pyc").touch()
        publish(out, wanted(A))
        assert os.listdir(out) == ["a.py"]

    @pytest.mark.parametrize("name", ["mine.py", "notes.txt", "deep"])
    def test_what_is_not_ours_stays(self, out: Path, name: str) -> None:
        publish(out, wanted(A, BELOW))
        own = out / "below" / name
        own.mkdir() if name == "deep" else own.write_text("mine")
        (out / "below/__pycache__").mkdir()
        publish(out, wanted(A))
        assert sorted(os.listdir(out / "below")) == sorted(["__pycache__", name])

    def test_edited_and_foreign_ones_are_refused(self, out: Path) -> None:
        publish(out, wanted(A, BELOW))
        (out / "below/a.py").write_text(BELOW.replace("X = 1", "X = 3"))
        with pytest.raises(Refused, match=r"generated/below/a\.py': edited by hand"):
            publish(out, wanted(A_NEW, BELOW))
        assert (out / "a.py").read_text() == A
        (out / "below/a.py").write_text("mine")
        with pytest.raises(Refused, match="did not write"):
            publish(out, wanted(A_NEW, BELOW), force=True)

    def test_a_copy_in_another_folder_is_not_ours(self, out: Path) -> None:
        publish(out, wanted(A, BELOW))
        (out / "other").mkdir()
        (out / "other/a.py").write_text(BELOW)
        assert set(states(out, wanted(A, BELOW))) == {"a.py", "below/a.py"}

    @pytest.mark.parametrize("kind", ["file", "link"])
    def test_what_is_in_its_place_is_told(
        self, out: Path, tmp_path: Path, kind: str
    ) -> None:
        publish(out, wanted(A))
        (tmp_path / "elsewhere").mkdir()
        if kind == "file":
            (out / "below").write_text("mine")
        else:
            (out / "below").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match=r"cannot write '.*/below/a\.py': "):
            publish(out, wanted(A_NEW, BELOW))
        assert (out / "a.py").read_text() == A
        assert sorted(os.listdir(out)) == ["a.py", "below"]
        assert os.listdir(tmp_path / "elsewhere") == []

    def test_a_failure_leaves_no_new_folder(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(out, wanted(A))
        before = tree(out)

        def full(*_: object, **__: object) -> NoReturn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match="no space left"):
            publish(out, wanted(A_NEW, BELOW))
        assert tree(out) == before
        assert os.listdir(out) == ["a.py"]

    def test_temporaries_of_dead_builds_are_swept(self, out: Path) -> None:
        publish(out, wanted(A, BELOW))
        (out / "below/.a.py.0123456789abcdef.gemmgen-tmp").touch()
        (out / "below/.a.py.gemmgen-tmp").touch()
        publish(out, wanted(A, BELOW))
        assert sorted(os.listdir(out / "below")) == [".a.py.gemmgen-tmp", "a.py"]


class TestForeign:
    """Whatever gemmgen did not write is left alone, even by force."""

    @staticmethod
    def symlink(path: Path) -> None:
        path.with_name("elsewhere.txt").write_text(A)
        path.symlink_to("elsewhere.txt")

    @staticmethod
    def dangling(path: Path) -> None:
        path.symlink_to(path.parent.parent / "outside.py")

    makers: Mapping[str, Act] = {
        "no header": lambda path: path.write_text("x = 1\n"),
        "empty": lambda path: path.touch(),
        "binary": lambda path: path.write_bytes(b"\xff\0"),
        "folder": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "symlink": symlink,
        "dangling": dangling,
    }

    @pytest.mark.parametrize("kind", makers)
    @pytest.mark.parametrize("name", ["a.py", PACKAGE, LOCK])
    @pytest.mark.parametrize("force", [False, True])
    def test_it_is_refused(self, out: Path, kind: str, name: str, force: bool) -> None:
        if name == LOCK and kind in ("no header", "empty", "binary"):
            pytest.skip("any text is a corrupt lock, which is replaced")
        out.mkdir()
        self.makers[kind](out / name)
        before = sorted(os.listdir(out)), os.lstat(out / name)
        want = Wanted({"a.py": A, "b.py": B}, {"spec.yaml"}, listing)
        assert states(out, want)[name] is State.FOREIGN
        with pytest.raises(Refused, match="did not write this file"):
            publish(out, want, force=force)
        after = sorted(os.listdir(out)), os.lstat(out / name)
        assert after[0] == before[0] and after[1].st_ino == before[1].st_ino
        assert not (out.parent / "outside.py").exists()

    def test_it_does_not_matter_where_nothing_is_wanted(self, out: Path) -> None:
        out.mkdir()
        for number, make in enumerate(self.makers.values()):
            make(out / f"x{number}.py")
        before = sorted(os.listdir(out))
        publish(out, wanted(A))
        assert sorted(os.listdir(out)) == sorted([*before, "a.py"])

    def test_all_that_is_refused_is_listed(self, out: Path) -> None:
        publish(out, wanted(A, B))
        (out / "a.py").write_text(EDITED)
        (out / "c.py").touch()
        with pytest.raises(Refused) as refused:
            publish(out, wanted(A, B, kernel("c")))
        lines = str(refused.value).splitlines()
        assert [line.split(":")[0] for line in lines] == [
            f"'{out}/a.py'",
            f"'{out}/c.py'",
        ]


class TestFolder:
    def test_it_is_made_with_its_parents(self, tmp_path: Path) -> None:
        publish(tmp_path / "x" / "y", wanted(A))
        assert (tmp_path / "x/y/a.py").read_text() == A

    @pytest.mark.parametrize("act", [inspect, publish])
    @pytest.mark.parametrize("there", [True, False])
    def test_a_symbolic_link_is_refused(
        self, tmp_path: Path, out: Path, act: Act, there: bool
    ) -> None:
        real = tmp_path / "real"
        if there:
            real.mkdir()
        out.symlink_to(real)
        with pytest.raises(UsageError, match=f"symbolic link; .* '{real}'$"):
            act(out, wanted(A))
        assert not there or not tree(real)

    def test_a_link_above_it_is_followed(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        publish(tmp_path / "link" / "generated", wanted(A))
        assert (tmp_path / "real/generated/a.py").exists()

    @pytest.mark.parametrize("name", [".", "../generated", "sub/.."])
    def test_it_may_be_named_by_dots(
        self, out: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (out / "sub").mkdir(parents=True)
        monkeypatch.chdir(out)
        publish(Path(name), wanted(A))
        assert (out / "a.py").exists()

    @pytest.mark.parametrize("act", [inspect, publish])
    @pytest.mark.parametrize("below", ["", "deeper", "deeper/still"])
    def test_a_file_in_its_place(self, out: Path, act: Act, below: str) -> None:
        out.write_text("mine")
        with pytest.raises(UsageError, match=r"cannot open '.*generated.*': ") as error:
            act(out / below, wanted(A))
        assert "\n" not in str(error.value)
        assert out.read_text() == "mine"

    def test_a_folder_that_cannot_be_made(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Path, "mkdir", failing(errno.EACCES))
        with pytest.raises(UsageError, match=r"cannot open '.*': permission denied"):
            publish(out, wanted(A))


def failing(code: int) -> Act:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


def after(calls: int, real: Act, act: Act) -> Act:
    """`real` for so many calls, then `act`."""
    left = iter(range(calls))

    def call(*args: object, **kwargs: object) -> object:
        return real(*args, **kwargs) if next(left, None) is not None else act()

    return call


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


OLD = [kernel(name) for name in "abc"]
NEW = [kernel(name, 2) for name in "abcd"]


def assert_old_or_new(out: Path) -> None:
    """No temporaries and no torn file: each is old, new, or not there yet."""
    allowed = {text.encode() for text in (*OLD, *NEW)}
    files = tree(out)
    assert set(files) <= {"a.py", "b.py", "c.py", "d.py"}
    assert set(files) >= {"a.py", "b.py", "c.py"}
    assert set(files.values()) <= allowed


class TestFailure:
    @pytest.mark.parametrize("calls", range(5))
    @pytest.mark.parametrize("name", ["fsync", "replace"])
    @pytest.mark.parametrize(
        "code, reason",
        [
            (errno.ENOSPC, "no space left on device"),
            (errno.EROFS, "read-only file system"),
            (errno.EACCES, "permission denied"),
        ],
    )
    def test_an_error_of_the_disk_is_one_line(
        self,
        out: Path,
        monkeypatch: pytest.MonkeyPatch,
        calls: int,
        name: str,
        code: int,
        reason: str,
    ) -> None:
        publish(out, wanted(*OLD))
        with monkeypatch.context() as patch:
            patch.setattr(os, name, after(calls, getattr(os, name), failing(code)))
            if (calls, name) == (4, "replace"):
                publish(out, wanted(*NEW))
                return
            with pytest.raises(UsageError) as error:
                publish(out, wanted(*NEW))
        folder = calls == 4
        path = out if folder else out / f"{'abcd'[calls]}.py"
        assert str(error.value) == f"cannot write '{path}': {reason}"
        assert_old_or_new(out)
        if name == "fsync" and not folder:
            assert tree(out) == {f"{NAMES[t]}.py": t.encode() for t in OLD}
        publish(out, wanted(*NEW))
        assert set(states(out, wanted(*NEW)).values()) == {State.FRESH}

    @pytest.mark.parametrize("calls", range(4))
    @pytest.mark.parametrize("name", ["open", "fsync", "replace"])
    @pytest.mark.parametrize("signalled", [interrupt, terminate])
    def test_an_interruption_leaves_no_temporaries(
        self,
        out: Path,
        monkeypatch: pytest.MonkeyPatch,
        calls: int,
        name: str,
        signalled: Act,
    ) -> None:
        publish(out, wanted(*OLD))
        before = 4 if name == "open" else 0  # the folder and what lies in it
        act = after(before + calls, getattr(os, name), signalled)
        with monkeypatch.context() as patch:
            patch.setattr(os, name, act)
            with pytest.raises((KeyboardInterrupt, SystemExit)) as error:
                publish(out, wanted(*NEW))
        assert_old_or_new(out)
        if signalled is terminate:
            assert isinstance(error.value, SystemExit) and error.value.code == 143
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        publish(out, wanted(*NEW))
        assert set(states(out, wanted(*NEW)).values()) == {State.FRESH}

    def test_a_fault_of_ours_stays_a_traceback(self, out: Path) -> None:
        def broken(found: Contents, others: Contents) -> dict[str, str]:
            raise OSError("a template is missing")

        with pytest.raises(OSError, match="a template is missing"):
            publish(out, Wanted({"a.py": A}, {"spec.yaml"}, broken))

    def test_a_handler_of_the_caller_stays(self, out: Path) -> None:
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            publish(out, wanted(A))
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        finally:
            signal.signal(signal.SIGTERM, before)


class TestWriting:
    def test_unchanged_files_are_not_touched(self, out: Path) -> None:
        want = Wanted({"a.py": A, "b.py": B}, {"spec.yaml"}, listing)
        publish(out, want)
        before = {
            p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in out.iterdir()
        }
        publish(out, want)
        publish(out, Wanted({**want.files, "c.py": kernel("c")}, want.sources, listing))
        after = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in out.iterdir()}
        after.pop("c.py")
        assert after == before

    def test_the_mode_does_not_depend_on_the_umask(self, out: Path) -> None:
        before = os.umask(0o077)
        try:
            publish(out, wanted(A))
        finally:
            os.umask(before)
        assert stat.S_IMODE((out / "a.py").stat().st_mode) == 0o644

    def test_nothing_else_is_left_in_the_folder(self, out: Path) -> None:
        publish(out, Wanted({"a.py": A}, {"spec.yaml"}, listing))
        assert sorted(os.listdir(out)) == [PACKAGE, "a.py", LOCK]

    def test_temporaries_of_dead_builds_are_swept(self, out: Path) -> None:
        publish(out, wanted(A))
        dead = out / f".a.py.{'0' * 16}.gemmgen-tmp"
        kept = [out / name for name in (".a.py.swp", "x.gemmgen-tmp", ".gemmgen-tmp")]
        for path in (dead, *kept):
            path.write_text("half")
        linked = out / f".b.py.{'0' * 16}.gemmgen-tmp"
        linked.symlink_to("a.py")
        publish(out, wanted(A))
        assert not dead.exists()
        assert linked.is_symlink() and all(path.exists() for path in kept)

    def test_a_refusal_sweeps_nothing(self, out: Path) -> None:
        publish(out, wanted(A))
        (out / "a.py").write_text(EDITED)
        dead = out / f".a.py.{'0' * 16}.gemmgen-tmp"
        dead.touch()
        with pytest.raises(Refused):
            publish(out, wanted(A))
        assert dead.exists()

    def test_the_order_keeps_the_package_importable(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(out, Wanted({"a.py": A, "b.py": B}, {"spec.yaml"}, listing))
        done: list[str] = []
        for name in ("replace", "unlink"):
            real = getattr(os, name)

            def note(*args: str, real: Act = real, **kwargs: int) -> object:
                done.append(args[-1])
                return real(*args, **kwargs)

            monkeypatch.setattr(os, name, note)

        def finish(found: Contents, others: Contents) -> dict[str, str]:
            return {PACKAGE: kernel("__init__", "new", None), LOCK: "new\n"}

        files = {"c.py": kernel("c"), "a.py": A_NEW}
        publish(out, Wanted(files, {"spec.yaml"}, finish))
        assert done == ["a.py", "c.py", PACKAGE, "b.py", LOCK]

    def test_what_depends_on_others_sees_them(self, out: Path) -> None:
        publish(out, wanted(A, B))
        (out / "b.py").write_text(B + "# edited\n")
        (out / "mine.py").write_text("x = 1\n")
        other = kernel("z", source="o.yaml")
        publish(out, Wanted({"z.py": other}, {"o.yaml"}, listing))
        assert (out / LOCK).read_text() == "a.py b.py\n"

    def test_a_corrupt_lock_is_replaced(self, out: Path) -> None:
        want = Wanted({"a.py": A}, {"spec.yaml"}, listing)
        publish(out, want)
        (out / LOCK).write_bytes(b"<<<<<<< \xff")
        assert states(out, want)[LOCK] is State.OUTDATED
        publish(out, want)
        assert set(states(out, want).values()) == {State.FRESH}

    def test_without_locks_nothing_is_swept(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out.mkdir()
        maybe_live = out / f".a.py.{'0' * 16}.gemmgen-tmp"
        maybe_live.touch()
        monkeypatch.setattr("fcntl.flock", failing(errno.EBADF))
        publish(out, wanted(A))
        assert (out / "a.py").exists() and maybe_live.exists()

    def test_a_lock_that_fails_is_an_error(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("fcntl.flock", failing(errno.EIO))
        with pytest.raises(UsageError, match="cannot lock"):
            publish(out, wanted(A))

    def test_a_file_that_vanishes_is_not_there(
        self, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(out, wanted(A))
        monkeypatch.setattr(os, "listdir", lambda fd: ["a.py", "gone.py"])
        assert list(look(out)) == ["a.py"]


def forked(act: Callable[[], None]) -> int:
    """Run `act` in a child process, which never returns here; its process id."""
    child = os.fork()
    if child:
        return child
    try:
        act()
    finally:
        os._exit(1)


def standing(out: Path) -> tuple[dict[str, str], int]:
    """The texts that readers see, and how many temporaries lie beside them."""
    files = {name: data.decode() for name, data in tree(out).items()}
    shown = {n: text for n, text in files.items() if not Path(n).name.startswith(".")}
    return shown, len(files) - len(shown)


def counted(act: Callable[[], None], last: int = 0) -> int:
    """How many functions of C `act` calls; at the `last` one the process is killed."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "c_call"
        if calls == last > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)
    act()
    sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_build_tears_nothing(out: Path, kills: int) -> None:
    """Builds that each rewrite 12 files, killed at moments all over the work."""
    names = [f"k{number}" for number in range(8)] + [f"below/k{n}" for n in range(4)]
    old, new = (wanted(*(kernel(n, i * 1000) for n in names)) for i in (1, 2))

    def churn() -> None:
        publish(out, new)
        publish(out, old)

    publish(out, old)
    whole = counted(churn)
    staged = mixed = 0
    for kill in range(kills):
        child = forked(partial(counted, churn, 1 + kill * whole // kills))
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        files, temporaries = standing(out)
        assert set(files) == set(old.files)
        assert all(text in (old.files[n], new.files[n]) for n, text in files.items())
        # What is not as wanted is reported, file by file, and the next build mends it.
        reported = {n for n, s in states(out, old).items() if s is not State.FRESH}
        assert reported == {n for n, text in files.items() if text != old.files[n]}
        staged += bool(temporaries)
        mixed += 0 < len(reported) < len(files)
        publish(out, old)
        assert tree(out) == {name: text.encode() for name, text in old.files.items()}
    assert staged and mixed  # else no kill was in the midst of the work


@pytest.mark.slow
def test_builders_at_once_and_killed_tear_nothing(out: Path) -> None:
    """Six builders of one folder, 34 times: each killed, in any order."""
    sources = [f"spec{number}.yaml" for number in range(6)]
    chance = random.Random(11)

    def wants(source: str, value: int) -> Wanted:
        stem = source.partition(".")[0]
        names = (f"{stem}_0", f"{stem}_1", f"{stem}/a", f"{stem}/b")
        texts = (kernel(name, value, source) for name in names)
        return wanted(*texts, sources=(source,))

    def churn(source: str) -> None:
        while True:
            publish(out, wants(source, 1))
            publish(out, wants(source, 2))

    whole = {value: [wants(source, value) for source in sources] for value in (1, 2)}
    texts = {
        v: {k: t for w in ws for k, t in w.files.items()} for v, ws in whole.items()
    }
    for _ in range(34):
        children = [forked(partial(churn, source)) for source in sources]
        chance.shuffle(children)
        for child in children:
            time.sleep(chance.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
        assert {os.waitpid(child, 0)[1] for child in children} == {signal.SIGKILL}
        files, _ = standing(out)
        assert all(text in (texts[1][n], texts[2][n]) for n, text in files.items())
        for want in whole[1]:
            publish(out, want)
        assert tree(out) == {name: text.encode() for name, text in texts[1].items()}
        assert all(set(states(out, w).values()) == {State.FRESH} for w in whole[1])


def test_builders_at_once_end_with_all_kernels(out: Path) -> None:
    sources = [f"spec{number}.yaml" for number in range(6)]

    def build(source: str) -> None:
        stem = source.partition(".")[0]
        files = {f"{stem}_{i}.py": kernel(f"{stem}_{i}", i, source) for i in range(5)}

        def finish(found: Contents, others: Contents) -> dict[str, str]:
            return {LOCK: "\n".join(sorted([*files, *others])) + "\n"}

        publish(out, Wanted(files, {source}, finish))
        os._exit(0)

    children = [forked(partial(build, source)) for source in sources]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    names = sorted(f"spec{i}_{j}.py" for i in range(6) for j in range(5))
    assert sorted(tree(out)) == sorted([LOCK, *names])
    assert (out / LOCK).read_text().split() == names
