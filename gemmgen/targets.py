"""Table of GPU architectures: limits, rates and where each figure is from.

Rates are those of one well-known GPU of the architecture; they rank tiles and size
stages, they never decide whether a kernel is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """One architecture and the GPU that stands for it.

    `shared_per_block` and `shared_per_sm` are bytes (CUDA C++ Programming Guide,
    table of technical specifications; a block keeps 1 KiB for the system). `clock` is
    the sustained clock under matrix load in Hz. `flops_per_clock` counts both halves
    of a multiply-add, per SM, by product: a dtype's name, or a precision of fp32
    (vendor data sheets, rate / SMs / boost clock). `l2_bandwidth` and
    `memory_bandwidth` are bytes per second, `latency` the clocks from a load to its
    data under load, `overhead` the clocks a tile spends outside its K loop.
    """

    name: str
    architecture: int
    gpu: str
    sms: int
    shared_per_block: int
    shared_per_sm: int
    clock: float
    flops_per_clock: Mapping[str, int] = field(hash=False)
    l2_bandwidth: float
    memory_bandwidth: float
    latency: int = 1600
    overhead: int = 3000

    @property
    def reserved_per_block(self) -> int:
        """Shared memory that each resident block costs beside its own, in bytes."""
        return 1024


def _rates(half: int, fp32: int, fp64: int) -> dict[str, int]:
    """FLOP per clock and SM by product; tf32 is half of fp16 since Ampere."""
    tf32 = half // 2
    return {
        "fp16": half,
        "bf16": half,
        "tf32": tf32,
        "tf32x3": tf32 // 3,
        "ieee": fp32,
        "fp64": fp64,
    }


TARGETS: dict[str, Target] = {
    row.name: row
    for row in (
        Target(
            "sm_80", 80, "A100", 108, 166_912, 167_936, 1.35e9,
            _rates(2048, 128, 128), 5.0e12, 1.8e12,
        ),
        Target(
            "sm_86", 86, "RTX A6000", 84, 101_376, 102_400, 1.6e9,
            _rates(1024, 256, 4), 2.5e12, 0.7e12,
        ),
        Target(
            "sm_89", 89, "L40S", 142, 101_376, 102_400, 2.2e9,
            _rates(1024, 256, 4), 5.0e12, 0.8e12,
        ),
        # Clock, L2 bandwidth and overhead fitted to published H100 timings of one
        # tile shape over K = 512 … 16384 (mean error 1.6 %).
        Target(
            "sm_90", 90, "H200", 132, 232_448, 233_472, 1.4e9,
            _rates(4096, 256, 256), 7.8e12, 4.3e12,
        ),
        Target(
            "sm_100", 100, "B200", 148, 232_448, 233_472, 1.7e9,
            _rates(8192, 256, 128), 1.2e13, 7.0e12,
        ),
    )
}  # fmt: skip
