"""The sanitizers: what each is run by, what it looks at, whether it is there."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmgen.base.errors import EnvironmentMissing
from gemmgen.verification.run.process import Subject
from gemmgen.verification.sanitize import fpsan
from gemmgen.verification.sanitize.consan import CONSAN
from gemmgen.verification.sanitize.findings import FOUND
from gemmgen.verification.sanitize.fpsan import FPSAN
from gemmgen.verification.sanitize.instrumented import OWN

PROGRAM = "compute-sanitizer"
TOOLS: dict[str, tuple[str, ...]] = {
    # Symbols that torch looks up in vain are no errors of a kernel.
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
    "initcheck": (),
    CONSAN: (),
    FPSAN: (),
}
"""Each tool with its own options."""

_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from gemmgen.verification.sanitize.child import main; main()"
)


def require(device: str) -> None:
    """Raise `EnvironmentMissing` unless there are a GPU and the program."""
    if device != "cuda":
        raise EnvironmentMissing("--sanitize needs a GPU")
    if shutil.which(PROGRAM) is None:
        raise EnvironmentMissing(
            f"--sanitize needs {PROGRAM} on PATH; it is part of the CUDA toolkit"
        )


def lacking() -> dict[str, str]:
    """Tools that the installed Triton does not have, and where they are."""
    from triton._C.libtriton import passes

    if hasattr(passes.ttgpuir, "add_fp_sanitizer"):
        return {}
    return {FPSAN: f"Triton has it from {fpsan.SINCE} on"}


def concerned(tool: str, subjects: Sequence[Subject]) -> Sequence[Subject]:
    """The kernels that a tool has something to look at."""
    if tool in lacking():
        return []
    return [
        subject
        for subject in subjects
        if tool not in OWN or OWN[tool].concerns(subject.plan)
    ]


def command(tool: str, order: Path) -> list[str]:
    """What is run for one tool; `order` holds the job."""
    python = [sys.executable, "-I", "-c", _CODE, json.dumps(sys.path), str(order)]
    if tool in OWN:
        return python
    options = ["--tool", tool, "--error-exitcode", str(FOUND), *TOOLS[tool]]
    return [PROGRAM, *options, "--target-processes", "application-only", *python]


def environment(tool: str, device: str) -> dict[str, str]:
    """Each tensor its own allocation, so that what lies beyond its end is nobody's."""
    kept = {name: os.environ[name] for name in os.environ if name not in _ALLOCATORS}
    interpret = "1" if device == "cpu" else "0"
    return {
        **kept,
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "TRITON_INTERPRET": interpret,
        **(OWN[tool].ENVIRONMENT if tool in OWN else {}),
    }
