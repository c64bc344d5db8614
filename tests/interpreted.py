"""A process in Triton's interpreter that imports built kernels and judges one call.

Reads a folder and a kernel a line, answers with what went wrong, or nothing.
"""

import importlib
import sys
import traceback
from pathlib import Path

import torch

from gemmgen.render.names.parts import file_of
from gemmgen.select.plan import Plan, load
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.example import one_example, subject
from gemmgen.verification.interpret import interpreter

CPU = torch.device("cpu")


def judge(folder: Path, plan: Plan) -> None:
    """Import the package and the module; call the launcher with each of its tiles."""
    sys.path.insert(0, str(folder.parent))
    assert callable(getattr(importlib.import_module(folder.name), plan.name))
    sys.path.pop(0)
    module = subject.load(folder / file_of(plan))
    case = Case((17,), 16, 32, numbers=(0.5,) * len(numbers(plan)))
    for variant in subject.variants(plan, module, CPU)[:3]:
        with variant.forced(module):
            launcher = subject.launcher(plan, module)
            one_example.run(plan, launcher, case, variant.block, CPU)


def main() -> None:
    """Answer until there are no more orders."""
    interpreter.mend()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        try:
            (plan,) = load(folder.parent / "spec.yaml")
            judge(folder, plan)
            said = ""
        except BaseException:
            said = traceback.format_exc()
        print(ascii(said), file=answers, flush=True)


main()
