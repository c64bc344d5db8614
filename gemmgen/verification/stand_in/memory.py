"""Memory of GPUs that are not there: some of the host's, given out and taken back."""

import mmap
from dataclasses import dataclass
from threading import RLock

import torch

from gemmgen.verification.example.large_offsets import unreserved

_BYTES = 1 << 44
"""Of each GPU; but for what is written they are address space alone.

Room for thirty of the largest tensors that are tried: results that are kept keep what
their gradients need.
"""
_UNIT = 512
"""Allocations start at a multiple of it, as those of torch's own allocator do."""
_POISON, _POISONED = 0x5B, 8192
"""What new memory holds, in its first bytes."""


@dataclass(frozen=True)
class Block:
    """So many bytes that were taken, as which in number."""

    address: int
    size: int
    number: int

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size


class Memory:
    """The memory of one GPU: what was given back is given out again, lowest first."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.pages = unreserved(_BYTES)
        self.host = torch.frombuffer(self.pages, dtype=torch.int8)
        self.start: int = self.host.data_ptr()
        self.taken: dict[int, Block] = {}
        self.count = 0
        self.lock = RLock()
        self.kept = False
        """Whether what is taken now is a graph's, and given out again only after it."""

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
                last = self.taken[address].end
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
        for one in self.taken.values():
            if one.address <= address < one.end:
                return one
        return None

    def give_back(self, address: int) -> None:
        """Note that nobody has a tensor there any more."""
        del self.taken[address]

    def zero(self, tensor: torch.Tensor) -> None:
        """Fill a tensor with zeros; whole pages are let go, for new ones are zeros."""
        host = self.as_host(tensor)
        if not tensor.is_contiguous():
            host.zero_()
            return
        flat = host.view(-1).view(torch.int8)
        first = tensor.data_ptr() - self.start
        start = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (first + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if start >= end:
            flat.zero_()
            return
        self.pages.madvise(mmap.MADV_DONTNEED, start, end - start)
        flat[: start - first].zero_()
        flat[end - first :].zero_()

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
