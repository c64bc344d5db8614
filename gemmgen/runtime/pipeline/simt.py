"""The K loop of simt kernels: blocks by cp.async, multiply-adds from registers.

Threads have a grid of a tile's rows and columns. For each step along K they read their
rows of A and columns of B from shared memory, 16 bytes at a time.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ..device import counts_last, span_in, splits_of
from .sums import offsets_in, side, sum_vectors

STEP = gl.constexpr(16)  # of K that Triton lets `dot_fma` multiply at least

# Triton 3.9 has the function that loads under another name.
copy_block = getattr(async_copy, "async_load", None) or (
    async_copy.async_copy_global_to_shared
)


@gluon.constexpr_function
def rows_cut(rows, columns, parts):
    """How often rows are cut where a block is halved into parts, the longer side first.

    Squares are halved along columns, which spills least (NT, Triton 3.6 to 3.9).
    """
    cut = 1
    while parts > 1:
        if rows > columns:
            rows, cut = rows // 2, cut * 2
        else:
            columns //= 2
        parts //= 2
    return cut


@gluon.constexpr_function
def sum_layout(rows, columns, warps, A_K_MAJOR, B_K_MAJOR):
    """Which rows and columns of a tile each thread has.

    Four adjacent ones of a side that lies along them, which it reads at once. Of one
    that lies along K it reads four elements of a row: those of a warp are adjacent
    rows, whose elements are in different banks of shared memory.
    """
    along = rows_cut(rows, columns, warps)
    across = warps // along
    lanes = rows_cut(rows // along, columns // across, 32)
    return gl.BlockedLayout(
        [1 if A_K_MAJOR else 4, 1 if B_K_MAJOR else 4],
        [lanes, 32 // lanes],
        [along, across],
        [1, 0],
    )


@gluon.constexpr_function
def row_layout(columns, warps):
    """A layout of blocks of rows in which each thread has four adjacent elements."""
    lanes = min(32, columns // 4)
    return gl.BlockedLayout([1, 4], [32 // lanes, lanes], [warps, 1], [1, 0])


@gluon.constexpr_function
def shared_layout(block_k, K_MAJOR):
    """How a block lies in shared memory: 16 bytes of rows along K in turn.

    Eight rows of 128 bytes then have the same elements of K in all banks.
    """
    if not K_MAJOR:
        return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows = max(1, 32 // block_k)  # of K in a line of 128 bytes
    return gl.SwizzledSharedLayout(4, rows, 8 // rows, [1, 0])


@gluon.constexpr_function
def stored_shape(count, side, block_k, K_MAJOR):
    """The shape of blocks whose rows are those of their matrix."""
    return [count, side, block_k] if K_MAJOR else [count, block_k, side]


@gluon.jit
def ring_of(
    lines, SIDE: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    K_MAJOR: gl.constexpr, INDEX: gl.constexpr,
):  # fmt: skip
    """The stages of a matrix, and of a block its offsets and step along K, its edges.

    `lines` has the first of the block's lines along K and how many there are, and the
    strides from line to line and along K. Edges: which lines exist, where K is left.
    """
    first, size, stride, stride_k = lines
    SHAPE: gl.constexpr = stored_shape(STAGES, SIDE, BLOCK_K, K_MAJOR)
    smem = gl.allocate_shared_memory(gl.float32, SHAPE, shared_layout(BLOCK_K, K_MAJOR))
    LAYOUT: gl.constexpr = row_layout(SHAPE[2], gl.num_warps())
    AXIS: gl.constexpr = 1 if K_MAJOR else 0  # that of K
    line = first + gl.arange(0, SIDE, layout=gl.SliceLayout(AXIS, LAYOUT))
    along_k = gl.arange(0, BLOCK_K, layout=gl.SliceLayout(1 - AXIS, LAYOUT))
    offs = gl.expand_dims(line.to(INDEX) * stride, AXIS)
    offs += gl.expand_dims(along_k.to(INDEX) * stride_k, 1 - AXIS)
    edges = gl.expand_dims(line < size, AXIS), gl.expand_dims(along_k, 1 - AXIS)
    return smem, offs, tl.cast(stride_k, INDEX) * BLOCK_K, edges


@gluon.jit
def begin_copy(ptr, ring, stage, k_left):
    """Begin to copy a block, of which so much of K is left; where the next one is."""
    smem, offs, step, edges = ring
    exists, along_k = edges
    copy_block(smem.index(stage), ptr + offs, mask=exists & (along_k < k_left))
    return ptr + step


@gluon.jit
def begin_copies(a_ptr, a_ring, b_ptr, b_ring, stage, k_left):
    """Begin to copy blocks of A and B into a stage; where the next ones are."""
    a_ptr = begin_copy(a_ptr, a_ring, stage, k_left)
    b_ptr = begin_copy(b_ptr, b_ring, stage, k_left)
    async_copy.commit_group()
    return a_ptr, b_ptr


@gluon.jit
def multiply_blocks(blocks, acc, A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr):
    """Add the product of a stage's blocks to a sum."""
    a_block = side(blocks[0], A_K_MAJOR)
    b_block = side(blocks[1], not B_K_MAJOR)
    SUM: gl.constexpr = acc.type.layout
    for i in gl.static_range(a_block.shape[1] // STEP):
        a = a_block.slice(i * STEP, STEP, 1).load(gl.DotOperandLayout(0, SUM, 0))
        b = b_block.slice(i * STEP, STEP, 0).load(gl.DotOperandLayout(1, SUM, 0))
        acc = gl.dot_fma(a, b, acc)
    return acc


@gluon.jit
def multiply_add(
    a_ptr, a_lines, b_ptr, b_lines, k_begin, k_end, INDEX: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr,
):  # fmt: skip
    """The sum of a tile over a range of K, with adjacent columns in each thread.

    Lines of A and B along K: see `ring_of`. All threads meet after a wait for copies,
    as the compiler has it, so that the stage read before is free by then.
    """
    a_ring = ring_of(a_lines, BLOCK_M, BLOCK_K, STAGES, A_K_MAJOR, INDEX)
    b_ring = ring_of(b_lines, BLOCK_N, BLOCK_K, STAGES, B_K_MAJOR, INDEX)
    a_ptr += tl.cast(a_lines[3], INDEX) * k_begin
    b_ptr += tl.cast(b_lines[3], INDEX) * k_begin
    K = k_end - k_begin
    for i in gl.static_range(STAGES - 1):
        k_left = K - i * BLOCK_K
        a_ptr, b_ptr = begin_copies(a_ptr, a_ring, b_ptr, b_ring, i, k_left)
    SUM: gl.constexpr = sum_layout(
        BLOCK_M, BLOCK_N, gl.num_warps(), A_K_MAJOR, B_K_MAJOR
    )
    acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, SUM)
    rest = K - (STAGES - 1) * BLOCK_K
    for i in range(tl.cdiv(K, BLOCK_K)):
        async_copy.wait_group(STAGES - 2)
        free = (i + STAGES - 1) % STAGES
        k_left = rest - i * BLOCK_K
        a_ptr, b_ptr = begin_copies(a_ptr, a_ring, b_ptr, b_ring, free, k_left)
        blocks = (a_ring[0].index(i % STAGES), b_ring[0].index(i % STAGES))
        acc = multiply_blocks(blocks, acc, A_K_MAJOR, B_K_MAJOR)
    async_copy.wait_group(0)
    return gl.convert_layout(acc, row_layout(BLOCK_N, gl.num_warps()))


@gluon.jit
def tile_rows(acc, first, M):
    """The offsets of a tile's rows, and whether each is within M."""
    return span_in(first, acc.shape[0], M, gl.SliceLayout(1, acc.type.layout))


@gluon.jit
def tile_columns(acc, first, N):
    """The offsets of a tile's columns, and whether each is within N."""
    return span_in(first, acc.shape[1], N, gl.SliceLayout(0, acc.type.layout))


@gluon.jit
def finishes(acc, partials_ptr, counters_ptr, SPLIT_K):
    """Store the sum of this split; tell whether all splits of its tile are there."""
    vector = acc.reshape((acc.shape[0] * acc.shape[1],))
    SIZE: gl.constexpr = vector.shape[0]
    split_ptr = splits_of(partials_ptr, tl.program_id(0), SPLIT_K, SIZE)
    split_ptr += tl.program_id(1) * SIZE
    tl.store(split_ptr + offsets_in(vector), vector)
    return counts_last(counters_ptr + tl.program_id(0), SPLIT_K)


@gluon.jit
def sum_splits(acc, partials_ptr, counters_ptr, SPLIT_K):
    """The sum of a tile's partial sums, in the order of splits; as `acc` lies."""
    like = acc.reshape((acc.shape[0] * acc.shape[1],))
    SIZE: gl.constexpr = like.shape[0]
    tl.store(counters_ptr + tl.program_id(0), 0)  # for the next launch
    first_ptr = splits_of(partials_ptr, tl.program_id(0), SPLIT_K, SIZE)
    total = sum_vectors(like, first_ptr, SPLIT_K, SIZE)
    return gl.convert_layout(total.reshape(acc.shape), acc.type.layout)
