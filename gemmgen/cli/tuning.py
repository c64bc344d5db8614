"""`gemmgen tune`: what it says, of which of its processes."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gemmgen import api
from gemmgen.base.processes import started
from gemmgen.cli import terminal

_SHAPE_SECONDS = 3.3
"""Of `tune`, compiling included: 196 shapes in 647 s (H200, 16 cores)."""


def calibrate(options: argparse.Namespace) -> int:
    """Fit the model to the tuning files; say how far off it was and is."""
    with terminal.progress("calibrate") as advance:
        fits = api.calibrate(options.specs, on_step=advance)
    if options.format == "json":
        files = {str(path): asdict(fit) for path, fit in fits.items()}
        terminal.emit_json("tune", True, calibrated=files)
        return 0
    for path, fit in fits.items():
        print(
            f"{path}: {fit.count} times, {100 * fit.before:.1f} % off before, "
            f"{100 * fit.after:.1f} % now"
        )
    return 0


def tune(options: argparse.Namespace) -> int:
    """Measure candidates and write the tuning file; say what was left out."""
    if options.calibrate:
        return calibrate(options)
    if started().rank:  # the first process of a job speaks for all
        _tune(options)
        return 0
    left_out: list[str] = []
    fitted: list[str] = []
    with terminal.progress("tune") as advance:

        def planned(count: int) -> None:
            if count:
                terminal.complain(_tuning_takes(count, started().size))
            advance.expect(count)

        path = _tune(
            options,
            on_planned=planned,
            on_done=advance,
            on_left_out=left_out.append,
            on_fitted=fitted.append,
        )
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    if options.format == "json":
        terminal.emit_json(
            "tune", True, file=str(path), left_out=left_out, fitted=fitted
        )
    else:
        for line in fitted:
            print(line)
        specs = " ".join(map(str, options.specs))
        print(f"{path}: written; next: gemmgen build {specs}")
    return 0


def _tune(options: argparse.Namespace, **told: Callable[..., object]) -> Path:
    return api.tune(
        options.specs,
        shapes=options.shapes,
        layers=options.layers,
        only=options.only,
        fresh=options.fresh,
        **told,
    )


def _tuning_takes(shapes: int, gpus: int) -> str:
    minutes = max(1, round(shapes * _SHAPE_SECONDS / gpus / 60))
    each = f" for each of {gpus} GPUs" if gpus > 1 else ""
    return (
        f"tune: {shapes} shapes to time, about {minutes} min on 16 cores{each}; "
        "interrupted, it goes on where it stopped"
    )
