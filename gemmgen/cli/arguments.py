"""The arguments of each command, and what `-h` says of them.

docs/commands.md holds the same texts; tests/test_commands_page.py compares the two.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from gemmgen.base.version import VERSION

FORMATS = ("text", "json", "github")
STAGES = ("spec", "plan", "source")
PROFILES = ("quick", "ci", "deep")


def parser() -> argparse.ArgumentParser:
    """The parser of `gemmgen`, a subparser for each command."""
    top = argparse.ArgumentParser(
        prog="gemmgen",
        description="Readable, verified Triton GEMM kernels from a small YAML spec.",
    )
    top.add_argument("--version", action="version", version=f"gemmgen {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands)
    _add_verify(commands)
    _add_tune(commands)
    _add_bench(commands)
    _add_reading(commands)
    return top


Commands = argparse._SubParsersAction  # the type has no public name


def _add_build(commands: "Commands[argparse.ArgumentParser]") -> None:
    build = commands.add_parser(
        "build", help="write the kernels of the specs", description="Write a folder "
        "per kernel to DIR; nothing is written on an error.",
    )  # fmt: skip
    _add_specs(build)
    _add_out(build)
    mode = build.add_mutually_exclusive_group()
    mode.add_argument(
        "--check", action="store_true", help="write nothing; list what differs, exit 1"
    )
    mode.add_argument(
        "--diff", action="store_true", help="write nothing; show how it differs, exit 1"
    )
    mode.add_argument(
        "--force", action="store_true", help="overwrite files edited by hand"
    )
    _add_format(build)


def _add_verify(commands: "Commands[argparse.ArgumentParser]") -> None:
    verify = commands.add_parser(
        "verify", help="prove the kernels right", description="Drift, compilation for "
        "every target with no GPU, properties against torch on the GPU or in Triton's "
        "interpreter.",
    )  # fmt: skip
    _add_specs(verify)
    _add_out(verify)
    verify.add_argument(
        "--profile", choices=PROFILES, default="quick",
        help="how many examples are drawn, and whether all tiles are compiled "
        "(default: quick)",
    )  # fmt: skip
    verify.add_argument("--only", metavar="GLOB", help="only kernels of such names")
    verify.add_argument("--seed", type=int, help="repeat the examples of a run")
    verify.add_argument("--cpu", action="store_true", help="interpret even with a GPU")
    mode = verify.add_mutually_exclusive_group()
    mode.add_argument(
        "--self-test", action="store_true",
        help="also verify mutants of every kernel, and of _runtime/*.py, all of which "
        "must fail",
    )  # fmt: skip
    mode.add_argument(
        "--sanitize", action="store_true",
        help="instead run edge shapes on a GPU under compute-sanitizer",
    )  # fmt: skip
    verify.add_argument(
        "--report", type=Path, metavar="FILE",
        help="also write a report: .json, .md, or .xml (JUnit)",
    )  # fmt: skip
    _add_format(verify)


def _add_tune(commands: "Commands[argparse.ArgumentParser]") -> None:
    tune = commands.add_parser(
        "tune", help="time candidate tiles on this GPU", description="Time candidate "
        "tiles on this GPU and write tuning/<gpu>.yaml beside the first spec, which "
        "build reads. Interrupted, it goes on where it stopped. The processes of a "
        "job of torchrun share the shapes, each on a GPU of its own.",
    )  # fmt: skip
    _add_specs(tune)
    tune.add_argument(
        "--shapes", type=Path, metavar="FILE",
        help="YAML map from a kernel to a list of shapes, MxNxK",
    )  # fmt: skip
    tune.add_argument(
        "--layers", type=Path, metavar="FILE",
        help="YAML map from a kernel to a list of layers, NxK, or MxNxK for those of "
        "at most M rows; each is timed at some 30 numbers of rows",
    )  # fmt: skip
    tune.add_argument("--only", metavar="GLOB", help="only kernels of such names")
    tune.add_argument(
        "--calibrate", action="store_true",
        help="measure nothing; fit the cost model to the tuning files beside the specs",
    )  # fmt: skip
    tune.add_argument(
        "--fresh", action="store_true", help="measure again what the file holds"
    )
    _add_format(tune, FORMATS[:2])


def _add_bench(commands: "Commands[argparse.ArgumentParser]") -> None:
    bench = commands.add_parser(
        "bench", help="time the kernels against torch", description="Race built "
        "kernels against torch, torch.compile and themselves, on the GPU.",
    )  # fmt: skip
    _add_specs(bench)
    _add_out(bench)
    bench.add_argument(
        "--shapes", type=Path, metavar="FILE",
        help="YAML map from a kernel to a list of shapes, MxNxK",
    )  # fmt: skip
    bench.add_argument("--only", metavar="GLOB", help="only kernels of such names")
    bench.add_argument(
        "--peers", metavar="NAMES",
        help="race only against these: torch, addmm, activation, out_dtype, compile, "
        "max-autotune; by commas (default: all that apply)",
    )  # fmt: skip
    bench.add_argument(
        "--budget", type=_seconds, default=0.5, metavar="SECONDS",
        help="time for the race of one shape (default: 0.5)",
    )  # fmt: skip
    bench.add_argument(
        "--cpu-time", action="store_true", help="also what a call costs the CPU"
    )
    bench.add_argument(
        "--report", type=Path, metavar="FILE", help="also write a report: .json or .md"
    )
    bench.add_argument(
        "--plots", type=Path, metavar="DIR",
        help="also draw ratios.png, by_rows.png, speed.png and roofline.png, and write "
        "by_rows.html",
    )  # fmt: skip
    _add_format(bench, FORMATS[:2])


def _add_reading(commands: "Commands[argparse.ArgumentParser]") -> None:
    listing = commands.add_parser(
        "list", help="the kernels of the specs, expanded", description="List the "
        "kernels of the specs, expanded: operation, layout, types, epilogue, tiles.",
    )  # fmt: skip
    _add_specs(listing)
    listing.add_argument(
        "--compile-keys", action="store_true",
        help="list instead what Triton may compile for calls: each tile, and the kinds "
        "of sizes that are told apart",
    )  # fmt: skip
    _add_format(listing)
    show = commands.add_parser(
        "show", help="one kernel at a stage of its making", description="Print one "
        "kernel at a stage of its making.",
    )  # fmt: skip
    _add_kernel(show)
    show.add_argument(
        "--stage", choices=STAGES, default="source",
        help="its resolved entry, its plan or its files (default: source)",
    )  # fmt: skip
    _add_explain(commands)
    commands.add_parser(
        "schema", help="the JSON Schema of a spec, for editors",
        description="Print the JSON Schema of a spec, for editors.",
    )  # fmt: skip
    init = commands.add_parser(
        "init", help="write a commented starter spec",
        description="Write a commented spec to start from, never over a file.",
    )  # fmt: skip
    init.add_argument(
        "file", nargs="?", type=Path, default=Path("spec.yaml"), metavar="FILE",
        help="the file to write (default: spec.yaml)",
    )  # fmt: skip


def _add_explain(commands: "Commands[argparse.ArgumentParser]") -> None:
    explain = commands.add_parser(
        "explain", help="why a kernel is as it is", description="Why a kernel runs a "
        "shape as it does: its row of the table, stages, shared memory, waves, the "
        "roofline and the predicted time.",
    )  # fmt: skip
    _add_kernel(explain)
    explain.add_argument(
        "--shape", type=_shape, metavar="MxNxK",
        help="the sizes of the product (default: 4096x4096x4096); with --error, also "
        "the size of the bound for normal data",
    )  # fmt: skip
    explain.add_argument(
        "--target", metavar="SM",
        help="one of the kernel's targets (default: sm_90, or else its newest)",
    )  # fmt: skip
    explain.add_argument(
        "--plot", type=Path, metavar="FILE.png",
        help="also draw time against rows and stages, and the roofline",
    )  # fmt: skip
    explain.add_argument(
        "--measured", type=Path, metavar="FILE.json",
        help="draw the times of a report of gemmgen bench too, torch's among them",
    )  # fmt: skip
    explain.add_argument(
        "--error", action="store_true",
        help="instead how far results may be from float64",
    )  # fmt: skip
    _add_format(explain, FORMATS[:2])


def _shape(text: str) -> tuple[int, int, int]:
    """`4096x4096x512`, all at least 1."""
    from gemmgen.spec import shapes

    try:
        return shapes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    """A time above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return seconds


def _folder(text: str) -> Path:
    """A folder that has a name: an empty one would be wherever this runs."""
    if not text:
        raise argparse.ArgumentTypeError(
            "must name a folder; '.' is the one you are in"
        )
    return Path(text)


def _add_specs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "specs", nargs="+", type=Path, metavar="SPEC", help="the specs to read"
    )


def _add_kernel(command: argparse.ArgumentParser) -> None:
    command.add_argument("spec", type=Path, metavar="SPEC", help="the spec to read")
    command.add_argument("name", metavar="NAME", help="the name of a kernel in it")


def _add_out(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-o", "--out", type=_folder, metavar="DIR",
        help="output folder (default: generated, beside the first spec)",
    )  # fmt: skip


def _add_format(
    command: argparse.ArgumentParser, forms: Sequence[str] = FORMATS
) -> None:
    command.add_argument(
        "--format", choices=forms, default="text",
        help="the form of what is printed (default: text)",
    )  # fmt: skip
