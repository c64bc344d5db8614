"""What gemmgen offers to Python: the commands as functions.

They raise `SpecErrors` for mistakes in a spec, `UsageError` for what cannot be done as
given, `EnvironmentMissing` for what the machine lacks. Nothing here prints.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.base.errors import (
    EnvironmentMissing,
    SpecErrors,
    UsageError,
    nearest,
    quoted,
)
from gemmgen.base.files import blamed
from gemmgen.output import builder
from gemmgen.output.builder import Report, build, check, outputs
from gemmgen.output.job import source_name
from gemmgen.render.names.meanings import NameTaken
from gemmgen.select.plan import Plan, load
from gemmgen.select.tuned.tuning_file import tunings_for
from gemmgen.spec.shapes import Shape

if TYPE_CHECKING:
    from gemmgen.benchmark.results import Benchmark
    from gemmgen.explanation import Argument
    from gemmgen.render.compile_keys import CompileKey
    from gemmgen.tuning.calibration import Fit
    from gemmgen.verification.oracle.error_budget import Explanation
    from gemmgen.verification.report import Verification

__all__ = [
    "EnvironmentMissing",
    "Report",
    "SpecErrors",
    "UsageError",
    "bench",
    "build",
    "calibrate",
    "check",
    "compile_keys",
    "explain",
    "explain_error",
    "json_schema",
    "kernels",
    "outputs",
    "plot",
    "plot_explanation",
    "source",
    "stage",
    "tune",
    "verify",
]


def kernels(specs: Sequence[Path]) -> tuple[Plan, ...]:
    """The plans of every kernel of the specs, expanded, in their order."""
    return tuple(plan for spec in specs for plan in _load(spec))


def compile_keys(specs: Sequence[Path]) -> "dict[str, tuple[CompileKey, ...]]":
    """What Triton may compile for calls of each kernel, by its name: a finite list.

    Of contiguous tensors that begin at multiples of 16 bytes, and of sizes below 2^31.
    """
    from gemmgen.render import compile_keys

    return {plan.name: compile_keys.compile_keys(plan) for plan in kernels(specs)}


def stage(spec: Path, name: str, which: str) -> str | dict[str, Any]:
    """One kernel at a stage: its resolved entry (spec), its plan or its source."""
    plan = _named(spec, name)
    if which == "plan":
        return asdict(plan)
    if which == "spec":
        from gemmgen.render.docs import Description

        return "\n".join(Description(plan).entry) + "\n"
    return "\n\n".join(f"# {file}\n{text}" for file, text in source(spec, name).items())


def source(spec: Path, name: str) -> dict[str, str]:
    """The texts of one kernel's files, by their names in the output folder."""
    from gemmgen.render import render

    plan = _named(spec, name)
    try:
        return render.files(plan, source_name(spec))
    except NameTaken as taken:
        raise SpecErrors(builder.located(taken, spec)) from None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a spec file, for editors."""
    from gemmgen.spec import schema

    return schema.json_schema()


def verify(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    profile: str = "quick",
    only: str | None = None,
    seed: int | None = None,
    cpu: bool = False,
    self_test: bool = False,
    sanitize: bool = False,
    on_done: Callable[[str], object] | None = None,
) -> "Verification":
    """Drift, compilation for every target, and properties against torch.

    The properties run on the GPU, or in Triton's interpreter if there is none or `cpu`
    asks for it; with `self_test` mutants of every kernel must fail them. With
    `sanitize`, kernels run under compute-sanitizer instead. `only` is a pattern of
    kernel names, `on_done` is told each check as it ends. Raises `EnvironmentMissing`
    without torch, triton and hypothesis, or what `sanitize` needs.
    """
    _need("verify", "torch", "triton", "hypothesis", "numpy")
    from gemmgen import verification

    return verification.verify(
        specs,
        out,
        profile=profile,
        only=only,
        seed=seed,
        cpu=cpu,
        self_test=self_test,
        sanitize=sanitize,
        on_done=on_done,
    )


def tune(
    specs: Sequence[Path],
    *,
    shapes: Path | None = None,
    layers: Path | None = None,
    only: str | None = None,
    fresh: bool = False,
    on_planned: Callable[[int], object] | None = None,
    on_done: Callable[[str], object] | None = None,
    on_left_out: Callable[[str], object] | None = None,
    on_fitted: Callable[[str], object] | None = None,
) -> Path:
    """Time candidate tiles on this GPU; return the tuning file that was written.

    `only` is a pattern of kernel names; `fresh` measures again what the file holds. The
    first process of a job tells `on_planned` how many shapes are to be timed, `on_done`
    each, `on_left_out` what was not, `on_fitted` how good costs and layers are.
    """
    _need("tune", "torch", "triton", "hypothesis", "numpy")
    from gemmgen.tuning import session

    return session.tune(
        specs,
        shapes_file=shapes,
        layers_file=layers,
        only=only,
        fresh=fresh,
        on_planned=on_planned,
        on_done=on_done,
        on_left_out=on_left_out,
        on_fitted=on_fitted,
    )


def calibrate(
    specs: Sequence[Path], on_step: Callable[[str], object] | None = None
) -> "dict[Path, Fit]":
    """Fit the cost model's constants to the times in the tuning files beside the specs.

    Writes them into the files, with rules made anew, and returns each file's fit: the
    constants and how far off the model is; costs of tiles stay as they are. Needs
    neither torch nor a GPU. Raises `UsageError` if there is no tuning file.
    """
    from gemmgen.tuning import calibration

    return calibration.calibrate(specs, on_step)


def bench(
    specs: Sequence[Path],
    out: Path | None = None,
    *,
    shapes: Path | None = None,
    only: str | None = None,
    peers: Sequence[str] | None = None,
    budget_s: float = 0.5,
    cpu_time: bool = False,
    on_done: Callable[[str], object] | None = None,
) -> "Benchmark":
    """Time the built kernels against torch and torch.compile, on the GPU.

    `shapes` is a file that lists shapes by kernel, `peers` names those to race against
    (default: all that apply), `budget_s` the seconds of a race, and `cpu_time` adds
    what a call costs the CPU. `on_done` is told each kernel and shape. Raises
    `EnvironmentMissing` without a GPU.
    """
    _need("bench", "torch", "triton", "hypothesis", "numpy")
    from gemmgen import benchmark

    return benchmark.bench(
        specs,
        out,
        shapes_file=shapes,
        only=only,
        peers=peers,
        budget_s=budget_s,
        cpu_time=cpu_time,
        on_done=on_done,
    )


def plot(report: "Benchmark", folder: Path) -> list[Path]:
    """Write the pictures of a benchmark; `EnvironmentMissing` without matplotlib."""
    need_plots()
    from gemmgen.benchmark import plots

    return plots.write(report, folder)


def need_plots() -> None:
    """Raise `EnvironmentMissing` unless pictures can be drawn."""
    _need("plots", "matplotlib", extra="plots")


def explain(
    spec: Path,
    name: str,
    shape: tuple[int, int, int] | None = None,
    target: str | None = None,
    *,
    by_rows: bool = False,
) -> "Argument":
    """Why one kernel runs a shape (M, N, K) as it does: the facts, and their sources.

    The shape is 4096 cubed and the target sm_90, or else the kernel's newest, unless
    given; `by_rows` adds what serves other M. Needs neither torch nor a GPU.
    """
    from gemmgen import explanation

    plan, tuned = _named(spec, name), tunings_for(spec)[0]
    sizes = Shape(*shape) if shape else explanation.DEFAULT
    return explanation.argue(plan, sizes, target, tuned, by_rows=by_rows)


def plot_explanation(facts: "Argument", path: Path, report: Path | None = None) -> None:
    """Draw an argument, over rows if it has them, with a JSON `report` of bench."""
    need_plots()
    from gemmgen.explanation import plot, raced

    plot.write(facts, path, raced.raced(report, facts) if report else None)


def explain_error(
    spec: Path, name: str, shape: tuple[int, int, int] | None = None
) -> "Explanation":
    """How far the results of one kernel may be from float64, and why.

    With a shape (M, N, K) also the size of the bound for normal data, for which it
    raises `EnvironmentMissing` without torch.
    """
    from gemmgen.verification.oracle.error_budget import explain

    explanation = explain(plan := _named(spec, name))
    if shape is None:
        return explanation
    _need("explain --shape", "torch", "hypothesis")
    from gemmgen.verification.example import sizes

    return explanation.sized(sizes.describe_draw(*shape), sizes.sizes(plan, *shape))


def _need(what: str, *packages: str, extra: str = "gpu") -> None:
    missing = [one for one in packages if importlib.util.find_spec(one) is None]
    if missing:
        raise EnvironmentMissing(
            f"{what} needs {', '.join(missing)}: pip install 'gemmgen[{extra}]'"
        )


def _load(spec: Path) -> tuple[Plan, ...]:
    with blamed("read", spec):
        return load(spec)


def _named(spec: Path, name: str) -> Plan:
    plans = {plan.name: plan for plan in _load(spec)}
    if name not in plans:
        raise UsageError(f"no kernel is named {quoted(name)}{nearest(name, plans)}")
    return plans[name]
