"""`gemmgen bench`: kernels against torch, in one process, interleaved.

Decides what is timed and against whom; the measuring is `measurement`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from gemmgen.base.errors import UsageError, quoted, unknown
from gemmgen.benchmark.contest import call_time, contest
from gemmgen.benchmark.peers import PEERS
from gemmgen.benchmark.results import Benchmark, Roofline
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.measurement import Gpu, environment
from gemmgen.measurement.gpu import architecture, require
from gemmgen.output import folder
from gemmgen.output.job import output_folder
from gemmgen.render.names.parts import file_of, stems
from gemmgen.render.origin import fingerprint
from gemmgen.select.plan import Plan, load
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape
from gemmgen.verification.example import subject

OnDone = Callable[[str], object]

DEFAULT_SHAPES = (
    *(Shape(side, side, side) for side in (1024, 2048, 4096, 8192)),
    *(Shape(m, 4096, 4096) for m in (512, 64, 1)),
)
"""Large, small and thin products, for kernels that no file gives shapes."""


def bench(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    shapes_file: Path | None = None,
    only: str | None = None,
    peers: Sequence[str] | None = None,
    budget_s: float = 0.5,
    cpu_time: bool = False,
    on_done: OnDone | None = None,
) -> Benchmark:
    """Time the built kernels of the specs whose names match the pattern `only`.

    With a shapes file only the kernels that it names are timed.
    """
    contestants = _checked_peers(peers)
    plans = {plan.name: plan for spec in specs for plan in load(spec)}
    wanted = _wanted(plans, shapes_file, only)
    path = output_folder(specs, out)
    _check_built(path, [plans[name] for name in wanted], specs)
    require("bench")
    device, roofline = Gpu(), roofline_of(_target())
    rows, calls = [], []
    for name, its_shapes in wanted.items():
        plan, launcher = plans[name], subject.launcher_in(path, plans[name])
        for shape in its_shapes:
            rows.append(
                contest(plan, launcher, shape, contestants, roofline, device, budget_s)
            )
            if on_done:
                on_done(f"{name} {shape}")
        if cpu_time:
            calls.append(call_time(plan, launcher, device))
    return Benchmark(
        environment(), roofline, device.flushed_bytes, tuple(rows), tuple(calls)
    )


def roofline_of(target: Target) -> Roofline:
    """The rates of `targets.TARGETS`, which are those of one GPU of an architecture."""
    rates = {kind: target.flops(kind) for kind in target.flops_per_clock}
    return Roofline(target.gpu, rates, target.rates.memory_bandwidth)


def _target() -> Target:
    """The newest architecture of the table that is not above this GPU's."""
    here = architecture()
    fitting = [target for target in TARGETS.values() if target.architecture <= here]
    return max(fitting or TARGETS.values(), key=lambda one: one.architecture)


def _checked_peers(peers: Sequence[str] | None) -> tuple[str, ...]:
    for name in peers or ():
        if name not in PEERS:
            raise UsageError(unknown("peer", name, PEERS))
    return tuple(PEERS if peers is None else dict.fromkeys(peers))


def _wanted(
    plans: Mapping[str, Plan], file: Path | None, only: str | None
) -> dict[str, tuple[Shape, ...]]:
    """The shapes of each kernel to time."""
    given = (
        dict.fromkeys(plans, DEFAULT_SHAPES)
        if file is None
        else shapes.read(file, plans)
    )
    wanted = {
        name: its_shapes
        for name, its_shapes in given.items()
        if only is None or fnmatchcase(name, only)
    }
    if not wanted:
        raise UsageError(f"no kernel has a name like {quoted(only or '*')}")
    return wanted


def _check_built(path: Path, plans: Sequence[Plan], specs: Sequence[Path]) -> None:
    """Refuse to time modules that are missing or made from another entry.

    One that was edited by hand is timed: that is how one tries things out.
    """
    found = folder.look(path)
    for plan in plans:
        state = _state(plan, found)
        if state:
            command = " ".join(["gemmgen build", *map(str, specs)])
            raise UsageError(f"{path / plan.name} {state}; run `{command}` first")


def _state(plan: Plan, found: folder.Contents) -> str:
    """What a kernel's files are that may not be timed; nothing if they may."""
    headers = [
        found[name].header if name in found else None
        for name in (file_of(plan, stem) for stem in stems(plan))
    ]
    if None in headers:
        return "is missing"
    entries = {header.entry for header in headers if header is not None}
    return "" if entries == {fingerprint(plan)} else "is not what the spec asks for"
