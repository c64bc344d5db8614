"""Memory of GPUs that are not there: tensors of device `cuda` over the host's memory.

They are torch's own tensors, so that nothing which looks at one can tell. What torch
cannot do with them without CUDA is done on the CPU, at the same addresses.
"""

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch.utils._pytree import tree_map

_BYTES = 1 << 39
"""Of each GPU; but for what is written they are address space alone."""
_UNIT = 512
"""Allocations start at a multiple of it, as those of torch's own allocator do."""
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # the name is Python 3.11's
_POISON, _POISONED = 0x5B, 8192
"""What new memory holds, in its first bytes."""
_CUDA, _META = 1, 14
"""Kinds of device as DLPack calls the one that both know, and c10 the other."""


@dataclass(frozen=True)
class Block:
    """So many bytes that were taken, as which in number."""

    address: int
    size: int
    number: int


class Memory:
    """The memory of one GPU: what was given back is given out again, lowest first."""

    def __init__(self, device: int) -> None:
        self.device = device
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        self.pages = mmap.mmap(-1, _BYTES, flags=flags)
        self.host = torch.frombuffer(self.pages, dtype=torch.int8)
        self.start: int = self.host.data_ptr()
        self.taken: dict[int, Block] = {}
        self.count = 0
        self.lock = RLock()
        self.kept = False
        """Whether what is taken now is never given out again, as a graph's memory."""

    def holds(self, address: int) -> bool:
        """Whether an address is of this GPU."""
        return self.start <= address < self.start + _BYTES

    def take(self, size: int) -> int:
        """The address of so many bytes."""
        with self.lock:
            last = self.start
            for address in sorted(self.taken):
                if address - last >= size:
                    break
                last = address + self.taken[address].size
            if last + size > self.start + _BYTES:
                raise torch.OutOfMemoryError("out of a stand-in's memory")
            self.count += 1
            size = -(-size // _UNIT) * _UNIT
            self.taken[last] = Block(last, size, self.count)
        place = last - self.start
        self.host[place : place + min(size, _POISONED)] = _POISON
        return last

    def block(self, address: int) -> Block | None:
        """What was taken and not given back that holds an address."""
        with self.lock:
            for one in self.taken.values():
                if one.address <= address < one.address + one.size:
                    return one
        return None

    def give_back(self, address: int) -> None:
        """Note that nobody has a tensor there any more."""
        with self.lock:
            del self.taken[address]

    def as_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements as a tensor of the CPU."""
        width, offset = tensor.element_size(), tensor.data_ptr() - self.start
        if not tensor.numel():
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype
            )
        flat = self.host[offset % width :][: (_BYTES // width - 1) * width]
        return flat.view(tensor.dtype).as_strided(
            tensor.shape, tensor.stride(), offset // width
        )


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


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter),
)  # fmt: skip
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Gpus:
    """GPUs as torch knows them: makes their tensors, and does what is done to them."""

    def __init__(self, count: int) -> None:
        self.memories = [Memory(device) for device in range(count)]
        self.alive: dict[int, tuple[Any, ...]] = {}
        self.deleter = _Deleter(self._gone)
        self.on_zeros: Callable[[int], object] = lambda address: None
        """Told where a tensor was filled with zeros."""
        self.on_take: Callable[[], object] = lambda: None
        """Told when memory is taken, before it is."""
        self.on_wait: Callable[[], object] = lambda: None
        """Told when the CPU waits for a GPU."""
        _pose(self)

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
        size = -(-size // 16) * 16
        address = memory.take(size)
        shape, strides = (ctypes.c_int64 * 1)(size), (ctypes.c_int64 * 1)(1)
        where = _Device(2, device)
        tensor = _Tensor(address, where, 1, _Type(0, 8, 1), shape, strides, 0)
        managed = _Managed(tensor, None, self.deleter)
        place = ctypes.addressof(managed)
        self.alive[place] = (managed, shape, strides, memory, address, memory.kept)
        return torch._C._from_dlpack(_capsule(place, b"dltensor", None))

    def _gone(self, managed: Any) -> None:
        *_, memory, address, kept = self.alive.pop(ctypes.addressof(managed.contents))
        if not kept:
            memory.give_back(address)

    def as_host(self, value: Any) -> Any:
        """A tensor of a GPU as one of the CPU, at the same address; else the value."""
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return self.memories[value.get_device()].as_host(value)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value


def _pose(gpus: Gpus) -> None:
    """Let torch take tensors of device `cuda` for its own."""
    torch.cuda._lazy_init = lambda: None
    torch._C._ensureCUDADeviceGuardSet()
    if not torch.backends.cuda.is_built():
        # Nothing guards the current device then; nothing need, as for meta tensors.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(
            library, "_ZN3c104impl26device_guard_impl_registryE"
        )
        guards[_CUDA] = guards[_META]
    aten = torch.library.Library("aten", "IMPL", "CUDA")
    every = torch.library.Library("_", "IMPL", "CUDA")
    gpus.registered = aten, every  # type: ignore[attr-defined]
    functions = _functions(gpus)
    for name, function in functions.items():
        aten.impl(name, function, allow_override=True)
    every.fallback(_on_the_cpu(gpus), "CUDA")


def _functions(gpus: Gpus) -> dict[str, Callable[..., Any]]:
    """What torch must do to tensors of GPUs beside their numbers."""

    def as_strided(
        tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None
    ) -> torch.Tensor:
        offset = tensor.storage_offset() if offset is None else offset
        return tensor.detach().as_strided_(size, stride, offset)

    def view(tensor: torch.Tensor, size: Any) -> torch.Tensor:
        like = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
        like = like.view(size)
        return as_strided(tensor, like.shape, like.stride())

    def empty(
        size: Any, *, dtype: Any = None, device: Any = None, **_: Any
    ) -> torch.Tensor:
        strides = torch.empty(size, device="meta").stride()
        return empty_strided(size, strides, dtype=dtype, device=device)

    def empty_strided(
        size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any
    ) -> torch.Tensor:
        index = torch.device(device).index
        index = torch.cuda.current_device() if index is None else index
        return gpus.empty(size, stride, dtype or torch.float32, index)

    def zero_(tensor: torch.Tensor) -> torch.Tensor:
        gpus.as_host(tensor).zero_()
        gpus.on_zeros(tensor.data_ptr())
        return tensor

    def item(tensor: torch.Tensor) -> Any:
        gpus.on_wait()
        return gpus.as_host(tensor).item()

    return {
        "as_strided": as_strided,
        "view": view,
        "empty.memory_format": empty,
        "empty_strided": empty_strided,
        "zero_": zero_,
        "_local_scalar_dense": item,
    }


def _on_the_cpu(gpus: Gpus) -> Callable[..., Any]:
    """Any other function of torch: its result is a new tensor, or one of its own."""

    def run(operation: Any, *arguments: Any, **named: Any) -> Any:
        given = [one for one in arguments if isinstance(one, torch.Tensor)]
        hosts = [gpus.as_host(one) for one in given]
        known = dict(zip(map(id, given), hosts, strict=True))
        inside = [known.get(id(one), gpus.as_host(one)) for one in arguments]
        named = {key: gpus.as_host(value) for key, value in named.items()}
        device = next((one.get_device() for one in given if one.is_cuda), 0)

        def back(value: Any) -> Any:
            for one, host in zip(given, hosts, strict=True):
                if value is host:
                    return one
            if not isinstance(value, torch.Tensor):
                return value
            made = gpus.empty(value.shape, value.stride(), value.dtype, device)
            gpus.as_host(made).copy_(value)
            return made

        return tree_map(back, operation(*inside, **named))

    return run
