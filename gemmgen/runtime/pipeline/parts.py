"""Parts of a tile, as many rows as are stored at a time: what kernels do with them.

A `part` has its rows and its columns, each where they begin and the size of that axis;
then the operands [m, n] and the results, each their descriptors and the part's places
in shared memory.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from ..device import span_in
from .blocks import count_own, cut, store_piece
from .sums import parts_of


@gluon.jit
def part_rows(part, acc):
    """The offsets of a part's rows, and whether each is within M."""
    rows, _, _, _ = part
    first_m, M = rows
    return span_in(first_m, acc.shape[0], M, gl.SliceLayout(1, acc.type.layout))


@gluon.jit
def part_columns(part, acc):
    """The offsets of a part's columns, and whether each is within N."""
    _, columns, _, _ = part
    first_n, N = columns
    return span_in(first_n, acc.shape[1], N, gl.SliceLayout(0, acc.type.layout))


@gluon.jit
def load_part(part, i: gl.constexpr, acc):
    """A part of operand number i, in the layout of its sum.

    The first one waits until all parts of all of a tile's operands have come.
    """
    _, _, operands, _ = part
    _, places, coming = operands
    if i == 0 and len(coming) > 0:
        bar, phase = coming
        mbarrier.wait(bar, phase)
    return places[i].load(acc.type.layout)


@gluon.jit
def store_part(part, values):
    """Store a part of each result by way of its place in shared memory.

    Where an operand was, that is free by now; others may be stored from still.
    """
    rows, columns, operands, results = part
    descs, places = results
    if count_own(operands[0], descs) > 0:
        tma.store_wait(0)
    for i in gl.static_range(len(values)):
        places[i].store(values[i])
    hopper.fence_async_shared()
    for i in gl.static_range(len(values)):
        store_piece(descs[i], places[i], rows[0], columns[0])


@gluon.jit
def places_of(smems, PART: gl.constexpr, acc, CONSUMER: gl.constexpr):
    """A part's places: each in a buffer of its own, or in one that all parts share."""
    places = ()
    for i in gl.static_range(len(smems)):
        smem = smems[i][PART if len(smems[i]) > 1 else 0]
        places += (cut(smem.index(CONSUMER), 0, acc.shape[0]),)
    return places


@gluon.jit
def finish_tile(
    finish_part: gl.constexpr, given, sums, operands, results, first_m, first_n, M, N,
    CONSUMER: gl.constexpr, SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Have the kernel finish a consumer's slice of a tile, part by part.

    `finish_part` takes a part's sum, the part, and what the kernel has `given`.
    """
    operand_descs, operand_smems, coming = operands
    result_descs, result_smems = results
    parts = parts_of(sums) if SWAP_AB else sums
    for i in gl.static_range(len(parts)):
        acc = parts[i]
        operand_places = places_of(operand_smems, i, acc, CONSUMER)
        part = (
            (first_m, M), (first_n, N),
            (operand_descs, operand_places, coming if i == 0 else ()),
            (result_descs, places_of(result_smems, i, acc, CONSUMER)),
        )  # fmt: skip
        finish_part(acc, part, *given)
        first_m += acc.shape[0]
    if count_own(operand_descs, result_descs) != len(result_descs):
        tma.store_wait(0)  # from where operands are to come
