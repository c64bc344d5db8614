"""A child process that verifies kernels: one JSON job a line in, JSON lines out.

Before each example it writes a line that names it, then one with the outcome.
"""

import base64
import gc
import importlib
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

from gemmgen.select.plan import Plan
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.basics.part import STEP, Part
from gemmgen.verification.basics.profiles import PROFILES

NO_DEVICE = "none"
"""Where a kernel is only compiled."""
STAND_IN = "stand-in"
"""Where it is launched, and not run."""
_SLOW = ("torch", "hypothesis")
"""Modules of every job that read nothing from the environment which jobs bring."""

_ALLOCATIONS = 50_000
"""After which Python looks for garbage: at its 700 that takes a tenth of all time."""


def job(
    plan: Plan,
    path: Path,
    device: str,
    profile: str,
    seed: int,
    part: Part,
    file: str | None,
    environment: Mapping[str, str],
) -> str:
    """One job as a line of JSON."""
    plan.rows  # noqa: B018 (kept with the plan: chosen once, not in each process)
    return json.dumps(
        {
            "plan": base64.b64encode(pickle.dumps(plan)).decode(),
            "path": str(path),
            "device": device,
            "profile": profile,
            "seed": seed,
            "part": asdict(part),
            "file": file,
            "environment": dict(environment),
        }
    )


def main() -> None:
    """Serve until the input ends."""
    sys.dont_write_bytecode = True  # the output folder stays as it is
    jobs, answers = _private_streams()
    # Takes seconds, and comes before the first job may be known.
    for module in _SLOW:
        importlib.import_module(module)
    gc.freeze()  # these stay, and are more than all that collections have to look at
    gc.set_threshold(_ALLOCATIONS)
    mended = False
    for line in jobs:
        order = json.loads(line)
        os.environ.update(order["environment"])
        if order["device"] == "cpu" and not mended:
            from gemmgen.verification.gluon import kernel
            from gemmgen.verification.interpret import interpreter

            interpreter.mend()
            kernel.interpret()
            mended = True
        os.environ.pop(STEP, None)
        plan = pickle.loads(base64.b64decode(order["plan"]))
        does = {NO_DEVICE: _compiled, STAND_IN: _launched}.get(
            order["device"], _verified
        )
        outcome = does(plan, order, partial(_beat, answers))
        _forget()
        _write(answers, {"outcome": asdict(outcome)})


def _forget() -> None:
    """Let go of the modules of a job; imported once its environment is known."""
    from gemmgen.verification.example.subject import forget

    forget()


def _private_streams() -> tuple[Iterator[str], IO[str]]:
    """stdin and stdout, kept from kernels: what those print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return iter(sys.stdin.readline, ""), answers


def _write(answers: IO[str], value: dict[str, Any]) -> None:
    print(json.dumps(value), file=answers, flush=True)


def _beat(answers: IO[str], text: str) -> None:
    _write(answers, {"beat": text})


def _compiled(
    plan: Plan, order: dict[str, Any], beat: Callable[[str], object]
) -> Outcome:
    """Compile one kernel for its tiles and targets, all or some, or a part of those."""
    from gemmgen.select.tuned.tile_text import format_tile
    from gemmgen.verification.basics.failure import fault_of
    from gemmgen.verification.example.subject import load
    from gemmgen.verification.machine import compiled
    from gemmgen.verification.machine.sample import sample

    started = time.monotonic()
    found, names, part = [], [], Part(**order["part"])
    try:
        module = load(Path(order["path"]))
        able = compiled.compilable(plan, module)
        some = PROFILES[order["profile"]].compiled
        tiles = sample(able, plan.product, some, f"{plan.name} {order['seed']}")
        for one in compiled.check_kernel(plan, module, part.of(tiles)):
            found.append(one)
            names.append(f"{one.target}, {format_tile(one.tile)}")
            beat(f"after {names[-1]}")
    except Exception as error:
        fault, seconds = fault_of(error), time.monotonic() - started
        return Outcome(
            plan.name, "compiled", NO_DEVICE, fault.status, fault.story, seconds=seconds
        )
    problems, notes = (
        tuple(
            f"{name}: {text}"
            for name, one in zip(names, found, strict=True)
            for text in texts(one)
        )
        for texts in (attrgetter("problems"), attrgetter("notes"))
    )
    return Outcome(
        plan.name, "compiled", NO_DEVICE, "failed" if problems else "passed",
        "\n".join(problems), len(found), 0.0, time.monotonic() - started,
        notes + compiled.left_out(plan, able) * (part.first == 0), out_of=len(able),
    )  # fmt: skip


def _launched(
    plan: Plan, order: dict[str, Any], beat: Callable[[str], object]
) -> Outcome:
    """Check what a launcher launches."""
    from gemmgen.verification.basics.failure import Fault
    from gemmgen.verification.run.launches import check_launches

    started = time.monotonic()
    status, story, count = "passed", "", 0
    try:
        count = check_launches(
            plan,
            Path(order["path"]),
            PROFILES[order["profile"]],
            order["seed"],
            Part(**order["part"]),
            beat,
        )
    except Fault as fault:
        status, story = fault.status, fault.story
    seconds = time.monotonic() - started
    return Outcome(
        plan.name, "launches", STAND_IN, status, story, count, seconds=seconds
    )


def _verified(
    plan: Plan, order: dict[str, Any], beat: Callable[[str], object]
) -> Outcome:
    """Verify one kernel's properties."""
    import torch

    from gemmgen.verification.basics.failure import Fault
    from gemmgen.verification.run import properties
    from gemmgen.verification.run.trial import Trial

    started = time.monotonic()
    trial = Trial(
        plan,
        Path(order["path"]),
        torch.device(order["device"]),
        beat,
        Part(**order["part"]),
        order["file"],
    )
    status, story = "passed", ""
    try:
        properties.run(trial, PROFILES[order["profile"]], order["seed"])
    except Fault as fault:
        status, story = fault.status, fault.story
    seconds = time.monotonic() - started
    return Outcome(
        plan.name, "properties", order["device"], status, story,
        trial.examples, trial.worst, seconds,
        schedules=plan.schedules, ran=tuple(sorted(trial.ran)), largest=trial.largest,
    )  # fmt: skip


if __name__ == "__main__":
    main()
