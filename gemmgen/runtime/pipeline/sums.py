"""Sums of warp-specialized kernels: products of blocks, splits of K, parts of a tile.

A consumer has a sum for each piece of the side that is not cut, in registers.
"""

import math

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from ..device import counts_last, splits_of
from ..tile import MOST_STORED
from .blocks import columns_of, pieces_of

MOST_STORED = gl.constexpr(MOST_STORED)


@gluon.jit
def side(block, ROWS_FIRST: gl.constexpr, SUM: gl.constexpr = None):
    """A block as wgmma reads it: rows first, in registers if the layout of a SUM."""
    turned = block if ROWS_FIRST else block.permute((1, 0))
    return turned if SUM is None else turned.load(gl.DotOperandLayout(0, SUM, 1))


@gluon.jit
def no_sum(ROWS: gl.constexpr, COLUMNS: gl.constexpr, dtype: gl.constexpr):
    """What products of such elements are added to, where wgmma leaves their sum."""
    DEPTH: gl.constexpr = 256 // dtype.primitive_bitwidth  # of K, at a time
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, DEPTH])
    return gl.zeros((ROWS, COLUMNS), gl.float32, SUM)


@gluon.jit
def no_sums(
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, NUM_WGS: gl.constexpr,
    dtype: gl.constexpr,
):  # fmt: skip
    """One for each piece of the right side."""
    PIECES: gl.constexpr = pieces_of(COLUMNS, columns_of(NUM_WGS))
    sums = ()
    for i in gl.static_range(len(PIECES)):
        sums += (no_sum(ROWS, PIECES[i], dtype),)
    return sums


@gluon.jit
def begin_products(left, right_smem, stage, sums, adds, K_MAJOR: gl.constexpr):
    """Have a block multiplied with each piece of a stage."""
    begun = ()
    for i in gl.static_range(len(right_smem)):
        right = side(right_smem[i].index(stage), not K_MAJOR)
        total = hopper.warpgroup_mma(left, right, sums[i], is_async=True, use_acc=adds)
        begun += (total,)
    return begun


@gluon.jit
def wait_for_products(sums, PENDING: gl.constexpr):
    """The sums, when no more products than so many are under way."""
    waited = hopper.warpgroup_mma_wait(PENDING, deps=sums)
    if len(sums) == 1:
        return (waited,)
    else:
        return waited


@gluon.constexpr_function
def size_of(sums):
    """How many elements several sums have together."""
    return sum(math.prod(one.shape) for one in sums)


@gluon.jit
def flat(acc):
    """A sum as a vector, of which every thread has four elements beside each other.

    Of 16 rows and 8 columns wgmma leaves a thread two each, the rows 8 apart.
    """
    cut = acc.reshape((acc.shape[0] // 16, 2, 8, acc.shape[1] // 8, 4, 2))
    return cut.permute((0, 3, 2, 4, 1, 5)).reshape((acc.shape[0] * acc.shape[1],))


@gluon.jit
def like(acc, vector):
    """Such a vector as the sum again that it would be of."""
    cut = vector.reshape((acc.shape[0] // 16, acc.shape[1] // 8, 8, 4, 2, 2))
    total = cut.permute((0, 4, 2, 1, 3, 5)).reshape(acc.shape)
    return gl.convert_layout(total, acc.type.layout)


@gluon.jit
def offsets_in(vector):
    """The offset of each element of a vector."""
    return gl.arange(0, vector.shape[0], layout=vector.type.layout)


@gluon.jit
def sum_vectors(kept, first_ptr, SPLIT_K, STEP: gl.constexpr):
    """The sum of vectors like the one `kept`, each STEP elements after the other."""
    LAYOUT: gl.constexpr = kept.type.layout
    offs = offsets_in(kept)
    total = gl.zeros(kept.shape, gl.float32, LAYOUT)
    for i in range(SPLIT_K):
        total += tl.load(first_ptr + i * STEP + offs, cache_modifier=".cg")
    return total


@gluon.jit
def finishes_sums(sums, partials_ptr, counters_ptr, place, SPLIT_K):
    """Keep a consumer's sums of this split of K; tell whether all splits are there now.

    Its slice of a tile has a `place` and a count of its own. K in one part is all.
    """
    if SPLIT_K == 1:
        return True
    else:
        SIZE: gl.constexpr = size_of(sums)
        sum_ptr = splits_of(partials_ptr, place, SPLIT_K, SIZE)
        sum_ptr += tl.program_id(1) * SIZE
        for i in gl.static_range(len(sums)):
            kept = flat(sums[i])
            tl.store(sum_ptr + offsets_in(kept), kept)
            sum_ptr += kept.shape[0]
        return counts_last(counters_ptr + place, SPLIT_K)


@gluon.jit
def sums_of_splits(sums, partials_ptr, counters_ptr, place, SPLIT_K):
    """The sums of all splits of K, added in their order, whoever came last."""
    if SPLIT_K == 1:
        return sums
    else:
        SIZE: gl.constexpr = size_of(sums)
        tl.store(counters_ptr + place, 0)  # as the next launch wants it
        sum_ptr = splits_of(partials_ptr, place, SPLIT_K, SIZE)
        totals = ()
        for i in gl.static_range(len(sums)):
            kept = flat(sums[i])
            totals += (like(sums[i], sum_vectors(kept, sum_ptr, SPLIT_K, SIZE)),)
            sum_ptr += kept.shape[0]
        return totals


@gluon.jit
def halves(acc):
    """A sum's left and right columns, which are registers of their own."""
    COLUMNS: gl.constexpr = acc.shape[1] // 2
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 8])
    left, right = acc.reshape((acc.shape[0], 2, COLUMNS)).permute((0, 2, 1)).split()
    return gl.convert_layout(left, LAYOUT), gl.convert_layout(right, LAYOUT)


@gluon.jit
def parts_of(sums):
    """A tile's sums as results have them, in as many rows as are stored at a time."""
    parts = ()
    for i in gl.static_range(len(sums)):
        if sums[i].shape[1] > MOST_STORED:
            left, right = halves(sums[i])
            parts += (left.permute((1, 0)), right.permute((1, 0)))
        else:
            parts += (sums[i].permute((1, 0)),)
    return parts
