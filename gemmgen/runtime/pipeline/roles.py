"""The roles of a warp-specialized kernel: what they share, and their start.

The producer loads K blocks into the stages of a ring, consumers, a warpgroup each,
multiply them. A stage has two barriers: `full`, which the producer's loads complete,
and `empty`, at which consumers arrive when they have read it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..device import split_range
from ..sides import cuts
from .blocks import (
    barriers,
    buffers,
    operand_buffers,
    operand_ring,
    piece_buffers,
    pieces_of,
    result_buffers,
    stage_ring,
    stored_of,
)
from .clusters import close_cluster, open_cluster
from .consumer import consume
from .producer import produce
from .wgmma import in_boxes, multiplies_in_one, ring_in_one

cuts_into_slices = gluon.constexpr_function(cuts)


@gluon.constexpr_function
def swaps(columns, warpgroups, told):
    """Whether the transpose is computed: as told, or if consumers can cut columns."""
    return cuts_into_slices(columns, warpgroups) if told is None else told


@gluon.jit
def split_of_k(K, SPLIT_K, BLOCK_K: gl.constexpr):
    """Where this program's split of K begins, and its length, which may be 0."""
    if SPLIT_K == 1:
        return 0, K
    else:
        k_begin, k_end = split_range(K, SPLIT_K, BLOCK_K)
        return k_begin, max(0, k_end - k_begin)


@gluon.jit
def ring_of(
    a_boxes, b_boxes, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
    IN_ONE: gl.constexpr,
):  # fmt: skip
    """Buffers for the K blocks of A and B in every stage, and all barriers.

    Each consumer has a slice of the left side of its products, which is B with SWAP_AB;
    all share the other side.
    """
    full, empty = stage_ring(STAGES, NUM_WGS)
    order = barriers(NUM_WGS + (NUM_WGS == 1), NUM_WGS == 1)
    if IN_ONE and SWAP_AB:
        a_smem = ring_in_one(a_boxes[0], BLOCK_M, BLOCK_N, NUM_WGS, STAGES)
        b_smem = in_boxes(a_smem, b_boxes[0])
    elif IN_ONE:
        b_smem = ring_in_one(b_boxes[0], BLOCK_N, BLOCK_M, NUM_WGS, STAGES)
        a_smem = in_boxes(b_smem, a_boxes[0])
    elif SWAP_AB:
        a_smem = piece_buffers(a_boxes, STAGES, BLOCK_M, NUM_WGS, A_K_MAJOR)
        b_smem = buffers(b_boxes[0], STAGES * NUM_WGS)
    else:
        a_smem = buffers(a_boxes[0], STAGES * NUM_WGS)
        b_smem = piece_buffers(b_boxes, STAGES, BLOCK_N, NUM_WGS, B_K_MAJOR)
    return a_smem, b_smem, full, empty, order


@gluon.jit
def memory_of_parts(
    operands, results, CONSUMERS: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, NUM_WGS: gl.constexpr,
    SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Operands [m, n] with buffers and barriers, results with buffers, for all parts.

    Parts of a consumer's slice are rows with SWAP_AB, else columns.
    """
    AXIS: gl.constexpr = 1 - SWAP_AB
    SIDE: gl.constexpr = BLOCK_M if SWAP_AB else BLOCK_N
    PARTS: gl.constexpr = pieces_of(
        SIDE, stored_of(BLOCK_M, BLOCK_N, SWAP_AB, gl.num_ctas())
    )
    smems = operand_buffers(operands, CONSUMERS, PARTS, AXIS)
    result_smems = result_buffers(operands, smems, results, CONSUMERS, PARTS, AXIS)
    full, empty = operand_ring(operands, CONSUMERS)
    return (operands, smems, full, empty), (results, result_smems)


@gluon.jit
def run_consumer(passed, CONSUMER: gl.constexpr):
    """Run one of the consumers."""
    consume(*passed, CONSUMER)


@gluon.jit
def run_roles(consumer, producer, NUM_WGS: gl.constexpr):
    """Run the roles concurrently; the first has the kernel's own four warps.

    The producer has one: between loads to the same buffer all of a role's warps meet.
    Of an SM's 65,536 registers its warpgroup, of whose warps one works, takes 24 a
    thread; consumers take what is left, in steps of eight.
    """
    open_cluster()
    if NUM_WGS == 3:
        gl.warp_specialize([  # roles; warps and registers of all but the first
            (run_consumer, (consumer, 0)),
            (run_consumer, (consumer, 1)),
            (run_consumer, (consumer, 2)),
            (produce, producer),
        ], [4, 4, 1], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (run_consumer, (consumer, 0)),
            (run_consumer, (consumer, 1)),
            (produce, producer),
        ], [4, 1], [240, 24])  # fmt: skip
    close_cluster()


@gluon.jit
def specialize(
    finish_part: gl.constexpr, given, a_boxes, b_boxes, partials_ptr, counters_ptr,
    M, N, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    operands, results, A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr,
    SWAP_AB: gl.constexpr = None, LEFT_IN_REGISTERS: gl.constexpr = False,
):  # fmt: skip
    """Compute tiles, or splits of their K, and call `finish_part` for each part.

    A, B, each of `operands` [m, n] and of `results` are tuples of descriptors; `given`
    are further arguments of `finish_part`, see `finish_tile`. SWAP_AB: see `swaps`.
    """
    SWAPS: gl.constexpr = swaps(BLOCK_N, NUM_WGS, SWAP_AB)
    k_begin, K = split_of_k(K, SPLIT_K, BLOCK_K)
    CONSUMERS: gl.constexpr = NUM_WGS + (NUM_WGS == 1)
    loaded, stored = memory_of_parts(
        operands, results, CONSUMERS, BLOCK_M, BLOCK_N, NUM_WGS, SWAPS
    )
    IN_ONE: gl.constexpr = multiplies_in_one(
        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, NUM_WGS, SWAPS, a_boxes[0].dtype,
        A_K_MAJOR, B_K_MAJOR, gl.num_ctas() == 1 and not LEFT_IN_REGISTERS,
    )  # fmt: skip
    boxes = (a_boxes, b_boxes)
    ring = ring_of(
        *boxes, BLOCK_M, BLOCK_N, STAGES, NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAPS, IN_ONE
    )
    run_roles(
        (
            finish_part, given, ring, loaded, stored, partials_ptr, counters_ptr,
            M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, NUM_WGS,
            A_K_MAJOR, B_K_MAJOR, SWAPS, LEFT_IN_REGISTERS, IN_ONE,
        ),
        (
            boxes + ring, loaded, k_begin, M, N, K, SPLIT_K,
            BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, NUM_WGS,
            A_K_MAJOR, B_K_MAJOR, SWAPS, IN_ONE,
        ), NUM_WGS,
    )  # fmt: skip
