"""A process in Triton's interpreter that takes gradients of built kernels.

Of the folder and the spec that it is told, and of these kernels alone if it is told
any; prints what went wrong, or nothing.
"""

import importlib
import sys
from pathlib import Path

import torch
from torch.autograd import gradcheck

from gemmgen.render.names.parts import file_of
from gemmgen.select.plan import Plan, load
from gemmgen.tables.operations import OPERATIONS
from gemmgen.verification.basics.failure import Fault
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.example import subject
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.run.trial import Trial

M, N, K = 3, 5, 4
SIZES = {"m": (M,), "n": (N,), "k": (K,)}
LEADING = SIZES | {"m": (1, M)}


def arguments(plan: Plan) -> list[torch.Tensor | float]:
    """Arguments of a small call that learn, with rows of two axes where they may be."""
    torch.manual_seed(0)
    sizes = LEADING if OPERATIONS[plan.op].leading else SIZES
    shapes = {
        one.name: [size for axis in one.axes for size in sizes[axis]]
        for one in plan.inputs
    }
    return [
        (
            torch.randn(shapes[name], dtype=torch.float64, requires_grad=True)
            if name in shapes
            else 0.5
        )
        for name in plan.argument_names
    ]


def said(action: object, *given: object, **named: object) -> str:
    """What an error says."""
    try:
        action(*given, **named)  # type: ignore[operator]
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "nothing"


def main(folder: Path, spec: Path, *names: str) -> None:
    interpreter.mend()
    sys.path.insert(0, str(folder.parent))
    package = importlib.import_module(folder.name)
    for plan in (one for one in load(spec) if one.grad):
        if names and plan.name not in names:
            continue
        launcher = getattr(package, plan.name)
        given = arguments(plan)
        if plan.dtype == "fp64":
            assert gradcheck(launcher, given, fast_mode=True), plan.name
            out = torch.empty(M, N, dtype=torch.float64)
            if len(plan.results) == 1:
                assert "where out is given" in said(launcher, *given, out=out)
                loss = launcher(*given).square().sum()
                again = said(torch.autograd.grad, loss, given[0], create_graph=True)
                assert "no second derivative" in again, again
            wrong = [given[0].float(), *given[1:]]
            for call in (launcher, launcher.operator.overload):
                told = said(call, *wrong)
                assert told.startswith(f"{plan.name}: "), told  # not its forward's
                assert f"{plan.argument_names[0]} must be" in told, told
            with torch.no_grad():
                plain = launcher(*given)
                first = plain if len(plan.results) == 1 else plain[0]
                assert not first.requires_grad
            continue
        trial = Trial(plan, folder / file_of(plan), torch.device("cpu"), lambda _: None)
        trial.module = subject.load(trial.path)
        try:
            trial.gradients(PROFILES["quick"], 0)
        except Fault as fault:
            print(plan.name, fault.story)


main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
