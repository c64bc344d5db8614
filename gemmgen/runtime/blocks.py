"""Shared memory of warp-specialized kernels: blocks, barriers, products of blocks.

A side of a tile may be any multiple of 8: it is the sum of pieces, powers of two, each
with buffers and a sum of its own. Tensor descriptors move pieces in boxes of one size,
but the last piece where it is smaller, which has a descriptor of its own.
"""

import math

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .device import counts_last, splits_of, tma_load, tma_store
from .tile import MOST_STORED, most_columns, pieces

MOST_STORED = gl.constexpr(MOST_STORED)
pieces_of = gluon.constexpr_function(pieces)
columns_of = gluon.constexpr_function(most_columns)


@gluon.constexpr_function
def blocks_of(block, count, axis, side):
    """The shape of so many blocks, maybe of another side along an axis."""
    if side is not None:
        block = [side if at == axis else own for at, own in enumerate(block)]
    return [count, *block]


@gluon.jit
def buffers(
    desc, COUNT: gl.constexpr, SIDE: gl.constexpr = None, AXIS: gl.constexpr = 0
):
    """Shared memory for COUNT blocks of a descriptor, or of another SIDE."""
    SHAPE: gl.constexpr = blocks_of(desc.block_shape, COUNT, AXIS, SIDE)
    return gl.allocate_shared_memory(desc.dtype, SHAPE, desc.layout)


@gluon.jit
def cut_buffers(
    desc, COUNT: gl.constexpr, PIECES: gl.constexpr, AXIS: gl.constexpr = 0
):
    """The same for each of several pieces of a side."""
    made = ()
    for i in gl.static_range(len(PIECES)):
        made += (buffers(desc, COUNT, PIECES[i], AXIS),)
    return made


@gluon.jit
def piece_buffers(
    descs, COUNT: gl.constexpr, SIDE: gl.constexpr, NUM_WGS: gl.constexpr,
    K_MAJOR: gl.constexpr,
):  # fmt: skip
    """Those of a side that wgmma multiplies in pieces."""
    PIECES: gl.constexpr = pieces_of(SIDE, columns_of(NUM_WGS))
    return cut_buffers(descs[0], COUNT, PIECES, 1 - K_MAJOR)


@gluon.jit
def part_buffers(descs, COUNT: gl.constexpr, ROWS: gl.constexpr):
    """Those of rows in such parts as are stored at a time."""
    return cut_buffers(descs[0], COUNT, pieces_of(ROWS, MOST_STORED))


@gluon.jit
def store_buffers(desc, COUNT: gl.constexpr, ROWS: gl.constexpr):
    """Shared memory for the largest part of rows, which all of them go through."""
    return buffers(desc, COUNT, pieces_of(ROWS, MOST_STORED)[0])


@gluon.jit
def boxes_of(desc, rest_desc):
    """The descriptors by which a tensor's pieces are moved: of most, of the last."""
    if rest_desc is None:
        return (desc,)
    else:
        return desc, rest_desc


@gluon.jit
def box_for(descs, SIDE: gl.constexpr, AXIS: gl.constexpr):
    """The one that moves a piece of such a side."""
    if descs[0].block_shape[AXIS] > SIDE:
        return descs[1]
    else:
        return descs[0]


@gluon.jit
def cut(piece, at: gl.constexpr, SIDE: gl.constexpr, AXIS: gl.constexpr = 0):
    """A box of a piece, or all of it."""
    if piece.shape[AXIS] == SIDE:
        return piece
    else:
        return piece.slice(at, SIDE, AXIS)


@gluon.jit
def load_piece(descs, piece, first, other, bar, AXIS: gl.constexpr):
    """Load a piece that begins at `first` along an axis, at `other` along the other."""
    desc = box_for(descs, piece.shape[AXIS], AXIS)
    SIDE: gl.constexpr = desc.block_shape[AXIS]
    for i in gl.static_range(piece.shape[AXIS] // SIDE):
        at = first + i * SIDE
        if AXIS == 0:
            tma_load(desc, [at, other], bar, cut(piece, i * SIDE, SIDE, AXIS))
        else:
            tma_load(desc, [other, at], bar, cut(piece, i * SIDE, SIDE, AXIS))


@gluon.jit
def store_piece(descs, piece, first_m, first_n):
    """Store a piece of a tile's rows."""
    desc = box_for(descs, piece.shape[0], 0)
    ROWS: gl.constexpr = desc.block_shape[0]
    for i in gl.static_range(piece.shape[0] // ROWS):
        tma_store(desc, [first_m + i * ROWS, first_n], cut(piece, i * ROWS, ROWS))


@gluon.jit
def load_pieces(descs, first, k, bar, smems, stage, AXIS: gl.constexpr):
    """Load the pieces that a side is the sum of, in these places of their buffers."""
    for i in gl.static_range(len(smems)):
        piece = smems[i].index(stage)
        load_piece(descs, piece, first, k, bar, AXIS)
        first += piece.shape[AXIS]


@gluon.jit
def memory_of_bars(COUNT: gl.constexpr):
    """Shared memory for COUNT barriers."""
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())


@gluon.jit
def bars(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers, whose phases end when so many have arrived.

    With no arrivals nobody waits for them, and the compiler gives their memory to
    others: what was made ready must not be overwritten (PTX ISA, mbarrier.init).
    """
    made = memory_of_bars(COUNT)
    if ARRIVALS > 0:
        for i in gl.static_range(COUNT):
            mbarrier.init(made.index(i), count=ARRIVALS)
    return made


@gluon.jit
def ring(COUNT: gl.constexpr, READERS: gl.constexpr):
    """The barriers of COUNT buffers in turn: each full, each empty for all readers.

    Made ready in pairs, since threads wait for each other between two of one kind.
    """
    full = memory_of_bars(COUNT)
    empty = memory_of_bars(COUNT)
    for i in gl.static_range(COUNT):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=READERS)
    return full, empty


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
def no_sums(ROWS: gl.constexpr, PIECES: gl.constexpr, dtype: gl.constexpr):
    """One for each piece of the right side."""
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
