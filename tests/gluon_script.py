"""Runs the variants of a Gluon kernel in every order; prints a line of JSON for each.

A process of its own, for Triton's interpreter is patched for good.
"""

import importlib.util
import json
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gemmgen.verification.gluon import kernel, policies
from gemmgen.verification.interpret import interpreter
from tests.gluon_faults import FAULTS, HARMLESS, KERNEL

M, K, STAGES = 300, 88, 2
"""Three tiles of 128 rows, the last of 44; six blocks of K, the last of 8."""


def imported(name: str, text: str) -> ModuleType:
    """A module of this text, whose source can be looked up."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(kind: Any, layout: Any) -> list[Any]:
    """The descriptors and the vector that the kernel takes, and what it returns."""
    torch.manual_seed(0)
    a = torch.randint(-3, 4, (M, K)).bfloat16()
    b = torch.randint(-3, 4, (16, K)).bfloat16()
    c = torch.full((M, 16), torch.nan).bfloat16()
    d = torch.arange(16, dtype=torch.float32)
    boxes = ((a, [64, 16]), (b, [16, 16]), (c, [64, 16]))
    described = [kind.from_tensor(one, box, layout(box)) for one, box in boxes]
    return [*described, d, K, STAGES]


def said(module: ModuleType, policy: policies.Policy, seed: int) -> str:
    """What is wrong with a kernel in one order; nothing if all is right."""
    import triton.language as tl
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    def layout(box: list[int]) -> Any:
        return NVMMASharedLayout.get_default_for(box, tl.bfloat16)

    given = arguments(TensorDescriptor, layout)
    try:
        module.kernel.run((2,), tuple(given), policy, seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    a, b, c = (one.base.float() for one in given[:3])
    want = (2 * (a @ b.T) + given[3]).bfloat16().float()
    return "" if torch.equal(c, want) else "wrong results"


def main() -> None:
    """Every variant in two runs of every policy."""
    interpreter.mend()
    kernel.interpret()
    changes = {name: fault[:2] for name, fault in FAULTS.items()} | HARMLESS
    for number, (name, (before, after)) in enumerate(changes.items()):
        assert before in KERNEL, name
        module = imported(f"variant_{number}", KERNEL.replace(before, after, 1))
        found = [
            said(module, policy, seed)
            for policy in policies.POLICIES
            for seed in (0, 1)
        ]
        print(json.dumps({"name": name, "said": found}), flush=True)


if __name__ == "__main__":
    main()
