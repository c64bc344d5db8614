"""Puts the stand-in where torch and Triton look for GPUs, for good."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.nvidia import driver as nvidia
from triton.runtime import interpreter

from gemmgen.verification.interpret.interpreter import Autotuned
from gemmgen.verification.stand_in.compiled import ARCHITECTURE
from gemmgen.verification.stand_in.driver import DEVICES, PROCESSORS, SHARED, Driver


class _Exchanged:
    """`torch.cuda.device` for the stand-in."""

    def __init__(self, driver: Driver, device: Any) -> None:
        self.driver = driver
        self.device = _index(device)

    def __enter__(self) -> None:
        self.before = self.driver.thread.device
        self.driver.thread.device = self.device

    def __exit__(self, *_: object) -> None:
        self.driver.thread.device = self.before


def _index(device: Any) -> int:
    return device if isinstance(device, int) else torch.device(device).index


def install() -> Driver:
    """Let torch and Triton of this process take the stand-in for their GPUs."""
    driver = Driver()
    _pose_as_torch(driver)
    _pose_as_triton(driver)
    return driver


def _pose_as_torch(driver: Driver) -> None:
    """What torch asks CUDA."""
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: DEVICES
    cuda.current_device = driver.get_current_device
    cuda.set_device = lambda device: setattr(driver.thread, "device", _index(device))
    cuda.device = lambda device: _Exchanged(driver, device)
    cuda.get_device_capability = lambda *_: divmod(ARCHITECTURE, 10)
    cuda.get_device_properties = lambda *_: SimpleNamespace(
        multi_processor_count=PROCESSORS, major=9, minor=0, name="stand-in",
        shared_memory_per_block_optin=SHARED,
    )  # fmt: skip
    cuda.is_current_stream_capturing = driver.capturing
    cuda.current_stream = lambda device=None: SimpleNamespace(
        cuda_stream=driver.get_current_stream(
            driver.thread.device if device is None else _index(device)
        )
    )
    cuda.synchronize = lambda *_: driver.wait()
    cuda.get_allocator_backend = lambda: "native"
    cuda.memory_snapshot = list  # of a GPU that has no pools
    torch._C._cuda_getDevice = driver.get_current_device
    torch._C._cuda_getCurrentRawStream = driver.get_current_stream
    guards: Any = torch._C._dynamo.guards
    guards._empty_strided_cuda = lambda shape, strides, dtype: torch.empty_strided(
        shape, strides, dtype=dtype, device="cuda"
    )


def _pose_as_triton(driver: Driver) -> None:
    """What Triton asks the driver and its compiler; there is nothing to be timed."""
    module: Any = nvidia
    module.library_dirs = list
    module.make_launcher = lambda *_: ""
    module.compile_module_from_src = lambda **_: SimpleNamespace(launch=driver.launch)
    module.PyKernelArg = SimpleNamespace
    module.ARG_CONSTEXPR, module.ARG_KERNEL, module.ARG_TUPLE = range(3)
    module.CudaLauncher.__call__ = _seen(driver, module.CudaLauncher.__call__)
    triton.compiler.compile = driver.compile
    triton.autotune = lambda configs, **_: lambda kernel: Autotuned(kernel, configs)
    interpreter._patch_lang = _lasting(interpreter._patch_lang)
    triton.runtime.driver.set_active(driver)


def _lasting(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Patch `triton.language` for good, once a module: nothing is compiled here."""
    patched: set[int] = set()

    def once(kernel: Any) -> Any:
        if id(kernel.__globals__) not in patched:
            patched.add(id(kernel.__globals__))
            patch(kernel)
        return SimpleNamespace(restore=lambda: None)

    return once


def _seen(driver: Driver, call: Callable[..., Any]) -> Callable[..., Any]:
    """Triton's own launch, noted as such."""

    def seen(*arguments: Any, **named: Any) -> Any:
        driver.thread.through_triton = True
        try:
            return call(*arguments, **named)
        finally:
            driver.thread.through_triton = False

    return seen
