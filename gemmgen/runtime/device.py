"""Device functions: order and offsets of tiles, row dots, split K, fast math."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma
from triton.language.extra import libdevice

from .support import INTERPRETED

# Triton 3.8 renamed these two, and 3.9 has no old names. Since then CTAs of a cluster
# can arrive at a barrier of another, without which none can load for all.
CLUSTERS = hasattr(tma, "async_load")
if CLUSTERS:
    tma_load, tma_store = tma.async_load, tma.async_store
else:
    tma_load, tma_store = (
        tma.async_copy_global_to_shared,
        tma.async_copy_shared_to_global,
    )


@triton.jit
def swizzle(
    pid, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The row and column, in tiles, of program `pid`'s tile of [M, N].

    Programs go down columns of GROUP_M tiles, so that L2 keeps their inputs.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    height = min(tiles_m - first_m, GROUP_M)
    within = pid % (GROUP_M * tiles_n)
    return first_m + within % height, within // height


@triton.jit
def aligned(length, stride, ALIGN: tl.constexpr, SIDE: tl.constexpr = 0):
    """Tell the compiler that a matrix's row length and stride are multiples of ALIGN.

    They are, in elements, so the values stay the same and loads along rows get wider.
    With SIDE 1, one element of each row in a tile, they may be anything.
    """
    STEP: tl.constexpr = 1 if SIDE == 1 else ALIGN
    return length // STEP * STEP, stride // STEP * STEP


@triton.jit
def span(tile, BLOCK: tl.constexpr, size, INDEX: tl.constexpr):
    """The offsets of a tile along an axis, and whether each is in range."""
    offs = (tile * BLOCK + tl.arange(0, BLOCK)).to(INDEX)
    return offs, offs < size


@gluon.jit
def span_in(first, SIDE: gl.constexpr, size, LAYOUT: gl.constexpr):
    """The offsets of a part of a tile along an axis, and whether each is in range."""
    offs = (first + gl.arange(0, SIDE, layout=LAYOUT)).to(gl.int64)
    return offs, offs < size


@triton.jit
def row_dot(
    a_ptr, a_rows, stride_ak, mask_m,
    b_ptr, b_rows, stride_bk, mask_n,
    k_begin, k_end, INDEX: tl.constexpr, BLOCK_K: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The dot products of rows of A with rows of B, in the type ACC, [m, n].

    `a_rows` [m] and `b_rows` [n] are the offsets of rows along K, `mask_m` and `mask_n`
    tell which exist; m or n is 1. No tensor core: one row would leave it 98 % idle, and
    memory is the limit anyway.
    """
    if a_rows.numel == 1:
        sums = streamed(
            a_ptr, a_rows, stride_ak, b_ptr, b_rows, stride_bk, mask_n,
            k_begin, k_end, INDEX, BLOCK_K, ACC,
        )[None, :]  # fmt: skip
    else:
        sums = streamed(
            b_ptr, b_rows, stride_bk, a_ptr, a_rows, stride_ak, mask_m,
            k_begin, k_end, INDEX, BLOCK_K, ACC,
        )[:, None]  # fmt: skip
    return sums


@triton.jit
def streamed(
    row_ptr, row, stride_row,
    ptr, rows, stride, mask,
    k_begin, k_end, INDEX: tl.constexpr, BLOCK_K: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The dot products of one row, which exists, with rows that stream past it, [n]."""
    offs_k = (k_begin + tl.arange(0, BLOCK_K)).to(INDEX)
    row_offs = row + offs_k * stride_row
    offs = rows[:, None] + offs_k[None, :] * stride
    products = tl.zeros(offs.shape, dtype=ACC)
    step = tl.full((), BLOCK_K, INDEX)
    # Unrolled, so that every thread has the loads of four blocks under way. Such a loop
    # must not have a negative length, as a split that is left without blocks has.
    for k in tl.range(0, max(k_end - k_begin, 0), BLOCK_K, loop_unroll_factor=4):
        mask_k = offs_k < k_end - k
        one = tl.load(row_ptr + row_offs, mask=mask_k, other=0.0)
        each = tl.load(ptr + offs, mask=mask[:, None] & mask_k[None, :], other=0.0)
        products += each.to(ACC) * one.to(ACC)[None, :]
        row_ptr += step * stride_row
        ptr += step * stride
    return tl.sum(products, axis=1)


@triton.jit
def split_range(K, SPLIT_K, BLOCK_K: tl.constexpr):
    """Begin and end of this program's split of K, in whole blocks but the last.

    Of a single split the compiler is told that it begins at 0: where elements are
    loaded one by one, 128 x 128 x 64 had no registers left for where that is.
    """
    if SPLIT_K == 1:
        return K * 0, K
    else:
        length = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
        k_begin = tl.program_id(1) * length
        return k_begin, min(K, k_begin + length)


@triton.jit
def splits_of(partials_ptr, tile, SPLIT_K, SIZE: tl.constexpr):
    """Where the partial sums of a tile are, SIZE elements for each split."""
    return partials_ptr + tl.cast(tile, tl.int64) * SPLIT_K * SIZE


@triton.jit
def counts_last(counter_ptr, SPLIT_K):
    """Count a split whose sum was stored; tell whether it is the tile's last one."""
    tl.debug_barrier()  # all threads have stored before one counts
    before = tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    return before == SPLIT_K - 1


@triton.jit
def finishes(acc, partials_ptr, counters_ptr, SPLIT_K):
    """Store the sum of this split; tell whether all splits of its tile are there."""
    SIZE: tl.constexpr = acc.numel
    split_ptr = splits_of(partials_ptr, tl.program_id(0), SPLIT_K, SIZE)
    split_ptr += tl.program_id(1).to(tl.int64) * SIZE
    tl.store(split_ptr + tl.arange(0, SIZE), acc.reshape(SIZE))
    return counts_last(counters_ptr + tl.program_id(0), SPLIT_K)


@triton.jit
def sum_splits(
    acc, partials_ptr, counters_ptr, SPLIT_K, PIPELINED: tl.constexpr = False
):
    """The sum of a tile's partial sums, in the order of splits; `acc` gives the shape.

    With PIPELINED, two are loaded ahead, or one of tiles beyond 128 x 128: a partial
    sum of those takes more than 64 KiB of shared memory.
    """
    SIZE: tl.constexpr = acc.numel
    STAGES: tl.constexpr = 3 - (SIZE > 16384) if PIPELINED else 1
    tl.store(counters_ptr + tl.program_id(0), 0)  # for the next launch
    partials_ptr = splits_of(partials_ptr, tl.program_id(0), SPLIT_K, SIZE)
    total = tl.zeros((SIZE,), dtype=acc.dtype)
    for i in tl.range(SPLIT_K, num_stages=STAGES):
        partial_ptr = partials_ptr + i * SIZE + tl.arange(0, SIZE)
        total += tl.load(partial_ptr, cache_modifier=".cg")
    return total.reshape(acc.shape)


EMULATED = tl.constexpr(INTERPRETED)  # the interpreter has no libdevice


@triton.jit
def fast_exp2(x):
    """Return 2^x; in fp32 by one instruction, which flushes subnormals."""
    return tl.exp2(x) if EMULATED else libdevice.exp2(x)


@triton.jit
def fast_divide(x, y):
    """Return x / y; in fp32 by two instructions, for y up to 2^126, no subnormals."""
    if EMULATED or y.dtype == tl.float64:
        return x / y
    else:
        return libdevice.fast_dividef(x, y)


@triton.jit
def normal_cdf(x):
    """Return the cumulative normal distribution of x.

    In fp32 it is e^(-x^2 / 2) q(t) for x < 0, where t = 1 / (1 + 0.305 |x|); q was
    fitted to 1e-7 of the value for |x| < 14. Beyond that, only subnormals are lost.
    """
    if x.dtype == tl.float64:
        return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        t = fast_divide(1.0, 1.0 + 0.305 * tl.abs(x))
        q = 0.036698742 * t - 0.15298651
        q = ((q * t + 0.185713906) * t - 0.0379741617) * t + 0.121020312
        q = ((q * t + 0.103421268) * t + 0.122466754) * t + 0.121639737
        tail = fast_exp2(-0.72134752 * x * x) * t * q
        return tl.where(x < 0, tail, 1.0 - tail)


@triton.jit
def times_ndtr(x):
    """Return x times its cumulative normal distribution.

    In fp32 as x / (1 + 2^z), where z, a polynomial, was fitted to 3e-8 of that factor;
    far below zero, where it is as small, most of its digits are lost.
    """
    if x.dtype == tl.float64:
        return x * normal_cdf(x)
    else:
        s = x * x
        p = (3.81639677e-7 - 5.06754143e-9 * s) * s - 1.14399156e-5
        p = ((p * s + 1.59580291e-4) * s + 9.40485677e-5) * s - 0.104835121
        z = x * (p * s - 2.3022093)
        return fast_divide(x, 1.0 + fast_exp2(z))
