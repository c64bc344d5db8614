"""Shared memory of warp-specialized kernels: blocks, what moves them, barriers.

A side of a tile may be any multiple of 8: it is the sum of pieces, powers of two, each
with buffers of its own. Tensor descriptors move pieces in boxes of one size, but the
last piece where it is smaller, which has a descriptor of its own.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..device import tma_load, tma_store
from ..tile import MOST_STORED, most_columns, pieces, reused_buffers

MOST_STORED = gl.constexpr(MOST_STORED)
pieces_of = gluon.constexpr_function(pieces)
columns_of = gluon.constexpr_function(most_columns)
reused_of_types = gluon.constexpr_function(reused_buffers)


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
def operand_buffers(
    operands, COUNT: gl.constexpr, ROWS: gl.constexpr, SWAP_AB: gl.constexpr
):
    """Those of operands [m, n], each with one for every part that is stored at a time.

    A tile that is no transpose is one part, as large as descriptors move it.
    """
    made = ()
    for i in gl.static_range(len(operands)):
        desc = operands[i][0]
        if SWAP_AB:
            made += (cut_buffers(desc, COUNT, pieces_of(ROWS, MOST_STORED)),)
        else:
            made += ((buffers(desc, COUNT),),)
    return made


@gluon.constexpr_function
def reused_by(operands, results):
    """`reused_buffers` of tensors [m, n], each of which comes as its descriptors."""
    types = [[descs[0].dtype for descs in each] for each in (operands, results)]
    return reused_of_types(*types)


@gluon.constexpr_function
def count_own(operands, results):
    """How many results have a buffer of their own."""
    return reused_by(operands, results).count(None)


@gluon.jit
def result_buffers(operands, smems, results, COUNT: gl.constexpr, ROWS: gl.constexpr):
    """Those of results: an operand's, or one for the largest part, which all share."""
    REUSED: gl.constexpr = reused_by(operands, results)
    made = ()
    for i in gl.static_range(len(results)):
        if REUSED[i] is None:
            largest = buffers(results[i][0], COUNT, pieces_of(ROWS, MOST_STORED)[0])
            made += ((largest,),)
        else:
            made += (smems[REUSED[i]],)
    return made


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
def operand_ring(operands, CONSUMERS: gl.constexpr):
    """Those of a consumer's operands [m, n], which come together, if there are any."""
    if len(operands) > 0:
        return ring(CONSUMERS, 1)
    else:
        return (), ()
