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
from gemmgen.select.serving import otherwise
from gemmgen.select.tuned import tuning_file
from gemmgen.select.tuned.costs import costed_as
from gemmgen.select.tuned.tile_text import format_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec import shapes
from gemmgen.spec.shapes import Shape
from gemmgen.tuning.fitting.costs import kinds, with_costs
from gemmgen.tuning.growing import Growing
from gemmgen.tuning.layers import ladder, with_pins
from gemmgen.tuning.measured_table import with_unaligned
from gemmgen.tuning.record import measured, rewrite
from gemmgen.tuning.team import Found, Team, gathered
from gemmgen.tuning.trials.trial import Trial

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
    layers_file: Path | None = None,
    only: str | None = None,
    fresh: bool = False,
    on_planned: Callable[[int], object] | None = None,
    on_done: OnDone | None = None,
    on_left_out: OnDone | None = None,
    on_fitted: OnDone | None = None,
) -> Path:
    """Measure the kernels of the specs and return the file that was written.

    It is written after every shape, so an interrupted run goes on where it stopped;
    `fresh` measures the shapes again. `only` is a pattern of kernel names. With layers
    alone nothing else is timed. What is told is as in `gemmgen.tune`. The processes of
    a job share the shapes; the first of them writes the file, and tells.
    """
    require("tune")
    with gathered() as team:
        team.choose_gpu()
        target, made = _target(), environment()
        plans = _plans(specs)
        layers = shapes.read(layers_file, plans, shapes.LAYERS) if layers_file else {}
        wanted = _wanted(_given(plans, shapes_file, layers), plans, target, only)
        path, before = _before(specs[0], Tuning(made["gpu"], target.name, made, {}))
        trials = _Trials(plans, target, layers)
        if team.rank:
            _help(team, trials)
            return path
        tuning = _begun(before, target, made, wanted, layers)
        known = _known(before, made, wanted, fresh)
        file = Growing(path, tuning, known, wanted, on_done)
        if on_planned:
            on_planned(len(file.missing))
        _lead(team, trials, file, on_left_out)
        tuning = with_costs(file.tuning, plans, target, on_fitted)
        _settle(path, with_unaligned(tuning, plans.values(), target), specs, on_fitted)
    return path


def _settle(
    path: Path, tuning: Tuning, specs: Sequence[Path], on_fitted: OnDone | None
) -> None:
    """Write the file, and what layers gain by the choice that follows from it."""
    rewrite(path, tuning)
    if any(one.layers for one in tuning.kernels.values()):
        target = TARGETS[tuning.target]
        rewrite(path, with_pins(tuning, _plans(specs), target, on_fitted))


def _plans(specs: Sequence[Path]) -> dict[str, Plan]:
    return {plan.name: plan for spec in specs for plan in load(spec)}


class _Trials:
    """What times the kernels, one after the other: each with the tiles that it has."""

    def __init__(
        self,
        plans: Mapping[str, Plan],
        target: Target,
        layers: Mapping[str, Sequence[Shape]],
    ) -> None:
        self.plans, self.target, self.device = plans, target, Gpu()
        self.layers = {
            name: {shape.layer for shape in its} for name, its in layers.items()
        }

    def of(self, name: str) -> Trial:
        """That of a kernel."""
        return Trial(self.plans[name], self.target, self.device)

    def race(self, trial: Trial, shape: Shape) -> Mapping[Tile, float]:
        """The times at a shape; of a layer also that of the tile that calls take."""
        name = trial.plan.name
        if shape.layer not in self.layers.get(name, ()):
            return trial.race(shape)
        plan = self.plans[name]
        row = otherwise(plan, shape, self.target)
        return trial.race(shape, [row.tile_for(shape.sizes, plan.product)])


def _lead(
    team: Team, trials: _Trials, file: Growing, on_left_out: OnDone | None
) -> None:
    """Time what is missing, with the others, and decide kernel by kernel."""
    tasks = team.share(file.missing)
    decided = dict(file.tuning.kernels)
    for name in file.wanted:
        trial, plan = trials.of(name), trials.plans[name]
        for shape in (shape for kernel, shape in tasks if kernel == name):
            file.add(Found(name, shape, trials.race(trial, shape), {}))
            file.add(*team.arrived())
        while file.lacks(name):
            team.rest()
            file.add(*team.arrived())
        times, layers = file.times(name), file.layers(name)
        # By the kernels up to this one: what others have sent of later ones is chance.
        decided[name] = Measured((), (), times, layers)
        known = kinds(trials.plans, trials.target, decided)
        costs = costed_as(plan.product) in known
        decided[name] = measured(plan, trials.target, times, layers, costs)
        file.write(name, decided[name])
        _tell(on_left_out, name, {**file.left_out.get(name, {}), **trial.left_out})


def _help(team: Team, trials: _Trials) -> None:
    """Time what the first process leaves to this one."""
    for name, tasks in groupby(team.share(()), itemgetter(0)):
        trial = trials.of(name)
        for _, shape in tasks:
            times = trials.race(trial, shape)
            team.send(Found(name, shape, times, trial.left_out))


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


def _given(
    plans: Mapping[str, Plan],
    file: Path | None,
    layers: Mapping[str, Sequence[Shape]],
) -> dict[str, tuple[Shape, ...]]:
    """The shapes that files name for kernels, or some that models have."""
    if file:
        given = shapes.read(file, plans)
    else:
        given = {} if layers else dict.fromkeys(plans, DEFAULT_SHAPES)
    for name, its in layers.items():
        rungs = (shape for layer in its for shape in ladder(layer))
        given[name] = (*given.get(name, ()), *rungs)
    return given


def _begun(
    before: Tuning,
    target: Target,
    made: Mapping[str, str],
    wanted: Collection[str],
    layers: Mapping[str, Sequence[Shape]],
) -> Tuning:
    """The tuning file as it is now made, with the layers of the wanted kernels."""
    kernels = dict(before.kernels)
    for name, its in layers.items():
        if name in wanted:
            was = kernels.get(name, Measured((), (), {}))
            new = {shape.layer: () for shape in its}
            kernels[name] = replace(was, layers={**new, **was.layers})
    return replace(before, target=target.name, made=made, kernels=kernels)


def _wanted(
    given: Mapping[str, tuple[Shape, ...]],
    plans: Mapping[str, Plan],
    target: Target,
    only: str | None,
) -> dict[str, tuple[Shape, ...]]:
    """The shapes of each kernel whose tiles are free and that is for this GPU."""
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
    before: Tuning,
    made: Mapping[str, str],
    wanted: Mapping[str, Collection[Shape]],
    fresh: bool,
) -> dict[str, dict[Shape, Mapping[Tile, float]]]:
    """What an earlier run on the same GPU and versions measured of these kernels.

    If `fresh`, less what is wanted.
    """
    kept = ("gpu", "driver", "torch", "triton")
    same = all(str(before.made.get(key)) == made[key] for key in kept)
    known: dict[str, dict[Shape, Mapping[Tile, float]]] = {name: {} for name in wanted}
    for name in (name for name in wanted if same and name in before.kernels):
        again = wanted[name] if fresh else ()
        times = before.kernels[name].times.items()
        known[name] = {shape: each for shape, each in times if shape not in again}
    return known
