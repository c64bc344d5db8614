"""Table of GPU architectures: limits, rates and where each figure is from.

Rates are those of one well-known GPU of the architecture; they rank tiles and size
stages, they never decide whether a kernel is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmgen.tables.dtypes import MMAS

DESCRIBED_BYTES = 16
"""Bytes that rows are a multiple of where a tensor map describes them (CUDA driver API,
`cuTensorMapEncodeTiled`, `globalStrides`)."""


@dataclass(frozen=True)
class Rates:
    """How fast one GPU is: what calibration refits from timings, all above zero.

    Hz, bytes per second and seconds. `clock` is that under matrix load and
    `l2_bandwidth` that of all SMs together. `latency` is from a load to its data, which
    the stages hide, and `ramp` what filling and draining memory's queues costs a kernel
    that memory limits. A launch costs `launch` once, a tile `tile` outside its K loop.
    `store_bandwidth` is that at which an SM writes a tile or reads the parts of a split
    K, `handover` the gap between the tiles of consumers that take turns.
    """

    clock: float
    l2_bandwidth: float
    memory_bandwidth: float
    latency: float = 1.0e-6
    ramp: float = 2.3e-6
    launch: float = 2.85e-6
    tile: float = 1.5e-6
    store_bandwidth: float = 2.3e10
    handover: float = 0.16e-6


@dataclass(frozen=True)
class Target:
    """One architecture and the GPU that stands for it.

    `unit` is the fastest instruction that multiplies matrices: mma, wgmma or tcgen05,
    none of which can be used for another; every architecture has mma too. `tensor_maps`
    says whether blocks of memory can be loaded through tensor descriptors. Triton 3.6
    has a tensor-core path for fp64 where `fp64_unit` is mma. `shared_per_block` and
    `shared_per_sm` are bytes (CUDA C++ Programming Guide, table of technical
    specifications, as are threads and blocks; a block keeps 1 KiB for the system).
    `flops_per_clock` counts both halves of a multiply-add, per SM, by product: a
    dtype's name, or a precision of fp32 (vendor data sheets, rate / SMs / boost clock).
    """

    name: str
    architecture: int
    gpu: str
    sms: int
    unit: str
    fp64_unit: str
    tensor_maps: bool
    shared_per_block: int
    shared_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    flops_per_clock: Mapping[str, int] = field(hash=False)
    rates: Rates

    @property
    def reserved_per_block(self) -> int:
        """Shared memory that each resident block costs beside its own, in bytes."""
        return 1024

    def flops(self, kind: str) -> float:
        """FLOP per second of all SMs for a product of `flops_per_clock`."""
        return self.flops_per_clock[kind] * self.sms * self.rates.clock


def _rates(half: int, fp32: int, fp64: int) -> dict[str, int]:
    """FLOP per clock and SM by product."""
    rates = {"half": half, "fp32": fp32, "fp64": fp64}
    return {
        row.name: int(rates[row.rate] * row.pace) // row.terms for row in MMAS.values()
    }


TARGETS: dict[str, Target] = {
    row.name: row
    for row in (
        # Bandwidths but sm_90's are about 0.85 of the data sheets'; what is not given
        # is as on the H200, and L2 of sm_120 as of sm_89 by SM and clock.
        Target(
            "sm_80", 80, "A100", 108, "mma", "mma", False,
            166_912, 167_936, 2048, 32,
            _rates(2048, 128, 128), Rates(1.35e9, 5.0e12, 1.8e12),
        ),
        Target(
            "sm_86", 86, "RTX A6000", 84, "mma", "mma", False,
            101_376, 102_400, 1536, 16,
            _rates(1024, 256, 4), Rates(1.6e9, 2.5e12, 0.7e12),
        ),
        Target(
            "sm_89", 89, "L40S", 142, "mma", "mma", False,
            101_376, 102_400, 1536, 24,
            _rates(1024, 256, 4), Rates(2.2e9, 5.0e12, 0.8e12),
        ),
        Target(
            "sm_90", 90, "H200", 132, "wgmma", "mma", True,
            232_448, 233_472, 2048, 32,
            _rates(4096, 256, 256), Rates(1.46e9, 11.5e12, 4.48e12),
        ),
        Target(
            "sm_100", 100, "B200", 148, "tcgen05", "fma", True,
            232_448, 233_472, 2048, 32,
            _rates(8192, 256, 128), Rates(1.7e9, 18e12, 7.0e12),
        ),
        Target(
            "sm_120", 120, "RTX 5090", 170, "mma", "fma", True,
            101_376, 102_400, 1536, 24,
            _rates(512, 256, 4), Rates(2.4e9, 6.5e12, 1.5e12),
        ),
    )
}  # fmt: skip
