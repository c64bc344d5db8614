"""A folder pinned by its descriptor: every write staged, no symbolic link followed.

It must not know what the files are for. An OSError, which a user can cause,
becomes a UsageError that names the path and the reason.
"""

import errno
import fcntl
import os
import re
import secrets
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gemmgen.base.errors import UsageError, quoted

_TEMPORARY = re.compile(r"\.[a-z_][a-z0-9_.]*\.[0-9a-f]{16}\.gemmgen-tmp")
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
MOST_BYTES = 1 << 26
"""Of a file that a build may have written: the lock of 10,000 kernels has far less."""
# NFS cannot lock a folder: there, replacing whole files must be enough.
_CANNOT_LOCK = {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@dataclass(frozen=True)
class Folder:
    """An open folder; `locked`: no other build is at work in it."""

    path: Path
    fd: int
    locked: bool

    def read(self, chosen: Callable[[str], object]) -> dict[str, bytes | None]:
        """The files of the chosen names, sorted; None for what no build has written."""
        found: dict[str, bytes | None] = {}
        for name in filter(chosen, self._names()):
            # What another program removes meanwhile is simply not there.
            with blamed("read", self.path / name), suppress(FileNotFoundError):
                found[name] = self._read(name) if self._regular(name) else None
        return found

    def apply(self, steps: Mapping[str, str | None]) -> None:
        """Replace each file by its text, or remove it for None, in this order.

        All texts are on the disk before the first file changes. On a failure or
        an interruption each file is old or new, and no temporary stays.
        """
        token = secrets.token_hex(8)
        staged = {
            name: f".{name}.{token}.gemmgen-tmp"
            for name, text in steps.items()
            if text is not None
        }
        try:
            for name, temporary in staged.items():
                self._stage(name, temporary, steps[name] or "")
            for name in steps:
                self._settle(name, staged.get(name))
            with blamed("write", self.path):
                os.fsync(self.fd)
        except BaseException:
            self._discard(staged.values())
            raise

    def sweep(self) -> None:
        """Remove the temporaries of builds that died; only where none can be live."""
        if self.locked:
            self._discard(filter(_TEMPORARY.fullmatch, self._names()))

    def _names(self) -> list[str]:
        with blamed("read", self.path):
            return sorted(os.listdir(self.fd))

    def _read(self, name: str) -> bytes | None:
        with open(os.open(name, _OPEN_FILE, dir_fd=self.fd), "rb") as file:
            data = file.read(MOST_BYTES + 1)
        return data if len(data) <= MOST_BYTES else None

    def _regular(self, name: str) -> bool:
        found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        return stat.S_ISREG(found.st_mode)

    def _stage(self, name: str, temporary: str, text: str) -> None:
        with blamed("write", self.path / name):
            fd = os.open(temporary, _CREATE_FILE, 0o600, dir_fd=self.fd)
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o644)  # as git would: not the umask's choice
                file.write(text.encode())
                file.flush()
                os.fsync(fd)

    def _settle(self, name: str, temporary: str | None) -> None:
        with blamed("write", self.path / name):
            if temporary is None:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=self.fd)
            else:
                os.replace(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def _discard(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):  # on a read-only disk they have to stay
                if self._regular(name):
                    os.unlink(name, dir_fd=self.fd)


@contextmanager
def pinned(path: Path, *, write: bool) -> Iterator[Folder | None]:
    """The folder, locked while in use; made with `write`, else None if missing."""
    if path.name in ("", ".."):
        path = real(path)  # else O_NOFOLLOW would say nothing of its last part
    with blamed("open", path):
        fd = _open(path, write)
    if fd is None:
        yield None
        return
    try:
        yield Folder(path, fd, _lock(path, fd, write))
    finally:
        os.close(fd)  # which also unlocks it


def contents(path: Path, most: int) -> bytes:
    """What a regular file holds, or of a larger one a byte more than `most`.

    A pipe or a device could keep a reader waiting, or never end.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        kind = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(most + 1)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM unwind the stack, so that what was staged is cleaned up."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def blamed(verb: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a UsageError: `cannot write 'path': reason`."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"cannot {verb} {shown(path)}: {reason}"
        raise UsageError(message) from None


def shown(path: Path) -> str:
    """A path as messages print it: quoted, on one line."""
    return quoted(str(path), limit=300)


def real(path: Path) -> Path:
    """`path` from the root, its last part not followed if it is a symbolic link."""
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def _open(path: Path, write: bool) -> int | None:
    if path.is_symlink():
        target = shown(Path(os.path.realpath(path)))
        raise UsageError(
            f"output folder {shown(path)} is a symbolic link; name the folder itself: "
            f"{target}"
        )
    try:
        return os.open(path, _OPEN_FOLDER)
    except FileNotFoundError:
        if not write:
            return None
    path.mkdir(parents=True, exist_ok=True)
    return os.open(path, _OPEN_FOLDER)


PATIENCE = 10.0
"""Seconds to wait for one holder of a folder's lock; a build has it for under one."""


def _lock(path: Path, fd: int, write: bool) -> bool:
    """Wait for the folder's lock; False where its file system has none.

    Others may take their turns meanwhile: only who keeps it is not waited for.
    """
    kind = fcntl.LOCK_EX if write else fcntl.LOCK_SH
    holder, since = "", time.monotonic()
    while True:
        with blamed("lock", path):
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno not in _CANNOT_LOCK:
                    raise
                return False
        before, holder = holder, _holder(fd)
        if holder != before:
            since = time.monotonic()
        if time.monotonic() - since > PATIENCE:
            raise UsageError(
                f"cannot lock {shown(path)}: {holder} has had the lock for "
                f"{PATIENCE:.0f} s; wait for it or end it"
            )
        time.sleep(0.02)


def _holder(fd: int) -> str:
    """Who has the lock of an open file, as far as Linux tells."""
    inode = f":{os.fstat(fd).st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.split()
            if words[1] == "FLOCK" and words[5].endswith(inode):
                name = Path(f"/proc/{words[4]}/comm").read_text().strip()
                return f"process {words[4]} ({name})"
    return "another process"


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
