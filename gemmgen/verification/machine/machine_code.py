"""Reads what the compiler wrote: PTX for how data moves, resources for spills.

It must not know what was planned, only what is there.
"""

import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass

import triton

_COPY = re.compile(
    r"cp\.async\.c[ag]\.shared\.global[\w.:]*\s*"
    r"\[[^\]]*\],\s*\[[^\]]*\],\s*(0x[0-9a-f]+|\d+)"
)
_LOAD = re.compile(r"\bld\.global((?:\.\w+(?:::\w+)*)*)")
_WIDTH = re.compile(r"\.[a-z](\d+)$")


@dataclass(frozen=True)
class Usage:
    """What a kernel takes of an SM for each thread: registers, and bytes of stack."""

    registers: int
    stack: int


def usage(cubin: bytes) -> Usage:
    """The resources of a compiled kernel. The stack holds what registers could not."""
    text = dump(cubin, "-res-usage")
    found = dict(re.findall(r"(REG|STACK):(\d+)", text))
    return Usage(int(found["REG"]), int(found["STACK"]))


def copies(ptx: str) -> Counter[int]:
    """Asynchronous copies of K blocks to shared memory, by the bytes of a thread.

    What is copied after an atomic operation are the parts that it counted.
    """
    blocks = re.split(r"\batom\.", ptx, maxsplit=1)[0]
    return Counter(int(size, 0) for size in _COPY.findall(blocks))


def block_loads(ptx: str) -> int:
    """Loads of whole blocks through tensor maps."""
    return len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.shared::\w+\.global", ptx))


def block_stores(ptx: str) -> int:
    """Stores of whole blocks through tensor maps."""
    return len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.global\.shared::", ptx))


def loads(ptx: str) -> Counter[int]:
    """Loads from global memory to registers, by the bytes that a thread loads."""
    found: Counter[int] = Counter()
    for suffix in _LOAD.findall(ptx):
        width = _WIDTH.search(suffix)
        if width:
            vector = re.search(r"\.v(\d)", suffix)
            found[int(width[1]) // 8 * int(vector[1] if vector else 1)] += 1
    return found


def dump(cubin: bytes, what: str) -> str:
    """What cuobjdump says of a compiled kernel, `what` being its option."""
    tools = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(cubin)
        return subprocess.run(
            [os.path.join(tools, "cuobjdump"), what, path],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PATH": tools + os.pathsep + os.environ.get("PATH", "")},
        ).stdout
