"""Specs → the files of an output folder: written, checked, or just returned.

It decides what must be rendered and what is known to be unchanged. It must not
import the renderer when nothing has to be rendered, nor print.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen.base import parallel, version
from gemmgen.base.errors import SpecError, SpecErrors, UsageError, quoted
from gemmgen.base.files import blamed
from gemmgen.base.names import class_name
from gemmgen.output import folder, lockfile
from gemmgen.output.changes import Change, State, by_place
from gemmgen.output.folder import LOCK, PACKAGE, Contents, Found, Wanted, shared_by
from gemmgen.output.job import Job, Kernel, asked
from gemmgen.render import origin
from gemmgen.render.names.meanings import NameTaken
from gemmgen.render.names.parts import (
    EPILOGUE,
    GRAD_EPILOGUE,
    LAUNCHER,
    MODULE,
    always,
    file_of,
    home,
    is_launcher,
    is_layer,
    parts_of,
)
from gemmgen.spec.parse import parse
from gemmgen.yaml.reader import file_bytes

OnDone = Callable[[str], object]
_BESIDE = re.compile(r"^from \.(\w+) import ", re.MULTILINE)
"""What a launcher takes from the files beside it."""


@dataclass(frozen=True)
class Report:
    """What a build found (and mended) or a check found, file by file, sorted."""

    folder: Path
    changes: tuple[Change, ...]

    @property
    def drift(self) -> tuple[Change, ...]:
        """The files that were not as they should be."""
        return tuple(c for c in self.changes if c.state is not State.FRESH)

    @property
    def places(self) -> tuple[Change, ...]:
        """The same, a folder of files that are all in one state as one."""
        told = by_place(self.changes)
        return tuple(one for one in told if one.state is not State.FRESH)

    @property
    def clean(self) -> bool:
        return not self.drift


def build(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    force: bool = False,
    on_done: OnDone | None = None,
) -> Report:
    """Write the kernels of `specs` to `out` (default: `generated` beside the first).

    Unchanged files are not touched, and nothing is written on an error: SpecErrors,
    UsageError, or Refused for files that may not be overwritten. `on_done` is told
    each kernel's name as it is rendered.
    """
    job = asked(specs, out)
    wanted = _wanted(job, on_done, gate=False)
    return Report(job.folder, tuple(folder.publish(job.folder, wanted, force=force)))


def check(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    only: str | None = None,
    on_done: OnDone | None = None,
) -> Report:
    """Compare `out` with what `build` would write; write nothing, trust no shortcut.

    Kernels of names that the pattern `only` leaves out may be taken as they are.
    """
    job = asked(specs, out)
    wanted = _wanted(job, on_done, gate=True, only=only)
    return Report(job.folder, tuple(folder.inspect(job.folder, wanted)))


def outputs(specs: Sequence[Path], out: Path | None = None) -> dict[str, str]:
    """The text of every file that `build` would write to an empty folder, by name."""
    wanted = _wanted(asked(specs, out), None, gate=True)
    files = {**wanted.files, **wanted.finish({}, {})}
    return {name: files[name] for name in sorted(files)}


def located(taken: NameTaken, spec: Path) -> list[SpecError]:
    """The names that a kernel cannot have, where its spec says them."""
    with blamed("read", spec):
        kernels = parse(file_bytes(spec), str(spec)).kernels
    kernel = next(one for one in kernels if one.name == taken.kernel)
    return [
        SpecError(kernel.at_name(name), taken.message(name)) for name in taken.names
    ]


def _wanted(
    job: Job, on_done: OnDone | None, *, gate: bool, only: str | None = None
) -> Wanted:
    """All files of the job, rendered where they are not known to be unchanged.

    A gate knows nothing of the kernels it is for, `only` or all, and does not mind
    which generator wrote what is right.
    """
    made = version.digest()
    if gate:
        known = _left_out(job, only or "*")
    else:
        known = lockfile.vouched(folder.look(job.folder), made)
    files = _modules(job.kernels, known, on_done)

    def finish(found: Contents, others: Contents) -> dict[str, str]:
        every = files | {name: one.text or "" for name, one in others.items()}
        shared = {
            name: _text(known.get(name)) or _shared(name)
            for name in shared_by(every.values())
        }
        kernels = sorted({home(name) for name in filter(is_launcher, every)})
        layers = sorted({home(name) for name in filter(is_layer, every)})
        _check_classes(layers)
        old = lockfile.read(found)
        package = None
        if not gate and old is not None and old.exported() == (kernels, layers):
            package = _text(lockfile.vouched(found, made).get(PACKAGE))
        package = package or _package(kernels, layers)
        texts = {**shared, PACKAGE: package}
        lock = lockfile.made({**files, **texts}, others, old, made)
        if gate and old is not None and old.files.keys() == lock.files.keys():
            return {**texts, LOCK: found[LOCK].text or ""}
        return {**texts, LOCK: lockfile.text(lock)}

    return Wanted(files, job.sources, finish, job.lives)


def _check_classes(layers: Sequence[str]) -> None:
    """Raise `UsageError` where kernels, of several specs too, have one class."""
    owners: dict[str, str] = {}
    for kernel in layers:
        name = class_name(kernel)
        if owners.setdefault(name, kernel) != kernel:
            both = f"{quoted(owners[name])} and {quoted(kernel)}"
            raise UsageError(f"the modules of {both} are both named {name}; rename one")


def _left_out(job: Job, only: str) -> Contents:
    """The files, as they are, of kernels that a check is not for."""
    plans = [kernel.plan for kernel in job.kernels]
    left = {one.folder for one in plans if not fnmatchcase(one.name, only)}
    present = folder.look(job.folder) if left else {}
    return {
        name: file
        for name, file in present.items()
        if file.kernel and name.rpartition("/")[0] in left
    }


def _modules(
    kernels: Sequence[Kernel], known: Contents, on_done: OnDone | None
) -> dict[str, str]:
    """The text of each kernel's files: the known ones, or new ones."""
    texts = {kernel.plan.name: _unchanged(kernel, known) for kernel in kernels}
    stale = [kernel for kernel in kernels if not texts[kernel.plan.name]]
    errors: list[SpecError] = []
    for kernel, made in parallel.run(_render, stale):
        if isinstance(made, NameTaken):
            errors += located(made, kernel.spec)
            continue
        texts[kernel.plan.name] = made
        if on_done:
            on_done(kernel.plan.name)
    if errors:
        raise SpecErrors(errors)
    return {name: text for files in texts.values() for name, text in files.items()}


def _unchanged(kernel: Kernel, known: Contents) -> dict[str, str]:
    """The present texts of its files, when this generator made all from this entry.

    Which these are its launcher says: to plan them again would take a while.
    """
    launcher = known.get(file_of(kernel.plan), Found(""))
    beside = _BESIDE.findall(launcher.text or "")
    entry, found = origin.fingerprint(kernel.plan), dict[str, str]()
    beside = [stem for stem in beside if stem not in parts_of(kernel.plan)]
    unnamed = (EPILOGUE, GRAD_EPILOGUE, MODULE)  # of which the launcher takes nothing
    own = [one for one in unnamed if one in always(kernel.plan)]
    for stem in (LAUNCHER, *beside, *own):
        name = file_of(kernel.plan, stem)
        file = known.get(name)
        if file is None or file.header is None or file.text is None:
            return {}
        if (file.header.source, file.header.entry) != (kernel.source, entry):
            return {}
        found[name] = file.text
    return found


def _text(file: Found | None) -> str | None:
    return None if file is None else file.text


def _render(kernel: Kernel) -> dict[str, str] | NameTaken:
    from gemmgen.render import render  # imports black and jinja2: most of a second

    try:
        return render.files(kernel.plan, kernel.source)
    except NameTaken as taken:
        return taken


def _shared(name: str) -> str:
    from gemmgen.render import render

    return render.shared(name)


def _package(kernels: Sequence[str], layers: Sequence[str]) -> str:
    from gemmgen.render import render

    return render.package(kernels, layers)
