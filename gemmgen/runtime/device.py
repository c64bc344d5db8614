"""Functions of the device that kernels call: order of tiles, copies, fast division."""

import triton
import triton.language as tl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.language.extra import libdevice

from .support import INTERPRETED

# Triton 3.8 renamed these two, and 3.9 raises an error at their old names.
load_block = getattr(tma, "async_load", tma.async_copy_global_to_shared)
store_block = getattr(tma, "async_store", tma.async_copy_shared_to_global)


@triton.jit
def swizzle(pid, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """The tile of a program: down columns of GROUP_M tiles, whose inputs L2 keeps."""
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    within = pid % (GROUP_M * tiles_n)
    return first_m + within % height, within // height


if INTERPRETED:  # without CUDA's library

    @triton.jit
    def fast_exp2(x):
        """Return 2^x."""
        return tl.exp2(x)

    @triton.jit
    def fast_divide(x, y):
        """Return x / y."""
        return x / y

else:

    @triton.jit
    def fast_exp2(x):
        """Return 2^x; in fp32 by one instruction, which loses subnormal numbers."""
        return libdevice.exp2(x)

    @triton.jit
    def fast_divide(x, y):
        """Return x / y; in fp32 by two, which lose subnormals and y beyond 2^126."""
        return x / y if y.dtype == tl.float64 else libdevice.fast_dividef(x, y)
