"""The command line: from exceptions to messages and exit codes.

Exit codes: 0 fine; 1 drift or a failed check; 2 bad spec or usage; 3 the environment;
130 interrupted. Imports each command's work only when it runs.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmgen.base.errors import EnvironmentMissing, SpecErrors, UsageError
from gemmgen.cli.arguments import parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    What it prints is written at the end, in the one place that can fail.
    """
    leaving: SystemExit | None = None
    code = 0
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            code = _outcome(parser().parse_args(arguments))
        except SystemExit as stop:  # argparse, which has said why
            leaving = stop
    if text := said.getvalue():
        from gemmgen.cli.terminal import complain, deliver

        if reason := deliver(text):
            complain(f"gemmgen: cannot write to standard output: {reason}")
            return code or 3
    if leaving:
        raise leaving
    return code


def _outcome(options: argparse.Namespace) -> int:
    """The exit code of a command; what goes wrong is said."""
    from gemmgen.cli import commands

    try:
        return int(getattr(commands, options.command)(options))
    except SpecErrors as errors:
        from gemmgen.cli.terminal import emit_errors

        emit_errors(options.command, errors.errors, getattr(options, "format", "text"))
        return 2
    except UsageError as error:
        return _say(options, str(error), 2)
    except EnvironmentMissing as error:
        return _say(options, str(error), 3)
    except KeyboardInterrupt:
        return _say(options, "interrupted", 130)


def output_folder(arguments: Sequence[str]) -> Path:
    """The folder that arguments of `gemmgen build` are about."""
    from gemmgen.output import job

    options = parser().parse_args(arguments)
    return job.output_folder(options.specs, options.out)


def _say(options: argparse.Namespace, message: str, code: int) -> int:
    form = getattr(options, "format", "text")
    if form == "json":
        from gemmgen.cli.terminal import emit_json

        emit_json(options.command, False, error=message)
    elif form == "github":
        from gemmgen.cli.terminal import annotate

        annotate(message)
    else:
        from gemmgen.cli.terminal import complain

        complain(f"gemmgen: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
