"""Kernels in a folder that nobody else sees: to be tried, timed or changed.

Unlike a build it looks at nothing that lies there and holds no lock.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from gemmgen.output.folder import SHARED
from gemmgen.render import render
from gemmgen.render.names.parts import file_of
from gemmgen.select.plan import Plan


@cache
def shared_texts() -> Mapping[str, str]:
    """The files that launchers share, by name."""
    return {name: render.shared(name) for name in SHARED}


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files of these names, and the folders that they lie in."""
    paths = {folder / name: text for name, text in texts.items()}
    for parent in dict.fromkeys(path.parent for path in paths):
        parent.mkdir(parents=True, exist_ok=True)
    for path, text in paths.items():
        path.write_text(text, encoding="utf-8")


def written(folder: Path, plan: Plan, source: str) -> Path:
    """Write a kernel, rendered, with what launchers share; the launcher's file.

    Without the backward, which other kernels are a part of, and the layer.
    """
    plan = replace(plan, grad=False, module=False)
    write(folder, {**shared_texts(), **render.files(plan, source)})
    return folder / file_of(plan)
