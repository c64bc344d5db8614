"""What made a file: gemmgen's own sources, its templates and its formatter.

It must not import a template engine or a formatter: it exists so that a build
which changes nothing can know that without them.
"""

import hashlib
from importlib.metadata import version
from pathlib import Path

VERSION = "0.1.0"  # pyproject.toml reads it from here

_PACKAGE = Path(__file__).resolve().parent.parent

RUNTIME_SOURCES = _PACKAGE / "runtime"
"""The modules that are copied into every output folder."""


def template_root() -> Path:
    """The folder of templates."""
    return _root("templates")


def tuning_root() -> Path:
    """The folder of gemmgen's own tuning files."""
    return _root("tuning")


def _root(name: str) -> Path:
    """A folder of data: inside the wheel, or beside gemmgen in a checkout."""
    for folder in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"gemmgen: its {name} are missing from this install")


def black_style() -> str:
    """black's calendar year, such as "26": its style changes only with that."""
    return version("black").partition(".")[0]


def digest() -> str:
    """A hash of all that decides the text of a generated file, but for the spec."""
    total = hashlib.sha256()
    for name in ("black", "jinja2"):
        total.update(f"{name} {version(name)}\0".encode())
    for kind, root, pattern in (
        ("source", _PACKAGE, "*.py"),
        ("template", template_root(), "*.jinja"),
        ("tuning", tuning_root(), "*.yaml"),
    ):
        for path in sorted(root.rglob(pattern)):
            data = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(
                f"{kind} {path.relative_to(root).as_posix()} {data}\0".encode()
            )
    return total.hexdigest()[:16]
