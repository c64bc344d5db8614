"""Accumulators of warp-specialized kernels: products of blocks, split K, parts.

A consumer has one in registers for each piece of the side that consumers share.
"""

import math

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from ..device import counts_last, splits_of
from .blocks import cut


@gluon.jit
def side(block, ROWS_FIRST: gl.constexpr):
    """A block as wgmma reads it, rows first."""
    return block if ROWS_FIRST else block.permute((1, 0))


@gluon.jit
def left_step(
    block, STEP: gl.constexpr, STEPS: gl.constexpr, HELD: gl.constexpr,
    SUM: gl.constexpr,
):  # fmt: skip
    """A step along K of a left side, in registers if it is among the first HELD.

    There it lies as products that sums of the layout SUM keep want it.
    """
    DEPTH: gl.constexpr = block.shape[1] // STEPS
    left = cut(block, STEP * DEPTH, DEPTH, 1)
    if STEP < HELD:
        WIDTH: gl.constexpr = 32 // block.dtype.primitive_bitwidth
        left = left.load(gl.DotOperandLayout(0, SUM, WIDTH))
    return left


@gluon.jit
def zero_sum(ROWS: gl.constexpr, COLUMNS: gl.constexpr, dtype: gl.constexpr):
    """Zeros in wgmma's accumulator layout, for products of elements of a dtype."""
    DEPTH: gl.constexpr = 256 // dtype.primitive_bitwidth  # of K, at a time
    SUM: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, COLUMNS, DEPTH], [[1, 0]] if gl.num_ctas() > 1 else []
    )
    return gl.zeros((ROWS, COLUMNS), gl.float32, SUM)


@gluon.jit
def zero_sums(ROWS: gl.constexpr, PIECES: gl.constexpr, dtype: gl.constexpr):
    """Zeros for each piece of the right side."""
    sums = ()
    for i in gl.static_range(len(PIECES)):
        sums += (zero_sum(ROWS, PIECES[i], dtype),)
    return sums


@gluon.jit
def begin_products(
    left, right_smem, stage, sums, adds, STEP: gl.constexpr, K_MAJOR: gl.constexpr
):
    """Begin to multiply a step along K of a block by each piece of a stage."""
    DEPTH: gl.constexpr = left.shape[1]
    begun = ()
    for i in gl.static_range(len(right_smem)):
        block = side(right_smem[i].index(stage), not K_MAJOR)
        right = cut(block, STEP * DEPTH, DEPTH, 0)
        total = hopper.warpgroup_mma(left, right, sums[i], is_async=True, use_acc=adds)
        begun += (total,)
    return begun


@gluon.jit
def wait_for_products(sums, PENDING: gl.constexpr):
    """The sums, once at most PENDING products are under way."""
    waited = hopper.warpgroup_mma_wait(PENDING, deps=sums)
    if len(sums) == 1:
        return (waited,)
    else:
        return waited


@gluon.constexpr_function
def size_of(sums):
    """The number of elements of several sums together."""
    return sum(math.prod(one.shape) for one in sums)


@gluon.jit
def flatten(acc):
    """A sum as a vector, of which every thread has four adjacent elements.

    Of 16 rows and 8 columns wgmma gives a thread two of each, the rows 8 apart.
    """
    cut = acc.reshape((acc.shape[0] // 16, 2, 8, acc.shape[1] // 8, 4, 2))
    return cut.permute((0, 3, 2, 4, 1, 5)).reshape((acc.shape[0] * acc.shape[1],))


@gluon.jit
def unflatten(acc, vector):
    """The inverse of `flatten`, in the layout of `acc`."""
    cut = vector.reshape((acc.shape[0] // 16, acc.shape[1] // 8, 8, 4, 2, 2))
    total = cut.permute((0, 4, 2, 1, 3, 5)).reshape(acc.shape)
    return gl.convert_layout(total, acc.type.layout)


@gluon.jit
def offsets_in(vector):
    """The offset of each element of a vector."""
    return gl.arange(0, vector.shape[0], layout=vector.type.layout)


@gluon.jit
def sum_vectors(partial, first_ptr, SPLIT_K, STEP: gl.constexpr):
    """The sum of SPLIT_K vectors like `partial`, STEP elements apart in memory."""
    LAYOUT: gl.constexpr = partial.type.layout
    offs = offsets_in(partial)
    total = gl.zeros(partial.shape, gl.float32, LAYOUT)
    for i in range(SPLIT_K):
        total += tl.load(first_ptr + i * STEP + offs, cache_modifier=".cg")
    return total


@gluon.jit
def finishes_sums(sums, partials_ptr, counters_ptr, slice_id, SPLIT_K):
    """Store a consumer's sums of this split of K; tell whether all splits are there.

    Each slice of a tile, numbered `slice_id`, has a counter of its own.
    """
    if SPLIT_K == 1:
        return True
    else:
        SIZE: gl.constexpr = size_of(sums)
        sum_ptr = splits_of(partials_ptr, slice_id, SPLIT_K, SIZE)
        sum_ptr += tl.program_id(1) * SIZE
        for i in gl.static_range(len(sums)):
            partial = flatten(sums[i])
            tl.store(sum_ptr + offsets_in(partial), partial)
            sum_ptr += partial.shape[0]
        return counts_last(counters_ptr + slice_id, SPLIT_K)


@gluon.jit
def sums_of_splits(sums, partials_ptr, counters_ptr, slice_id, SPLIT_K):
    """The sums of all splits of K, added in order."""
    if SPLIT_K == 1:
        return sums
    else:
        SIZE: gl.constexpr = size_of(sums)
        tl.store(counters_ptr + slice_id, 0)  # for the next launch
        sum_ptr = splits_of(partials_ptr, slice_id, SPLIT_K, SIZE)
        totals = ()
        for i in gl.static_range(len(sums)):
            partial = flatten(sums[i])
            total = sum_vectors(partial, sum_ptr, SPLIT_K, SIZE)
            totals += (unflatten(sums[i], total),)
            sum_ptr += partial.shape[0]
        return totals


@gluon.jit
def halves(acc):
    """A sum's left and right columns, which are in different registers."""
    COLUMNS: gl.constexpr = acc.shape[1] // 2
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        [3, 0], [4, 1], [16, COLUMNS, 8], [[1, 0]] if gl.num_ctas() > 1 else []
    )
    left, right = acc.reshape((acc.shape[0], 2, COLUMNS)).permute((0, 2, 1)).split()
    return gl.convert_layout(left, LAYOUT), gl.convert_layout(right, LAYOUT)


@gluon.jit
def halved(sums, MOST: gl.constexpr):
    """Sums of more than MOST columns as halves, others whole."""
    parts = ()
    for i in gl.static_range(len(sums)):
        if sums[i].shape[1] > MOST:
            left, right = halves(sums[i])
            parts += (left, right)
        else:
            parts += (sums[i],)
    return parts


@gluon.jit
def parts_of(sums, MOST: gl.constexpr):
    """A tile's sums in parts of at most MOST columns, a quarter of any at least."""
    return halved(halved(sums, MOST), MOST)
