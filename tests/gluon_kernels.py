"""Runs a generated kernel's specialized tiles; prints lines of JSON.

`orders` runs its fixed cases in every order, `faults` the faults of a list, `kinds` a
mutant of each kind. A process of its own, for Triton's interpreter is patched for good.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from gemmgen.select.plan import Plan, load
from gemmgen.verification.basics.failure import Fault
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.example.one_example import run
from gemmgen.verification.example.pipelined import pipelined
from gemmgen.verification.example.subject import launcher
from gemmgen.verification.example.subject import load as load_module
from gemmgen.verification.gluon import kernel
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.mutate.mutants import mutants
from gemmgen.verification.run.properties import run as run_properties
from gemmgen.verification.run.trial import Trial

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")


def orders(plan: Plan) -> Iterator[dict[str, str]]:
    """By policy, what is wrong with a healthy kernel."""
    module = load_module(ROOT / "generated" / f"{plan.name}.py")
    every = kernel.POLICIES
    for policy in every:
        kernel.POLICIES = (policy,)
        runs, said = 0, ""
        for variant in pipelined(plan, module):
            with variant.forced(module):
                for case in list(variant.cases(plan))[1:5]:
                    try:
                        run(plan, launcher(plan, module), case, variant.block, CPU)
                    except Exception as error:
                        said = said or f"{case} {variant.name}: {error}"
                    runs += 1
        yield {"name": str(policy), "said": said, "runs": str(runs)}
    kernel.POLICIES = every


def tried(plan: Plan, text: str) -> str:
    """What is wrong with a module, of which the specialized tiles alone are tried."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "generated", folder, dirs_exist_ok=True)
        path = Path(folder) / f"{plan.name}.py"
        path.write_text(text, encoding="utf-8")
        trial = Trial(plan, path, CPU, lambda _: None, (0, 1), "warp_specialized")
        try:
            run_properties(trial, PROFILES["quick"], 0)
        except Fault as fault:
            return f"{fault.status}: {fault.story}"
    return ""


def faults(plan: Plan, changes: dict[str, list[list[str]]]) -> Iterator[dict[str, str]]:
    """By name, what is said of a kernel with all of a fault's changes."""
    text = (ROOT / "generated" / f"{plan.name}.py").read_text(encoding="utf-8")
    head, gluon = text.split("@gluon.jit\ndef produce", 1)
    for name, pairs in changes.items():
        changed = gluon
        for before, after in pairs:
            assert before in changed, before
            changed = changed.replace(before, after)
        yield {
            "name": name,
            "said": tried(plan, f"{head}@gluon.jit\ndef produce{changed}"),
        }


def kinds(plan: Plan) -> Iterator[dict[str, str]]:
    """The first mutant of each kind that specialized tiles can show."""
    text = (ROOT / "generated" / f"{plan.name}.py").read_text(encoding="utf-8")
    seen = set()
    for mutant in mutants(plan, text):
        shown = mutant.schedule == "warp_specialized" and not mutant.excuse("cpu")
        if shown and mutant.family not in seen:
            seen.add(mutant.family)
            yield {"name": mutant.name, "said": tried(plan, mutant.source)}


def main() -> None:
    """What is asked for, of one kernel."""
    interpreter.mend()
    kernel.interpret()
    what, name, *more = sys.argv[1:]
    plan = next(one for one in load(ROOT / "spec.yaml") if one.name == name)
    if what == "faults":
        found = faults(plan, json.loads(more[0]))
    else:
        found = {"orders": orders, "kinds": kinds}[what](plan)
    for line in found:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
