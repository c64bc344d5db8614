"""What a product split in three (tf32x3) leaves of registers, and so of tiles."""

from gemmgen.hardware.targets import Target
from gemmgen.schedules.parts.tile import LINE_BYTES, Product


def _in_registers(product: Product, target: Target) -> bool:
    """Whether the parts of A's and B's blocks are in registers, as mma reads them."""
    return product.mma.terms > 1 and target.unit == "mma"


def line_bytes(product: Product, target: Target) -> int:
    """Bytes of K that a block is made of: a cache line, or a half if it is split.

    With whole lines Triton 3.8 spills in the K loop, up to 248 bytes for sm_80.
    """
    return LINE_BYTES // 2 if _in_registers(product, target) else LINE_BYTES


def most_accumulator_registers(product: Product, target: Target) -> int:
    """32-bit registers that a thread's accumulator may take beside parts and addresses.

    With 64 of them and half lines Triton 3.8 spills up to 56 bytes for sm_120.
    """
    return 32 if _in_registers(product, target) else 64
