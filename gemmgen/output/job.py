"""What specs ask for: which kernels, in which folder, named after which spec."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from gemmgen.base.errors import SpecError, SpecErrors, UsageError, quoted, unknown
from gemmgen.base.files import blamed, real, shown
from gemmgen.output.folder import PACKAGE
from gemmgen.render.names.parts import RUNTIME
from gemmgen.select import plan
from gemmgen.select.plan import Plan
from gemmgen.select.tuned.tuning_file import beside, kernel_places


@dataclass(frozen=True)
class Kernel:
    """A kernel to be written, the spec, and the name that its files have for that."""

    plan: Plan
    spec: Path
    source: str


@dataclass(frozen=True)
class Job:
    """What the specs ask for: the kernels, and where their files go."""

    folder: Path
    sources: frozenset[str]
    kernels: tuple[Kernel, ...]
    beside: frozenset[Path]

    def lives(self, source: str) -> bool:
        """Whether a spec is still where a file that names it so would have it.

        That is beside the folder or, where specs lie elsewhere, beside those.
        """
        return any((home / source).exists() for home in self.beside)


def asked(specs: Sequence[Path], out: Path | None) -> Job:
    """Plan every kernel of the specs; all mistakes of all specs at once."""
    if not specs:
        raise UsageError("no spec is given")
    target = output_folder(specs, out)
    sources = _sources(specs, target)
    kernels: list[Kernel] = []
    errors: list[SpecError] = []
    for source, spec in sources.items():
        try:
            with blamed("read", spec):
                kernels += [Kernel(one, spec, source) for one in plan.load(spec)]
        except SpecErrors as found:
            errors += found.errors
    if errors:
        raise SpecErrors(errors)
    _check_names(kernels)
    _check_tuned(sources.values(), {kernel.plan.name for kernel in kernels})
    homes = [real(target).parent, *(real(spec).parent for spec in sources.values())]
    return Job(target, frozenset(sources), tuple(kernels), frozenset(homes))


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


def _check_names(kernels: Iterable[Kernel]) -> None:
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


def source_name(spec: Path, out: Path | None = None) -> str:
    """How the files of `spec` in `out` name it: by no path of this machine alone.

    Its path from beside the folder or, when it lies elsewhere, its file name.
    """
    path, root = real(spec), real(output_folder([spec], out)).parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else spec.name


def output_folder(specs: Sequence[Path], out: Path | None) -> Path:
    """Where the kernels of `specs` go: `out`, or `generated` beside the first."""
    return specs[0].parent / "generated" if out is None else out
