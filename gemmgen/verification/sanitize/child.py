"""A child process under a sanitizer: calls kernels on the fixed cases' shapes.

It tells what it does in lines of its own, between which the sanitizer's findings
stand; results are not judged, for that is what the properties are for.
"""

import base64
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.select.plan import Plan
from gemmgen.verification.sanitize import consan, fpsan
from gemmgen.verification.sanitize.instrumented import OWN, allocate

if TYPE_CHECKING:
    from torch import Tensor

    from gemmgen.verification.cases.cases import Case
    from gemmgen.verification.example.subject import Variant

MARK = "@gemmgen "
"""Begins each line of this process, which are JSON."""

_SLOW = ("racecheck",)
"""Tools that make every access to shared memory slow: they get part tiles alone."""


def job(tool: str, device: str, kernels: Sequence[tuple[Plan, Path]]) -> str:
    """What a process is to do, as text."""
    packed = base64.b64encode(pickle.dumps([plan for plan, _ in kernels])).decode()
    paths = [str(path) for _, path in kernels]
    return json.dumps({"tool": tool, "device": device, "plans": packed, "paths": paths})


def main() -> None:
    """Do the job in the file that the command line names; stop at a kernel's error."""
    sys.dont_write_bytecode = True  # the output folder stays as it is
    order = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    if order["device"] == "cpu":
        from gemmgen.verification.interpret import interpreter

        interpreter.mend()
    plans = pickle.loads(base64.b64decode(order["plans"]))
    for plan, path in zip(plans, order["paths"], strict=True):
        _tell(event="start", kernel=plan.name)
        try:
            calls = _run(plan, Path(path), order["tool"], order["device"])
        except Exception as error:
            story = f"{type(error).__name__}: {str(error).strip()[:300]}"
            _tell(event="error", kernel=plan.name, story=story)
            sys.exit(1)  # the GPU's context may have come to harm
        _tell(event="end", kernel=plan.name, calls=calls)


def _tell(**values: object) -> None:
    sys.stdout.write(MARK + json.dumps(values) + "\n")
    sys.stdout.flush()


def cases(
    plan: Plan, variant: "Variant", tool: str, whole: bool = True
) -> Iterator["Case"]:
    """The fixed cases of plain views with more than one of M, N and K.

    The others compile a kernel anew for the same accesses. Part tiles alone, once for
    descriptors and once for what they cannot describe, if not the `whole` of them is
    asked for or the tool is slow. Triton's own tools have cases of their own.
    """
    from gemmgen.verification.example.edge_cases import beyond, edge_cases, plain

    if tool in OWN:
        yield from OWN[tool].cases(plan, variant)
        return
    if whole and tool not in _SLOW:
        yield from filter(plain, edge_cases(plan, variant.block))
        return
    yield beyond(plan, variant.block, described=True)
    if not variant.described(plan):  # another schedule would serve it
        yield beyond(plan, variant.block, described=False)


def _run(plan: Plan, path: Path, tool: str, device: str) -> int:
    """Call the launcher on every case with every tile; the number of calls."""
    import torch

    from gemmgen.verification.cases.cases import describe_case
    from gemmgen.verification.example import subject

    module = subject.load(path)
    few: Callable[[], AbstractContextManager[None]] = nullcontext
    if tool == consan.CONSAN:
        few = partial(consan.few_programs, module)
    if tool in OWN and device == "cuda":
        allocate(partial(torch.zeros, dtype=torch.int8))
    agreement = fpsan.Agreement(plan) if tool == fpsan.FPSAN else None
    calls, seen = 0, set()
    for variant in subject.variants(plan, module, torch.device(device)):
        whole = variant.text not in seen
        seen.add(variant.text)
        with variant.forced(module), few():
            for case in cases(plan, variant, tool, whole):
                name = f"{describe_case(plan, case)}, {variant.name}"
                _tell(event="case", kernel=plan.name, case=name)
                launcher = subject.launcher(plan, module)
                results = _call(plan, launcher, case, torch.device(device))
                calls += 1
                wrong = agreement and agreement.differs(case, variant, results)
                if wrong:
                    _tell(event="finding", kernel=plan.name, finding=wrong)
    return calls


def _call(
    plan: Plan, launcher: Callable[..., Any], case: "Case", device: Any
) -> "list[Tensor]":
    from gemmgen.verification.cases.cases import numbers
    from gemmgen.verification.example.one_example import (
        Call,
        framed_inputs,
        framed_outputs,
    )

    inputs = framed_inputs(plan, case, device)
    outputs = framed_outputs(plan, case, device) if case.given else None
    return Call(
        {name: framed.view for name, framed in inputs.items()},
        dict(zip(numbers(plan), case.numbers, strict=True)),
        [framed.view for framed in outputs] if outputs is not None else None,
    ).of(plan, launcher)
