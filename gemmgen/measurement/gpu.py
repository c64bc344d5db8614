"""The GPU that a race runs on: its flush, its marks, and what to say of it."""

import math
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version

import torch

from gemmgen.base.errors import EnvironmentMissing
from gemmgen.measurement.race import Call, wall_clock

_TIMES_L2 = 4
_MOST_PASSES = 64


class Gpu:
    """The current CUDA device.

    A flush writes a buffer of four times the L2 cache and reads it again: the writing
    evicts what earlier calls left there, the reading what the writing left, which would
    otherwise be written back to memory while the next call is timed: on an H200 that
    makes `F.linear` in bf16 at 1x28672x4096 take 70 µs instead of 62.
    """

    kind = "cuda"

    def __init__(self) -> None:
        require("timing")
        device = torch.device("cuda", torch.cuda.current_device())
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self._buffer = torch.empty(
            _TIMES_L2 * cache // 4, dtype=torch.float32, device=device
        )
        self._sum = torch.empty((), dtype=torch.float32, device=device)
        self._passes = 1
        self._seconds = self._pass_seconds()

    @property
    def flushed_bytes(self) -> int:
        """Bytes that a flush writes, and reads."""
        return int(self._buffer.nbytes)

    def cover(self, seconds: float) -> None:
        """Repeat the flush until it lasts at least so long."""
        passes = math.ceil(seconds / self._seconds)
        self._passes = max(1, min(_MOST_PASSES, passes))

    def timed(self, call: Call) -> Callable[[], float]:
        """Enqueue a flush, a mark, the call and a mark."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self._passes):
            self._flush()
        start.record()
        call()
        end.record()
        return lambda: float(start.elapsed_time(end)) * 1e-3

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def now(self) -> float:
        """The time in seconds."""
        return wall_clock()

    def _flush(self) -> None:
        self._buffer.zero_()
        torch.sum(self._buffer, dim=0, out=self._sum)

    def _pass_seconds(self) -> float:
        """The shortest of a few flushes."""
        return min(self._flush_seconds() for _ in range(5))

    def _flush_seconds(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self._flush()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


def require(what: str) -> None:
    """Raise `EnvironmentMissing` unless there is a GPU that torch can use."""
    if not torch.cuda.is_available():
        raise EnvironmentMissing(f"{what} needs an NVIDIA GPU that torch can use")


def choose(number: int) -> tuple[str, str]:
    """Make a GPU the current one, the same if there are fewer; its name and identity.

    A launcher may show each process its own GPU alone, as the first.
    """
    torch.cuda.set_device(number % torch.cuda.device_count())
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return found.name, str(found.uuid)


def architecture() -> int:
    """The compute capability of the current device as 10 * major + minor."""
    major, minor = torch.cuda.get_device_capability()
    return int(10 * major + minor)


def environment() -> dict[str, str]:
    """What a measurement holds for."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "gpu": torch.cuda.get_device_name(),
        "driver": _driver(),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
    }


def _driver() -> str:
    """The driver's version, which torch does not tell."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    lines = done.stdout.split("\n")
    return lines[0].strip() if done.returncode == 0 and lines[0] else "unknown"
