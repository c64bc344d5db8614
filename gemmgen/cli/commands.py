"""What each command does: calls the public functions and prints what they return.

Only this module, `cli` and `output` print.
"""

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from gemmgen import api
from gemmgen.base.errors import Interrupted, UsageError, quoted
from gemmgen.base.files import blamed
from gemmgen.cli import listing, terminal
from gemmgen.cli.init_spec import STARTER
from gemmgen.cli.reports import BENCH_REPORTS, REPORTS, write_report
from gemmgen.cli.tuning import tune as tune
from gemmgen.output.changes import Change, Refused, State


def build(options: argparse.Namespace) -> int:
    """Write, check or diff the output folder."""
    with terminal.progress("render") as advance:
        if options.check or options.diff:
            report = api.check(options.specs, options.out, on_done=advance)
        else:
            report = _build(options, advance)
    writes = not (options.check or options.diff)
    if options.format == "json":
        rows = [
            {"file": change.name, "state": change.state.value}
            for change in report.changes
        ]
        terminal.emit_json(
            "build", writes or report.clean, folder=str(report.folder), files=rows
        )
    elif options.diff:
        print("".join(change.diff() for change in report.drift), end="")
    elif options.format == "github" and not writes:
        for change in report.drift:
            terminal.annotate(_sentence(change), file=report.folder / change.name)
    else:
        for change in report.places:
            print(f"{report.folder / change.name}: {_sentence(change, writes)}")
        print(_summary(report, writes))
    return 0 if writes or report.clean else 1


def _build(options: argparse.Namespace, advance: Callable[[str], None]) -> api.Report:
    """Build; a refusal also shows how what it would have overwritten begins.

    What is wrong stands before that and, by the caller, after it.
    """
    try:
        return api.build(
            options.specs, options.out, force=options.force, on_done=advance
        )
    except Refused as refused:
        if options.format == "text":
            terminal.show_refused(refused)
        raise


_WRITTEN = {
    State.MISSING: "written",
    State.OUTDATED: "rewritten",
    State.EDITED: "overwritten",
    State.LEFTOVER: "removed",
}


def _sentence(change: Change, writes: bool = False) -> str:
    """What is, or was done, about one file."""
    if writes:
        return _WRITTEN.get(change.state, change.state.value)
    return change.state.value + (f": {change.reason}" if change.reason else "")


def _summary(report: api.Report, writes: bool) -> str:
    same = len(report.changes) - len(report.drift)
    verb = "written" if writes else "not as built"
    return f"{report.folder}: {len(report.drift)} {verb}, {same} unchanged"


def list(options: argparse.Namespace) -> int:
    """The kernels, expanded, a line each; or what Triton compiles for them."""
    told = listing.compile_keys if options.compile_keys else listing.kernels
    return told(options)


def show(options: argparse.Namespace) -> int:
    """One kernel's entry, plan or source."""
    value = api.stage(options.spec, options.name, options.stage)
    print(value if isinstance(value, str) else json.dumps(value, indent=2), end="")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Why one kernel runs a shape as it does, or how far its results may be off."""
    if options.error:
        return _explain_error(options)
    if options.plot:
        if options.plot.suffix != ".png":
            raise UsageError(f"a plot is a .png, not {quoted(str(options.plot))}")
        api.need_plots()
    elif options.measured:
        raise UsageError("--measured is drawn, which takes --plot FILE.png")
    told = api.explain(
        options.spec,
        options.name,
        options.shape,
        options.target,
        by_rows=bool(options.plot),
    )
    if options.plot:
        api.plot_explanation(told, options.plot, options.measured)
    if options.format == "json":
        terminal.emit_json("explain", True, **told.as_json())
    else:
        from gemmgen.explanation.text import as_text

        print(as_text(told))
    return 0


def _explain_error(options: argparse.Namespace) -> int:
    for name in ("target", "plot", "measured"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} says nothing of errors; leave out --error")
    told = api.explain_error(options.spec, options.name, options.shape)
    if options.format == "json":
        terminal.emit_json("explain", True, **told.as_json())
    else:
        print(told.as_text())
    return 0


def schema(options: argparse.Namespace) -> int:
    """The JSON Schema."""
    print(json.dumps(api.json_schema(), indent=2))
    return 0


def init(options: argparse.Namespace) -> int:
    """Write the starter spec, never over a file."""
    path: Path = options.file
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER)
    except FileExistsError:
        raise UsageError(f"{path} is there already; name another file") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    print(f"{path}: written; next: gemmgen build {path}")
    return 0


def verify(options: argparse.Namespace) -> int:
    """Prove the kernels right and print a row a kernel."""
    if options.report and options.report.suffix not in REPORTS:
        raise UsageError(f"a report is one of {', '.join(REPORTS)}")
    try:
        with terminal.progress("verify") as advance:
            result = api.verify(
                options.specs,
                options.out,
                profile=options.profile,
                only=options.only,
                seed=options.seed,
                cpu=options.cpu,
                self_test=options.self_test,
                sanitize=options.sanitize,
                on_done=advance,
            )
    except Interrupted as stop:
        write_report(options.report, stop.result)
        raise
    write_report(options.report, result)
    if options.format == "json":
        terminal.emit_json("verify", result.ok, **result.as_json())
    elif options.format == "github":
        for outcome in result.failures:
            terminal.annotate(
                outcome.detail, title=f"{outcome.kernel}: {outcome.check}"
            )
    else:
        print(result.as_text())
    return 0 if result.ok else 1


def bench(options: argparse.Namespace) -> int:
    """Race kernels against torch and print a row a shape."""
    if options.report and options.report.suffix not in BENCH_REPORTS:
        raise UsageError(f"a report is one of {', '.join(BENCH_REPORTS)}")
    if options.plots:
        api.need_plots()
    with terminal.progress("bench") as advance:
        result = api.bench(
            options.specs,
            options.out,
            shapes=options.shapes,
            only=options.only,
            peers=options.peers.split(",") if options.peers else None,
            budget_s=options.budget,
            cpu_time=options.cpu_time,
            on_done=advance,
        )
    from gemmgen.benchmark import tables

    if options.report:
        text = json.dumps(result.as_json(), indent=2) + "\n"
        if options.report.suffix == ".md":
            text = tables.as_markdown(result, _bench_command(options))
        with blamed("write", options.report):
            options.report.write_text(text, encoding="utf-8")
    if options.plots:
        api.plot(result, options.plots)
    if options.format == "json":
        terminal.emit_json("bench", result.ok, **result.as_json())
    else:
        print(tables.as_text(result))
    return 0 if result.ok else 1


def _bench_command(options: argparse.Namespace) -> str:
    """The command that measures the same again."""
    words = ["gemmgen", "bench", *map(str, options.specs)]
    for name in ("out", "shapes", "only", "peers"):
        value = getattr(options, name)
        words += [f"--{name}", str(value)] if value is not None else []
    words += ["--budget", f"{options.budget:g}"] if options.budget != 0.5 else []
    words += ["--cpu-time"] if options.cpu_time else []
    return shlex.join(words)
