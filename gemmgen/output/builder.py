"""Specs → the files of an output folder: written, checked, or just returned.

It decides what must be rendered and what is known to be unchanged. It must not
import the renderer when nothing has to be rendered, nor print.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen.base import parallel, version
from gemmgen.base.errors import SpecError, SpecErrors, UsageError, quoted, unknown
from gemmgen.base.files import blamed, real, shown
from gemmgen.output import folder, lockfile
from gemmgen.output.folder import (
    LOCK,
    PACKAGE,
    RUNTIME,
    SHARED,
    Change,
    Contents,
    Found,
    State,
    Wanted,
)
from gemmgen.render.meanings import NameTaken
from gemmgen.select import plan
from gemmgen.select.plan import Plan
from gemmgen.select.tuning_file import beside, kernel_places
from gemmgen.spec.parse import parse
from gemmgen.yaml.reader import file_bytes

OnDone = Callable[[str], object]


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
    def clean(self) -> bool:
        return not self.drift


@dataclass(frozen=True)
class _Kernel:
    """A kernel to be written, the spec, and the name that its file has for that."""

    plan: Plan
    spec: Path
    source: str

    @property
    def file(self) -> str:
        return f"{self.plan.name}.py"


@dataclass(frozen=True)
class _Job:
    """What the specs ask for: the kernels, and where their files go."""

    folder: Path
    sources: frozenset[str]
    kernels: tuple[_Kernel, ...]
    beside: frozenset[Path]

    def lives(self, source: str) -> bool:
        """Whether a spec is still where a file that names it so would have it.

        That is beside the folder or, where specs lie elsewhere, beside those.
        """
        return any((home / source).exists() for home in self.beside)


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
    each file's name as it is rendered.
    """
    job = _job(specs, out)
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
    job = _job(specs, out)
    wanted = _wanted(job, on_done, gate=True, only=only)
    return Report(job.folder, tuple(folder.inspect(job.folder, wanted)))


def outputs(specs: Sequence[Path], out: Path | None = None) -> dict[str, str]:
    """The text of every file that `build` would write to an empty folder, by name."""
    wanted = _wanted(_job(specs, out), None, gate=True)
    files = {**wanted.files, **wanted.finish({}, {})}
    return {name: files[name] for name in sorted(files)}


def source_name(spec: Path, out: Path | None = None) -> str:
    """How the files of `spec` in `out` name it: by no path of this machine alone.

    Its path from beside the folder or, when it lies elsewhere, its file name.
    """
    path, root = real(spec), real(output_folder([spec], out)).parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else spec.name


def located(taken: NameTaken, spec: Path) -> list[SpecError]:
    """The names that a kernel cannot have, where its spec says them."""
    with blamed("read", spec):
        kernels = parse(file_bytes(spec), str(spec)).kernels
    kernel = next(one for one in kernels if one.name == taken.kernel)
    return [
        SpecError(kernel.at_name(name), taken.message(name)) for name in taken.names
    ]


def output_folder(specs: Sequence[Path], out: Path | None) -> Path:
    """Where the kernels of `specs` go: `out`, or `generated` beside the first."""
    return specs[0].parent / "generated" if out is None else out


def _job(specs: Sequence[Path], out: Path | None) -> _Job:
    if not specs:
        raise UsageError("no spec is given")
    target = output_folder(specs, out)
    sources = _sources(specs, target)
    kernels: list[_Kernel] = []
    errors: list[SpecError] = []
    for source, spec in sources.items():
        try:
            with blamed("read", spec):
                kernels += [_Kernel(one, spec, source) for one in plan.load(spec)]
        except SpecErrors as found:
            errors += found.errors
    if errors:
        raise SpecErrors(errors)
    _check_names(kernels)
    _check_tuned(sources.values(), {kernel.plan.name for kernel in kernels})
    homes = [real(target).parent, *(real(spec).parent for spec in sources.values())]
    return _Job(target, frozenset(sources), tuple(kernels), frozenset(homes))


def _sources(specs: Sequence[Path], target: Path) -> dict[str, Path]:
    """Each spec, once, by the name that generated files give it."""
    sources: dict[str, Path] = {}
    for spec in specs:
        source = source_name(spec, target)
        if real(sources.setdefault(source, spec)) != real(spec):
            raise UsageError(
                f"two specs are named {quoted(source)} and lie outside "
                f"{shown(real(target).parent)}: their files could not be told apart; "
                "rename one"
            )
    return sources


def _check_names(kernels: Iterable[_Kernel]) -> None:
    owners = dict.fromkeys((Path(PACKAGE).stem, RUNTIME), "gemmgen")
    for kernel in kernels:
        other = owners.setdefault(kernel.plan.name, kernel.source)
        if other != kernel.source:
            raise UsageError(
                f"kernel {quoted(kernel.plan.name)} of {quoted(kernel.source)} has a "
                f"name that {quoted(other)} uses already"
            )


def _check_tuned(specs: Iterable[Path], kernels: Set[str]) -> None:
    """Raise `SpecErrors` for kernels of tuning files that none of the specs has."""
    files = dict.fromkeys(path for spec in specs for path in beside(spec))
    errors = [
        SpecError(place, unknown("kernel", name, sorted(kernels)[:20]) + "; build it "
                  "with its spec, or delete the entry")
        for path in files
        for name, place in kernel_places(path).items()
        if name not in kernels
    ]  # fmt: skip
    if errors:
        raise SpecErrors(errors)


def _wanted(
    job: _Job, on_done: OnDone | None, *, gate: bool, only: str | None = None
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
    files |= {name: _text(known.get(name)) or _shared(name) for name in SHARED}

    def finish(found: Contents, others: Contents) -> dict[str, str]:
        kernels = sorted([kernel.file for kernel in job.kernels] + list(others))
        old = lockfile.read(found)
        package = None
        if not gate and old is not None and old.kernels() == kernels:
            package = _text(lockfile.vouched(found, made).get(PACKAGE))
        package = package or _package(kernels)
        lock = lockfile.made({**files, PACKAGE: package}, others, old, made)
        if gate and old is not None and old.files.keys() == lock.files.keys():
            return {PACKAGE: package, LOCK: found[LOCK].text or ""}
        return {PACKAGE: package, LOCK: lockfile.text(lock)}

    return Wanted(files, job.sources, finish, job.lives)


def _left_out(job: _Job, only: str) -> Contents:
    """The files, as they are, of kernels that a check is not for."""
    files = {one.file for one in job.kernels if not fnmatchcase(one.plan.name, only)}
    present = folder.look(job.folder) if files else {}
    return {name: file for name, file in present.items() if name in files}


def _modules(
    kernels: Sequence[_Kernel], known: Contents, on_done: OnDone | None
) -> dict[str, str]:
    """The text of each kernel's file: the known one, or a new one."""
    texts = {kernel.file: _unchanged(kernel, known) for kernel in kernels}
    stale = [kernel for kernel in kernels if texts[kernel.file] is None]
    errors: list[SpecError] = []
    for kernel, text in parallel.run(_render, stale):
        if isinstance(text, NameTaken):
            errors += located(text, kernel.spec)
            continue
        texts[kernel.file] = text
        if on_done:
            on_done(kernel.file)
    if errors:
        raise SpecErrors(errors)
    return {file: text for file, text in texts.items() if text is not None}


def _unchanged(kernel: _Kernel, known: Contents) -> str | None:
    """The file's present text, when this generator made it from the same entry."""
    file = known.get(kernel.file)
    if file is None or file.header is None or file.header.source != kernel.source:
        return None
    return file.text if file.header.entry == plan.fingerprint(kernel.plan) else None


def _text(file: Found | None) -> str | None:
    return None if file is None else file.text


def _render(kernel: _Kernel) -> str | NameTaken:
    from gemmgen.render import render  # imports black and jinja2: most of a second

    try:
        return render.module(kernel.plan, kernel.source)
    except NameTaken as taken:
        return taken


def _shared(name: str) -> str:
    from gemmgen.render import render

    return render.shared(name)


def _package(kernels: Iterable[str]) -> str:
    from gemmgen.render import render

    return render.package([Path(file).stem for file in kernels])
