"""A run of `gemmgen tune`: measures candidate tiles, writes the tuning file.

Decides what is measured and when the file is written; the rest is next door.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from gemmgen.base.errors import EnvironmentMissing, UsageError, quoted
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.measurement import Gpu, environment
from gemmgen.measurement.gpu import architecture, require
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan, load
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.costs import costed_as
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.costs import kinds, with_costs
from gemmgen.tuning.growing import Growing
from gemmgen.tuning.record import measured, rewrite
from gemmgen.tuning.team import Found, Team, gathered
from gemmgen.tuning.trial import Trial

OnDone = Callable[[str], object]

DEFAULT_SHAPES = tuple(
    Shape(m, n, k)
    for m in (1, 16, 64, 256, 1024, 4096)
    for n, k in ((1024, 4096), (4096, 4096), (8192, 2048), (4096, 14336))
)
"""Few and many rows against the layers of common models, where no file says."""


def tune(
    specs: Sequence[Path],
    *,
    shapes_file: Path | None = None,
    only: str | None = None,
    fresh: bool = False,
    on_planned: Callable[[int], object] | None = None,
    on_done: OnDone | None = None,
    on_left_out: OnDone | None = None,
    on_fitted: OnDone | None = None,
) -> Path:
    """Measure the kernels of the specs and return the file that was written.

    It is written after every shape, so an interrupted run goes on where it stopped;
    `fresh` measures the shapes again. `only` is a pattern of kernel names. What is told
    is as in `gemmgen.tune`. The processes of a job share the shapes; the first of them
    writes the file, and tells.
    """
    require("tune")
    with gathered() as team:
        team.choose_gpu()
        target, made = _target(), environment()
        plans = {plan.name: plan for spec in specs for plan in load(spec)}
        wanted = _wanted(plans, target, shapes_file, only)
        path, before = _before(specs[0], Tuning(made["gpu"], target.name, made, {}))
        if team.rank:
            _help(team, plans, target)
            return path
        again = wanted if fresh else {}
        known = {
            name: _known(before, made, name, again.get(name, ())) for name in wanted
        }
        tuning = replace(before, target=target.name, made=made)
        file = Growing(path, tuning, known, wanted, on_done)
        if on_planned:
            on_planned(len(file.missing))
        _lead(team, plans, target, file, on_left_out)
        rewrite(path, with_costs(file.tuning, plans, target, on_fitted))
    return path


def _lead(
    team: Team,
    plans: Mapping[str, Plan],
    target: Target,
    file: Growing,
    on_left_out: OnDone | None,
) -> None:
    """Time what is missing, with the others, and decide kernel by kernel."""
    device = Gpu()
    tasks = team.share(file.missing)
    decided = dict(file.tuning.kernels)
    for name in file.wanted:
        trial = Trial(plans[name], target, device)
        for shape in (shape for kernel, shape in tasks if kernel == name):
            file.add(Found(name, shape, trial.race(shape), {}))
            file.add(*team.arrived())
        while file.lacks(name):
            team.rest()
            file.add(*team.arrived())
        times = file.times(name)
        # By the kernels up to this one: what others have sent of later ones is chance.
        decided[name] = Measured((), (), times)
        costs = costed_as(trial.plan.product) in kinds(plans, target, decided)
        decided[name] = measured(plans[name], target, times, costs)
        file.write(name, decided[name])
        _tell(on_left_out, name, {**file.left_out.get(name, {}), **trial.left_out})


def _help(team: Team, plans: Mapping[str, Plan], target: Target) -> None:
    """Time what the first process leaves to this one."""
    device = Gpu()
    for name, tasks in groupby(team.share(()), itemgetter(0)):
        trial = Trial(plans[name], target, device)
        for _, shape in tasks:
            team.send(Found(name, shape, trial.race(shape), trial.left_out))


def _tell(on_left_out: OnDone | None, name: str, left_out: Mapping[Tile, str]) -> None:
    """Say what was left out of a kernel's trials."""
    for tile, why in left_out.items():
        if on_left_out:
            on_left_out(f"{name}: {format_tile(tile)}: {why}")


def _before(spec: Path, empty: Tuning) -> tuple[Path, Tuning]:
    """The tuning file of this GPU beside a spec, and what it holds already."""
    path = spec.parent / tuning_file.FOLDER / empty.file_name
    return path, tuning_file.read(path) if path.exists() else empty


def _target() -> Target:
    here = architecture()
    for target in TARGETS.values():
        if target.architecture == here:
            return target
    raise EnvironmentMissing(f"tune knows no target like this GPU's, sm_{here}")


def _wanted(
    plans: Mapping[str, Plan], target: Target, file: Path | None, only: str | None
) -> dict[str, tuple[Shape, ...]]:
    """The shapes of each kernel whose tiles are free and that is for this GPU."""
    given = shapes.read(file, plans) if file else dict.fromkeys(plans, DEFAULT_SHAPES)
    wanted = {
        name: its_shapes
        for name, its_shapes in given.items()
        if (only is None or fnmatchcase(name, only))
        and target.name in plans[name].targets
        and plans[name].tiles_text == "auto"
    }
    if not wanted:
        raise UsageError(
            f"no kernel with tiles: auto for {target.name} has a name like "
            f"{quoted(only or '*')}"
        )
    return wanted


def _known(
    before: Tuning, made: Mapping[str, str], name: str, again: Collection[Shape]
) -> dict[Shape, Mapping[Tile, float]]:
    """What an earlier run on the same GPU and versions measured, less some shapes."""
    same = all(
        str(before.made.get(key)) == made[key]
        for key in ("gpu", "driver", "torch", "triton")
    )
    measured = before.kernels.get(name)
    times = measured.times if same and measured else {}
    return {shape: each for shape, each in times.items() if shape not in again}
