"""Specs → the files of an output folder: written, checked, or just returned.

It decides what must be rendered and what is known to be unchanged. It must not
import the renderer when nothing has to be rendered, nor print.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmgen import folder, generator, header, lockfile, plan, workers
from gemmgen.disk import blamed, real
from gemmgen.errors import SpecError, SpecErrors, UsageError, quoted
from gemmgen.folder import LOCK, PACKAGE, SUPPORT, Change, Contents, State, Wanted
from gemmgen.plan import Plan

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
    """A kernel to be written, and the spec that its file will name."""

    plan: Plan
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
    known = lockfile.vouched(folder.look(job.folder), generator.digest())
    wanted = _wanted(job, known, on_done)
    return Report(job.folder, tuple(folder.publish(job.folder, wanted, force=force)))


def check(
    specs: Sequence[Path], out: Path | None = None, *, on_done: OnDone | None = None
) -> Report:
    """Compare `out` with what `build` would write; write nothing, trust no shortcut."""
    job = _job(specs, out)
    wanted = _wanted(job, {}, on_done, strict=True)
    return Report(job.folder, tuple(folder.inspect(job.folder, wanted)))


def outputs(specs: Sequence[Path], out: Path | None = None) -> dict[str, str]:
    """The text of every file that `build` would write to an empty folder, by name."""
    wanted = _wanted(_job(specs, out), {}, None, strict=True)
    files = {**wanted.files, **wanted.finish({}, {})}
    return {name: files[name] for name in sorted(files)}


def _job(specs: Sequence[Path], out: Path | None) -> _Job:
    if not specs:
        raise UsageError("no spec is given")
    target = real(out or specs[0].parent / "generated")
    paths = {real(spec): spec for spec in specs}
    sources = {path: _source(path, target) for path in paths}
    _once(sources)
    kernels: list[_Kernel] = []
    errors: list[SpecError] = []
    for path, given in paths.items():
        try:
            kernels += [_Kernel(one, sources[path]) for one in _load(given)]
        except SpecErrors as found:
            errors += found.errors
    if errors:
        raise SpecErrors(errors)
    _check_names(kernels)
    return _Job(target, frozenset(sources.values()), tuple(kernels))


def _load(spec: Path) -> tuple[Plan, ...]:
    with blamed("read", spec):
        return plan.load(spec)


def _source(spec: Path, target: Path) -> str:
    """How a file names its spec: never by a path that another machine lacks."""
    if spec.is_relative_to(target.parent):
        return spec.relative_to(target.parent).as_posix()
    return spec.name


def _once(sources: Mapping[Path, str]) -> None:
    """Two specs outside the folder's parent must not be told apart by path alone."""
    seen: set[str] = set()
    for source in sources.values():
        if source in seen:
            raise UsageError(
                f"two specs are named {quoted(source)} and lie outside the output "
                "folder's parent, so their files could not be told apart; rename one"
            )
        seen.add(source)


def _check_names(kernels: Iterable[_Kernel]) -> None:
    owners: dict[str, str] = {PACKAGE: "gemmgen", SUPPORT: "gemmgen"}
    for kernel in kernels:
        other = owners.setdefault(kernel.file, kernel.source)
        if other != kernel.source:
            raise UsageError(
                f"kernel {quoted(kernel.plan.name)} of {quoted(kernel.source)} has a "
                f"name that {quoted(other)} uses already"
            )


def _wanted(
    job: _Job, known: Contents, on_done: OnDone | None, *, strict: bool = False
) -> Wanted:
    """All files of the job; with `strict`, by rendering each one."""
    files = _modules(job.kernels, known, on_done or (lambda name: None))
    files[SUPPORT] = _text(known, SUPPORT) or _support()
    made = generator.digest()

    def finish(found: Contents, others: Contents) -> dict[str, str]:
        kernels = sorted([kernel.file for kernel in job.kernels] + list(others))
        package = None if strict else _unchanged_package(found, kernels, made)
        texts = {**files, PACKAGE: package or _package(kernels)}
        lock = _lock(texts, lockfile.read(found), others, made)
        return {PACKAGE: texts[PACKAGE], LOCK: _lock_text(lock, found, strict)}

    return Wanted(files, job.sources, finish)
