"""Runs a generated kernel's specialized tiles; prints lines of JSON.

`orders` runs its fixed cases in so many orders, `faults` the faults of a list, `kinds`
a mutant of each kind. A process of its own, for Triton is patched for good.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from gemmgen.render.names.parts import ROLES, file_of
from gemmgen.select.plan import Plan, load
from gemmgen.verification.basics.failure import Fault
from gemmgen.verification.basics.part import WHOLE
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.example.one_example import run
from gemmgen.verification.example.pipelined import pipelined
from gemmgen.verification.example.subject import launcher
from gemmgen.verification.example.subject import load as load_module
from gemmgen.verification.faults.pipelines import pipeline_families
from gemmgen.verification.gluon import kernel
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.mutate.host_mutants import device_mutants
from gemmgen.verification.mutate.mutants import mutants
from gemmgen.verification.run.properties import run as run_properties
from gemmgen.verification.run.trial import Trial
from tests import folders

CPU = torch.device("cpu")
SPECIALIZED = "warp_specialized"


def orders(plan: Plan, count: str) -> Iterator[dict[str, str]]:
    """By policy, of so many, what is wrong with a healthy kernel."""
    module = load_module(folders.GENERATED / file_of(plan))
    every = kernel.POLICIES
    for policy in every[: int(count)]:
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


def tried(plan: Plan, changed: dict[str, str]) -> str:
    """What is wrong with a specialized kernel, the texts of some files changed."""
    with tempfile.TemporaryDirectory() as folder:
        texts = {**folders.committed(plan), **changed}
        path = folders.written(Path(folder), plan, texts)
        trial = Trial(plan, path, CPU, lambda _: None, WHOLE, SPECIALIZED)
        try:
            run_properties(trial, PROFILES["quick"], 0)
        except Fault as fault:
            return f"{fault.status}: {fault.story}"
    return ""


def texts_of(plan: Plan) -> dict[str, str]:
    """The files that make a specialized kernel: its own, and what all share."""
    names = (file_of(plan, SPECIALIZED), *ROLES)
    return {name: folders.committed(plan)[name] for name in names}


def faults(plan: Plan, changes: str) -> Iterator[dict[str, str]]:
    """By name, what is said of a kernel with all of a fault's changes, told as JSON."""
    for name, pairs in json.loads(changes).items():
        changed = texts_of(plan)
        for before, after in pairs:
            changed = folders.replaced(changed, before, after)
        yield {"name": name, "said": tried(plan, changed)}


def kinds(plan: Plan) -> Iterator[dict[str, str]]:
    """Of each kind that specialized tiles can show, the first mutant that dies.

    What a kernel does not use, such as a left side in registers, kills none of its own.
    """
    own, *shared = texts_of(plan).items()
    made = [(own[0], one) for one in mutants(plan, SPECIALIZED, own[1])]
    # What is lost of K beyond whole lines shows in other layouts, as in the self-test.
    families = {family for family, _ in pipeline_families()}
    made += [
        (file, one)
        for file, text in shared
        for _, one in device_mutants(plan, file, text)
        if one.family in families
    ]
    found: dict[str, str] = {}
    for name, mutant in made:
        if not mutant.equivalent and not found.get(mutant.family):
            changed = {name: mutant.source}
            found[mutant.family] = tried(plan, changed)
    yield from ({"name": name, "said": said} for name, said in found.items())


def main() -> None:
    """What is asked for, of one kernel."""
    interpreter.mend()
    kernel.interpret()
    what, name, *more = sys.argv[1:]
    plan = next(one for one in load(folders.ROOT / "spec.yaml") if one.name == name)
    for line in {"orders": orders, "faults": faults, "kinds": kinds}[what](plan, *more):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
