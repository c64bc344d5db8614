"""Files that users name: read with care, and their errors in users' words.

It must not know what the files are for. An OSError, which a user can cause,
becomes a UsageError that names the path and the reason.
"""

import errno
import os
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gemmgen.base.errors import UsageError, quoted


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


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
