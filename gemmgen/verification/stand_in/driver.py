"""A driver of GPUs that are not there: devices, streams, graphs, and every launch.

Stands for what lies under Triton's launcher in C, for a process that does nothing else;
all above it, Triton's and torch's, is real.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

from gemmgen.verification.stand_in.compiled import (
    ARCHITECTURE,
    Compiled,
    Function,
    TensorMap,
)
from gemmgen.verification.stand_in.operators import pose
from gemmgen.verification.stand_in.tensors import Gpus

_ENCODER = "fill_tma_descriptor"
_ENCODER += "_tiled" * (f"{_ENCODER}_tiled" in inspect.getsource(nvidia))
"""What the installed Triton makes tensor maps with."""
DEVICES = 2
PROCESSORS = 132
SHARED = 232448


@dataclass
class Launched:
    """What reached the GPU: all that Triton's launcher in C was called with."""

    function: Function
    grid: tuple[int, int, int]
    stream: int
    scratch: tuple[Any, Any]
    arguments: tuple[Any, ...]
    device: int
    """The current one of the thread."""
    settings: tuple[Any, ...]
    capture: object
    through_triton: bool
    thread: int
    named: dict[str, Any] | None = None
    """The arguments by name, once they are known."""

    @property
    def complete(self) -> bool:
        """Whether it has the global memory that the kernel asks for."""
        notes = self.function.compiled.metadata
        asked = notes.global_scratch_size, notes.profile_scratch_size
        return all(at or not size for size, at in zip(asked, self.scratch, strict=True))


@dataclass
class Thread(threading.local):
    """What CUDA keeps for each thread."""

    device: int = 0
    bound: bool = False
    """Whether it has a context, which its first call of CUDA's runtime gives it."""
    streams: dict[int, int] = field(default_factory=dict)
    through_triton: bool = False


class Driver:
    """The driver that Triton is given, and the GPUs that torch is."""

    def __init__(self) -> None:
        self.gpus = Gpus(DEVICES)
        pose(self.gpus)
        self.gpus.on_wait = self.wait
        self.gpus.on_take = lambda: self.point("memory")
        self.gpus.on_zeros = self.zeros
        self.zeroed: dict[int, object] = {}
        """The graph in which there was last something filled with zeros; None: none."""
        self.thread = Thread()
        self.launches: list[Launched] = []
        self.count = 0
        self.captures: dict[tuple[int, int], object] = {}
        self.scratch = (0, 0)
        """Bytes of global memory that kernels compiled from now on ask for, and of it
        for profiling."""
        self.on_launch: Callable[[Launched], object] = lambda launched: None
        """Told of each launch; what it raises, the launch fails with."""
        self.point: Callable[[str], object] = lambda name: None
        """Told each thing that a thread does, before it does."""
        self.launcher_cls = nvidia.CudaLauncher
        self.utils = SimpleNamespace(
            **{_ENCODER: self.encode},
            get_device_properties=lambda device: {"max_shared_mem": SHARED},
            load_binary=self.load,
            unload_module=lambda module: None,
            launch=self.launch_together,
            build_signature_metadata=lambda signature: signature,
        )

    # What Triton asks.

    def get_current_device(self) -> int:
        """The thread's device."""
        self.point("device")
        return self.thread.device

    def get_current_stream(self, device: int) -> int:
        """The handle of a device's current stream; 0 is the default of each."""
        self.point("stream")
        return self.thread.streams.get(device, 0)

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return GPUTarget("cuda", ARCHITECTURE, 32)

    def load(
        self, name: str, kernel: Compiled, shared: int, device: int
    ) -> tuple[Any, ...]:
        """A loaded kernel: module, function, registers, spills, threads."""
        self.thread.bound = True
        return object(), Function(kernel, device), 32, 0, 1024

    def encode(
        self, address: int, swizzle: int, size: int, element: int, block: Any,
        shape: Any, strides: Any, padding: int,
    ) -> TensorMap:  # fmt: skip
        """A tensor map; as in CUDA, none of nothing and none without a context."""
        if not self.thread.bound:
            raise RuntimeError("Triton Error [CUDA]: invalid device context")
        if 0 in shape:
            raise RuntimeError("Triton Error [CUDA]: invalid argument")
        sides = tuple(block), tuple(shape), tuple(strides)
        return TensorMap(address, element, *sides, padding)

    def compile(self, source: Any, target: Any = None, options: Any = None) -> Compiled:
        """As `triton.compile`: a kernel of its own each time, as Triton loads it."""
        return Compiled(source, options or {}, self.scratch)

    def launch(
        self, x: int, y: int, z: int, stream: int, function: Any, cooperative: Any,
        programmatic: Any, scratch: Any, profile: Any, packed: Any, metadata: Any,
        enter: Any, leave: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        """Triton 3.6's launcher in C, of one signature."""
        settings = (cooperative, programmatic, packed)
        self.note(
            function, (x, y, z), stream, (scratch, profile), settings,
            (enter, leave), metadata, arguments,
        )  # fmt: skip

    def launch_together(
        self, x: int, y: int, z: int, stream: int, function: Any, cooperative: Any,
        programmatic: Any, packed: Any, metadata: Any, enter: Any, leave: Any,
        scratch: Any, profile: Any, annotations: Any, signature: Any, arguments: Any,
    ) -> None:  # fmt: skip
        """The launcher in C of Triton 3.7 and later, of all signatures."""
        settings = (cooperative, programmatic, packed)
        self.note(
            function, (x, y, z), stream, (scratch, profile), settings,
            (enter, leave), metadata, tuple(arguments),
        )  # fmt: skip

    # What reaches a GPU, and what the CPU waits for.

    def note(
        self, function: Function, grid: tuple[int, int, int], stream: int,
        scratch: tuple[Any, Any], settings: tuple[Any, ...],
        hooks: tuple[Any, Any], metadata: Any, arguments: tuple[Any, ...],
    ) -> None:  # fmt: skip
        """Keep a launch; as in C, one of no programs does nothing."""
        self.point("launch")
        self.thread.bound = True
        enter, leave = hooks
        if enter is not None:
            enter(metadata)
        if min(grid) > 0:
            device = self.thread.device
            capture = self.captures.get(self._now(device))
            through = self.thread.through_triton
            plain = tuple(map(_plain, arguments))
            launched = Launched(
                function, grid, stream, scratch, plain, device, settings,
                capture, through, threading.get_ident(),
            )  # fmt: skip
            self.launches.append(launched)
            self.count += 1
            self.on_launch(launched)
        if leave is not None:
            leave(metadata)

    def wait(self) -> None:
        """The CPU waits for a GPU, which it must not while a graph is captured."""
        if self.capturing():
            raise RuntimeError("operation not permitted when stream is capturing")

    def zeros(self, address: int) -> None:
        """Note where something was filled with zeros."""
        self.zeroed[address] = self.captures.get(self._now(self.thread.device))

    def _now(self, device: int) -> tuple[int, int]:
        return device, self.thread.streams.get(device, 0)

    def capturing(self) -> bool:
        """Whether the thread's current stream is captured; that binds its context."""
        self.thread.bound = True
        return self._now(self.thread.device) in self.captures

    @contextmanager
    def stream(self, device: int, handle: int) -> Iterator[None]:
        """Make a stream its device's current one, and the device the current one."""
        before = self.thread.device, self.thread.streams.get(device, 0)
        self.thread.device, self.thread.streams[device] = device, handle
        try:
            yield
        finally:
            self.thread.device, self.thread.streams[device] = before

    @contextmanager
    def capture(self, device: int, handle: int) -> Iterator[object]:
        """As `torch.cuda.graph`: what is launched there is not run but kept."""
        graph, memory = object(), self.gpus.memories[device]
        with self.stream(device, handle):
            self.captures[device, handle] = graph
            memory.kept = True
            try:
                yield graph
            finally:
                memory.kept = False
                del self.captures[device, handle]


def _plain(argument: Any) -> Any:
    """An argument as the kernel gets it: of a tensor the address."""
    return argument.data_ptr() if isinstance(argument, torch.Tensor) else argument
