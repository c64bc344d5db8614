"""A child process under compute-sanitizer: calls kernels on the fixed cases' shapes.

It tells what it does in lines of its own, between which the sanitizer's findings
stand; results are not judged, for that is what the properties are for.
"""

import base64
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmgen.plan import Plan

if TYPE_CHECKING:
    from gemmgen.verification.cases import Case
    from gemmgen.verification.comparison import Block

MARK = "@gemmgen "
"""Begins each line of this process, which are JSON."""

_SLOW = ("racecheck",)
"""Tools that make every access to shared memory slow: they get the two odd cases."""


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
        from gemmgen.verification import interpreter

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


def cases(plan: Plan, block: "Block", tool: str) -> Iterator["Case"]:
    """The fixed cases of plain views with more than one of M, N and K.

    The others compile a kernel anew for the same accesses. For a slow tool those with a
    part tile along every side.
    """
    from gemmgen.verification.fixed import fixed_cases, plain

    odd = {
        (block.m + 1, block.n + 1, block.k + 1),
        (block.m - 1, block.n - 1, 2 * block.k - 1),
    }
    seen = set()
    for case in fixed_cases(plan, block):
        size = (case.m, case.n, case.k)
        if plain(case) and (tool not in _SLOW or (size in odd and size not in seen)):
            seen.add(size)
            yield case


def _run(plan: Plan, path: Path, tool: str, device: str) -> int:
    """Call the launcher on every case with every tile; the number of calls."""
    import torch

    from gemmgen.verification import subject
    from gemmgen.verification.cases import described

    module = subject.load(path)
    calls = 0
    for variant in subject.variants(plan, module, torch.device(device)):
        with variant.forced(module):
            for case in cases(plan, variant.block, tool):
                name = f"{described(plan, case)}, tile {variant.block}"
                _tell(event="case", kernel=plan.name, case=name)
                _call(plan, subject.launcher(plan, module), case, torch.device(device))
                calls += 1
    return calls


def _call(plan: Plan, launcher: Callable[..., Any], case: "Case", device: Any) -> None:
    from gemmgen.verification.cases import numbers
    from gemmgen.verification.examples import Call, framed_inputs, framed_outputs

    inputs = framed_inputs(plan, case, device)
    outputs = framed_outputs(plan, case, device) if case.given else None
    Call(
        {name: framed.view for name, framed in inputs.items()},
        dict(zip(numbers(plan), case.numbers, strict=True)),
        [framed.view for framed in outputs] if outputs is not None else None,
    ).of(plan, launcher)
