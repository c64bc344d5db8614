"""A folder pinned by its descriptor: every write staged, no symbolic link followed.

Its files, and those of the folders in it, go by names such as `a.py`, `below/a.py` and
`below/further/a.py`.
It must not know what they are for.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemmgen.base.errors import UsageError
from gemmgen.base.files import blamed, real, shown

_TEMPORARY = re.compile(r"(?:\w+/){0,2}\.[a-z_][a-z0-9_.]*\.[0-9a-f]{16}\.gemmgen-tmp")
_BELOW = re.compile(r"(?!__pycache__$)[a-z_][a-z0-9_]*")
_DEPTH = 1
"""How many folders a folder in it may have below each other."""
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
    _below: dict[str, int] = field(default_factory=dict)
    """The descriptors of the folders in it that were opened, by name."""

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
        an interruption each file is old or new, and no temporary stays. A folder that
        loses its last file goes too.
        """
        token = secrets.token_hex(8)
        staged = {
            name: _beside(name, f".{_leaf(name)}.{token}.gemmgen-tmp")
            for name, text in steps.items()
            if text is not None
        }
        try:
            for name, temporary in staged.items():
                self._stage(name, temporary, steps[name] or "")
            for name in steps:
                self._settle(name, staged.get(name))
            with blamed("write", self.path):
                for fd in (*self._below.values(), self.fd):
                    os.fsync(fd)
        except BaseException:
            self._discard(staged.values())
            self._prune(staged)
            raise
        self._prune(name for name, text in steps.items() if text is None)

    def sweep(self) -> None:
        """Remove the temporaries of builds that died; only where none can be live."""
        if self.locked:
            self._discard(filter(_TEMPORARY.fullmatch, self._names()))

    def close(self) -> None:
        """Close it, and with that unlock it."""
        for fd in (*self._below.values(), self.fd):
            os.close(fd)

    def _names(self) -> list[str]:
        """The files in it and in the folders in it, sorted."""
        with blamed("read", self.path):
            names = os.listdir(self.fd)
        for below in filter(_BELOW.fullmatch, names[:]):
            names += self._inside(below, _DEPTH)
        return sorted(names)

    def _inside(self, below: str, depth: int) -> list[str]:
        """What is in one of its folders, and so deep in folders of that."""
        names: list[str] = []
        with blamed("read", self.path / below), suppress(FileNotFoundError):
            fd = self._open(_folder(below))
            found = os.stat(_leaf(below), dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                names = [f"{below}/{one}" for one in os.listdir(self._open(below))]
        inner = [name for name in names if depth and _BELOW.fullmatch(_leaf(name))]
        return names + [one for name in inner for one in self._inside(name, depth - 1)]

    def _open(self, below: str, make: bool = False) -> int:
        """The descriptor of a folder in it, or its own if `below` is empty."""
        if not below:
            return self.fd
        if below not in self._below:
            fd, leaf = self._open(_folder(below), make), _leaf(below)
            if make:
                with suppress(FileExistsError):
                    os.mkdir(leaf, dir_fd=fd)
            self._below[below] = os.open(leaf, _OPEN_FOLDER, dir_fd=fd)
        return self._below[below]

    def _read(self, name: str) -> bytes | None:
        fd = os.open(_leaf(name), _OPEN_FILE, dir_fd=self._open(_folder(name)))
        with open(fd, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        return data if len(data) <= MOST_BYTES else None

    def _regular(self, name: str) -> bool:
        fd = self._open(_folder(name))
        found = os.stat(_leaf(name), dir_fd=fd, follow_symlinks=False)
        return stat.S_ISREG(found.st_mode)

    def _stage(self, name: str, temporary: str, text: str) -> None:
        with blamed("write", self.path / name):
            folder = self._open(_folder(name), make=True)
            fd = os.open(_leaf(temporary), _CREATE_FILE, 0o600, dir_fd=folder)
            with open(fd, "wb") as file:
                os.fchmod(fd, 0o644)  # as git would: not the umask's choice
                file.write(text.encode())
                file.flush()
                os.fsync(fd)

    def _settle(self, name: str, temporary: str | None) -> None:
        with blamed("write", self.path / name):
            fd = self._open(_folder(name))
            if temporary is None:
                with suppress(FileNotFoundError):
                    os.unlink(_leaf(name), dir_fd=fd)
            else:
                source, leaf = _leaf(temporary), _leaf(name)
                os.replace(source, leaf, src_dir_fd=fd, dst_dir_fd=fd)

    def _discard(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):  # on a read-only disk they have to stay
                if self._regular(name):
                    os.unlink(_leaf(name), dir_fd=self._open(_folder(name)))

    def _prune(self, names: Iterable[str]) -> None:
        """Remove the folders of these files that hold nothing but Python's cache."""
        emptied = {below for name in names for below in _folders(name)}
        for below in sorted(emptied, reverse=True):  # what is inside goes first
            with suppress(OSError):
                if set(os.listdir(self._open(below))) <= {_CACHE}:
                    self._forget(below)
                    os.rmdir(_leaf(below), dir_fd=self._open(_folder(below)))

    def _forget(self, below: str) -> None:
        """Remove what Python compiled of a folder's files."""
        with suppress(FileNotFoundError):
            cache = os.open(_CACHE, _OPEN_FOLDER, dir_fd=self._open(below))
            try:
                for name in os.listdir(cache):
                    os.unlink(name, dir_fd=cache)
            finally:
                os.close(cache)
            os.rmdir(_CACHE, dir_fd=self._open(below))


_CACHE = "__pycache__"


def _folder(name: str) -> str:
    """The folder of a file, empty for the pinned one."""
    return name.rpartition("/")[0]


def _folders(name: str) -> Iterator[str]:
    """The folder of a file, the folder of that, and so on."""
    while name := _folder(name):
        yield name


def _leaf(name: str) -> str:
    """A file's name in its folder."""
    return name.rpartition("/")[2]


def _beside(name: str, leaf: str) -> str:
    """Another file of the same folder."""
    return "/".join(filter(None, (_folder(name), leaf)))


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
    folder = Folder(path, fd, locked=False)
    try:
        yield replace(folder, locked=_lock(path, fd, write))
    finally:
        folder.close()


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
