"""Parts of a tile: what is stored at a time, and what kernels do with it.

A `part` is a tuple: the first row and M, the first column and N, then the operands
[m, n] and the results, each with their descriptors and the part's buffers. Parts follow
each other along an AXIS: down the rows with SWAP_AB, else along the columns.
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
    """A part of operand i, in the layout of its sum.

    The first load of a tile waits for all parts of all operands.
    """
    _, _, operands, _ = part
    _, bufs, arrival = operands
    if i == 0 and len(arrival) > 0:
        bar, phase = arrival
        mbarrier.wait(bar, phase)
    return bufs[i].load(acc.type.layout)


@gluon.jit
def store_part(part, values):
    """Store a part of each result through its buffer.

    A buffer of an operand is free by now; from any other an earlier store may still
    read.
    """
    rows, columns, operands, results = part
    descs, bufs = results
    if count_own(operands[0], descs) > 0:
        tma.store_wait(0)
    for i in gl.static_range(len(values)):
        bufs[i].store(values[i])
    hopper.fence_async_shared()
    for i in gl.static_range(len(values)):
        store_piece(descs[i], bufs[i], rows[0], columns[0])


@gluon.constexpr_function
def place_of(part, parts, smems):
    """Which of a tensor's buffers a part has: the last have their own, others share."""
    return max(0, part + len(smems) - parts)


@gluon.jit
def part_buffers(
    smems, PART: gl.constexpr, PARTS: gl.constexpr, acc, CONSUMER: gl.constexpr,
    AXIS: gl.constexpr,
):  # fmt: skip
    """A part's buffers: its own, or what several parts of a tensor share."""
    bufs = ()
    for i in gl.static_range(len(smems)):
        smem = smems[i][place_of(PART, PARTS, smems[i])]
        bufs += (cut(smem.index(CONSUMER), 0, acc.shape[AXIS], AXIS),)
    return bufs


@gluon.jit
def finish_tile(
    finish_part: gl.constexpr, given, sums, operands, results, first_m, first_n, M, N,
    STORED: gl.constexpr, CONSUMER: gl.constexpr, SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Finish a consumer's slice of a tile, part by part: STORED of the AXIS at most.

    The kernel's `finish_part` takes a part's sum, the part, and what is `given`.
    """
    operand_descs, operand_smems, arrival = operands
    result_descs, result_smems = results
    AXIS: gl.constexpr = 1 - SWAP_AB
    parts = parts_of(sums, STORED)
    for i in gl.static_range(len(parts)):
        acc = parts[i].permute((1, 0)) if SWAP_AB else parts[i]
        operand_bufs = part_buffers(operand_smems, i, len(parts), acc, CONSUMER, AXIS)
        result_bufs = part_buffers(result_smems, i, len(parts), acc, CONSUMER, AXIS)
        part = (
            (first_m, M), (first_n, N),
            (operand_descs, operand_bufs, arrival if i == 0 else ()),
            (result_descs, result_bufs),
        )  # fmt: skip
        finish_part(acc, part, *given)
        if SWAP_AB:
            first_m += acc.shape[0]
        else:
            first_n += acc.shape[1]
    if count_own(operand_descs, result_descs) != len(result_descs):
        tma.store_wait(0)  # the producer loads the next operands there
