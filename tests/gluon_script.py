"""Runs the variants of Gluon kernels in every order; prints a line of JSON for each.

A process of its own, for Triton's interpreter is patched for good.
"""

import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gemmgen.verification.gluon import kernel, policies
from gemmgen.verification.interpret import interpreter
from tests import gluon_faults, gluon_pieces

Made = Callable[[], tuple[list[Any], Callable[[Any], Any]]]
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


def described(M: int, K: int, rows: int) -> list[Any]:
    """The descriptors of A, B and C, of which blocks of so many rows are moved."""
    import triton.language as tl
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    torch.manual_seed(0)
    a = torch.randint(-3, 4, (M, K)).bfloat16()
    b = torch.randint(-3, 4, (16, K)).bfloat16()
    c = torch.full((M, 16), torch.nan).bfloat16()
    made = []
    for one, box in ((a, [rows, 16]), (b, [16, 16]), (c, [rows, 16])):
        layout = NVMMASharedLayout.get_default_for(box, tl.bfloat16)
        made.append(TensorDescriptor.from_tensor(one, box, layout))
    return made


def of_ring() -> tuple[list[Any], Callable[[Any], Any]]:
    """What the kernel of a ring takes, and what becomes of its product."""
    added = torch.arange(16, dtype=torch.float32)
    return [*described(M, K, 64), added, K, STAGES], lambda sums: 2 * sums + added


def of_pieces() -> tuple[list[Any], Callable[[Any], Any]]:
    """The same of the kernel of blocks in parts."""
    return described(64, 16, 32), lambda sums: sums


def said(module: ModuleType, made: Made, policy: policies.Policy, seed: int) -> str:
    """What is wrong with a kernel in one order; nothing if all is right."""
    given, finished = made()
    try:
        module.kernel.run((2 if len(given) > 3 else 1,), tuple(given), policy, seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    a, b, c = (one.base.float() for one in given[:3])
    want = finished(a @ b.T).bfloat16().float()
    return "" if torch.equal(c, want) else "wrong results"


def main() -> None:
    """Every variant in two runs of every policy."""
    interpreter.mend()
    kernel.interpret()
    for one, made in ((gluon_faults, of_ring), (gluon_pieces, of_pieces)):
        changes = {name: fault[:2] for name, fault in one.FAULTS.items()} | one.HARMLESS
        for number, (name, (before, after)) in enumerate(changes.items()):
            assert before in one.KERNEL, name
            text = one.KERNEL.replace(before, after, 1)
            module = imported(f"{made.__name__}_{number}", text)
            found = [
                said(module, made, policy, seed)
                for policy in policies.POLICIES
                for seed in (0, 1)
            ]
            print(json.dumps({"name": name, "said": found}), flush=True)


if __name__ == "__main__":
    main()
