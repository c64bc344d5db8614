"""Tensors of GPUs that are not there: of device `cuda`, over the host's memory.

They are torch's own tensors, so that nothing which looks at one can tell.
"""

import ctypes
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gemmgen.verification.stand_in.memory import Block, Memory


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_int))


class _Type(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    )  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int),
        ("type", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """DLPack's `DLManagedTensor`, by which torch takes tensors of others."""

    _fields_ = (
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    )  # fmt: skip


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@dataclass(eq=False)
class _Alive:
    """Memory that tensors lie in, and what torch must find as long as they do.

    A graph's is `kept` without any.
    """

    storage: StorageWeakRef
    passed: tuple[Any, ...]
    memory: Memory
    address: int
    kept: bool


class Gpus:
    """GPUs as torch knows them: makes their tensors, and does what is done to them."""

    def __init__(self, count: int) -> None:
        self.memories = [Memory(device) for device in range(count)]
        self.alive: list[_Alive] = []
        self.on_zeros: Callable[[int], object] = lambda address: None
        """Told where a tensor was filled with zeros."""
        self.on_take: Callable[[], object] = lambda: None
        """Told when memory is taken, before it is."""
        self.on_wait: Callable[[], object] = lambda: None
        """Told when the CPU waits for a GPU."""

    def memory_of(self, address: int) -> Memory | None:
        """Whose an address is."""
        return next((one for one in self.memories if one.holds(address)), None)

    def empty(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        device: int,
    ) -> torch.Tensor:
        """A new tensor."""
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        elements = last + 1 if all(shape) else 1
        flat = self._bytes(elements * dtype.itemsize, device).view(dtype)
        return flat.detach().as_strided_(tuple(shape), tuple(strides))

    def _bytes(self, size: int, device: int) -> torch.Tensor:
        self.on_take()
        memory = self.memories[device]
        with memory.lock:
            self._sweep()
            size = -(-size // 16) * 16
            address = self._taken(memory, size)
            shape, strides = (ctypes.c_int64 * 1)(size), (ctypes.c_int64 * 1)(1)
            where = _Device(2, device)
            tensor = _Tensor(address, where, 1, _Type(0, 8, 1), shape, strides, 0)
            managed = _Managed(tensor, None, None)
            place = ctypes.addressof(managed)
            made = torch._C._from_dlpack(_capsule(place, b"dltensor", None))
            storage = StorageWeakRef(made.untyped_storage())
            passed = managed, shape, strides
            self.alive.append(_Alive(storage, passed, memory, address, memory.kept))
        return made

    def _taken(self, memory: Memory, size: int) -> int:
        """The address of so many bytes; errors that nobody has may hold tensors yet."""
        try:
            return memory.take(size)
        except torch.OutOfMemoryError:
            gc.collect()
            self._sweep()
            return memory.take(size)

    def block(self, device: int, address: int) -> Block | None:
        """What somebody has at an address."""
        memory = self.memories[device]
        with memory.lock:
            self._sweep()
            return memory.block(address)

    def _sweep(self) -> None:
        """Take back what nobody has any more.

        Torch would tell at once, but also where an exception is under way, and Python
        must not run there.
        """
        gone = [one for one in self.alive if one.storage.expired() and not one.kept]
        for one in gone:
            self.alive.remove(one)
            one.memory.give_back(one.address)

    def drop_graphs(self) -> None:
        """Every graph has gone: its memory is its tensors' alone."""
        for one in self.alive:
            one.kept = False

    def as_host(self, value: Any) -> Any:
        """A tensor of a GPU as one of the CPU, at the same address; else the value."""
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return self.memories[value.get_device()].as_host(value)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value
