"""Shared memory of warp-specialized kernels: buffers, loads and stores, barriers.

The side that consumers share may be any multiple of 8. It is cut into pieces, powers
of two, each with buffers of its own. Descriptors move all pieces in boxes of one size,
except a last piece that is smaller, which has a descriptor of its own.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..device import tma_load, tma_store
from ..sides import most_columns, most_stored, pieces, reused_buffers
from .clusters import barrier_memory, common_barrier_memory

pieces_of = gluon.constexpr_function(pieces)
columns_of = gluon.constexpr_function(most_columns)
stored_of = gluon.constexpr_function(most_stored)
reused_of_types = gluon.constexpr_function(reused_buffers)


@gluon.constexpr_function
def blocks_of(block, count, axis, side):
    """The shape of `count` blocks, whose side along an axis is `side` unless None."""
    if side is not None:
        block = [side if dim == axis else size for dim, size in enumerate(block)]
    return [count, *block]


@gluon.jit
def buffers(
    desc, COUNT: gl.constexpr, SIDE: gl.constexpr = None, AXIS: gl.constexpr = 0
):
    """COUNT buffers for blocks of a descriptor, or for such blocks of another SIDE."""
    SHAPE: gl.constexpr = blocks_of(desc.block_shape, COUNT, AXIS, SIDE)
    return gl.allocate_shared_memory(desc.dtype, SHAPE, desc.layout)


@gluon.jit
def cut_buffers(descs, COUNT: gl.constexpr, PIECES: gl.constexpr, AXIS: gl.constexpr):
    """COUNT buffers for each piece of a side."""
    smems = ()
    for i in gl.static_range(len(PIECES)):
        desc = box_for(descs, PIECES[i], AXIS)
        smems += (buffers(desc, COUNT, PIECES[i], AXIS),)
    return smems


@gluon.jit
def piece_buffers(
    descs, COUNT: gl.constexpr, SIDE: gl.constexpr, NUM_WGS: gl.constexpr,
    K_MAJOR: gl.constexpr,
):  # fmt: skip
    """COUNT buffers for each piece of the side that consumers share."""
    PIECES: gl.constexpr = pieces_of(SIDE, columns_of(NUM_WGS))
    return cut_buffers(descs, COUNT, PIECES, 1 - K_MAJOR)


@gluon.jit
def operand_buffers(
    operands, COUNT: gl.constexpr, PARTS: gl.constexpr, AXIS: gl.constexpr
):
    """Buffers of operands [m, n]: one for each part of a tile, COUNT times."""
    smems = ()
    for i in gl.static_range(len(operands)):
        smems += (cut_buffers(operands[i], COUNT, PARTS, AXIS),)
    return smems


@gluon.constexpr_function
def reused_by(operands, results):
    """`reused_buffers` of operands and results, each given by its descriptors."""
    types = [[descs[0].dtype for descs in each] for each in (operands, results)]
    return reused_of_types(*types)


@gluon.constexpr_function
def count_own(operands, results):
    """How many results have a buffer of their own."""
    return reused_by(operands, results).count(None)


@gluon.constexpr_function
def swizzled_apart(descs):
    """Whether a last part, of shorter rows, lies otherwise than those before it."""
    return len(descs) > 1 and descs[0].layout != descs[1].layout


@gluon.jit
def common_buffers(
    descs, COUNT: gl.constexpr, LARGEST: gl.constexpr, AXIS: gl.constexpr
):
    """COUNT buffers of the largest part for all parts of one layout, then the last."""
    smems = (buffers(descs[0], COUNT, LARGEST, AXIS),)
    if swizzled_apart(descs):
        smems += (buffers(descs[1], COUNT),)
    return smems


@gluon.jit
def result_buffers(
    operands, operand_smems, results, COUNT: gl.constexpr, PARTS: gl.constexpr,
    AXIS: gl.constexpr,
):  # fmt: skip
    """Buffers of results: an operand's, or such as parts have in common."""
    REUSED: gl.constexpr = reused_by(operands, results)
    smems = ()
    for i in gl.static_range(len(results)):
        if REUSED[i] is None:
            smems += (common_buffers(results[i], COUNT, PARTS[0], AXIS),)
        else:
            smems += (operand_smems[REUSED[i]],)
    return smems


@gluon.jit
def boxes_of(desc, rest_desc):
    """A tensor's descriptors: for most pieces, and for the last if that is smaller."""
    if rest_desc is None:
        return (desc,)
    else:
        return desc, rest_desc


@gluon.jit
def box_for(descs, SIDE: gl.constexpr, AXIS: gl.constexpr):
    """The descriptor that moves a piece of a side SIDE."""
    if descs[0].block_shape[AXIS] > SIDE:
        return descs[1]
    else:
        return descs[0]


@gluon.jit
def cut(piece, at: gl.constexpr, SIDE: gl.constexpr, AXIS: gl.constexpr):
    """The box of a piece that begins at `at`, or the whole piece."""
    if piece.shape[AXIS] == SIDE:
        return piece
    else:
        return piece.slice(at, SIDE, AXIS)


@gluon.jit
def load_box(desc, at_row, at_column, bar, box, SHARED: gl.constexpr):
    """Load a box; one that is SHARED by a cluster into all of its CTAs."""
    if SHARED and gl.num_ctas() > 1:
        tma_load(desc, [at_row, at_column], bar, box, multicast=True)
    else:
        tma_load(desc, [at_row, at_column], bar, box)


@gluon.jit
def load_piece(
    descs, piece, first, other, bar, AXIS: gl.constexpr, SHARED: gl.constexpr = False
):
    """Load a piece that begins at `first` along an axis, at `other` along the other."""
    desc = box_for(descs, piece.shape[AXIS], AXIS)
    SIDE: gl.constexpr = desc.block_shape[AXIS]
    for i in gl.static_range(piece.shape[AXIS] // SIDE):
        at, box = first + i * SIDE, cut(piece, i * SIDE, SIDE, AXIS)
        if AXIS == 0:
            load_box(desc, at, other, bar, box, SHARED)
        else:
            load_box(desc, other, at, bar, box, SHARED)


@gluon.constexpr_function
def axis_of_boxes(desc, piece):
    """The axis along which a piece is more or less than a box, if it is."""
    return int(desc.block_shape[0] == piece.shape[0])


@gluon.jit
def store_piece(descs, piece, first_m, first_n):
    """Store a piece of a tile's rows, or of its columns."""
    AXIS: gl.constexpr = axis_of_boxes(descs[0], piece)
    desc = box_for(descs, piece.shape[AXIS], AXIS)
    SIDE: gl.constexpr = desc.block_shape[AXIS]
    for i in gl.static_range(piece.shape[AXIS] // SIDE):
        at_m, at_n = first_m + (1 - AXIS) * i * SIDE, first_n + AXIS * i * SIDE
        tma_store(desc, [at_m, at_n], cut(piece, i * SIDE, SIDE, AXIS))


@gluon.jit
def load_pieces(
    descs, first, k, bar, smems, stage, AXIS: gl.constexpr, SHARED: gl.constexpr = False
):
    """Load all pieces of a side into the buffers of a stage."""
    for i in gl.static_range(len(smems)):
        piece = smems[i].index(stage)
        load_piece(descs, piece, first, k, bar, AXIS, SHARED)
        first += piece.shape[AXIS]


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """COUNT barriers, whose phases end after so many arrivals; not usable if none.

    The compiler reuses the memory of barriers that nobody waits for, and initialized
    barriers must not be overwritten (PTX ISA, mbarrier.init).
    """
    bars = barrier_memory(COUNT)
    if ARRIVALS > 0:
        for i in gl.static_range(COUNT):
            mbarrier.init(bars.index(i), count=ARRIVALS)
    return bars


@gluon.jit
def ring(COUNT: gl.constexpr, READERS: gl.constexpr):
    """The barriers of COUNT stages: full, and empty after READERS arrivals.

    They are initialized in pairs: threads synchronize between two of the same kind.
    """
    full = barrier_memory(COUNT)
    empty = barrier_memory(COUNT)
    for i in gl.static_range(COUNT):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=READERS)
    return full, empty


@gluon.jit
def stage_ring(COUNT: gl.constexpr, READERS: gl.constexpr):
    """The barriers of COUNT stages of A and B: `ring`, with all that are for `empty`.

    A stage of a cluster has two: this CTA's, and one that all have in common.
    """
    full, empty = ring(COUNT, READERS)
    if gl.num_ctas() > 1:
        all_empty = common_barrier_memory(COUNT)
        for i in gl.static_range(COUNT):
            mbarrier.init(all_empty.index(i), count=READERS)
        return full, (empty, all_empty)
    else:
        return full, (empty,)


@gluon.jit
def operand_ring(operands, CONSUMERS: gl.constexpr):
    """The barriers of consumers' operands [m, n], which are loaded together, if any."""
    if len(operands) > 0:
        return ring(CONSUMERS, 1)
    else:
        return (), ()
