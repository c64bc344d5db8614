"""The producer of warp-specialized kernels, which loads what consumers need.

K blocks of A and B go into the stages of a ring, operands [m, n] of a tile into buffers
of its consumers; each when the consumers have emptied it.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..device import swizzle
from .blocks import load_piece, load_pieces
from .clusters import wait_for_all
from .wgmma import load_in_one


@gluon.jit
def load_parts(
    boxes, first, k, bar, smem, stage, PARTS: gl.constexpr, K_MAJOR: gl.constexpr
):
    """Load a K block of the left side, a slice for each consumer."""
    AXIS: gl.constexpr = 1 - K_MAJOR
    for part in gl.static_range(PARTS):
        at = first + part * boxes[0].block_shape[AXIS]
        load_piece(boxes, smem.index(stage * PARTS + part), at, k, bar, AXIS)


@gluon.jit
def load_shared(
    boxes, first, k, bar, smem, stage, SIDE: gl.constexpr, LEFT: gl.constexpr,
    STAGES: gl.constexpr, K_MAJOR: gl.constexpr, IN_ONE: gl.constexpr,
):  # fmt: skip
    """Load a K block of the right side, which consumers and CTAs share."""
    if IN_ONE:
        load_in_one(boxes, smem, stage, first, k, bar, SIDE, LEFT, STAGES)
    else:
        load_pieces(boxes, first, k, bar, smem, stage, 1 - K_MAJOR, True)


@gluon.jit
def load_stage(
    loads, bar, stage, first_m, first_n, k,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    NUM_WGS: gl.constexpr, A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr,
    SWAP_AB: gl.constexpr, IN_ONE: gl.constexpr,
):  # fmt: skip
    """Load a K block of A and of B.

    B last: neighbouring programs load the same block, which L2 reads once if they do so
    together: 1.13 ms against 1.41 (8192x14336x4096, zeros, H200).
    """
    a_boxes, b_boxes, a_smem, b_smem, _full, _empty, _order = loads
    if SWAP_AB:
        load_shared(
            a_boxes, first_m, k, bar, a_smem, stage,
            BLOCK_M, BLOCK_N, STAGES, A_K_MAJOR, IN_ONE,
        )  # fmt: skip
        load_parts(b_boxes, first_n, k, bar, b_smem, stage, NUM_WGS, B_K_MAJOR)
    else:
        load_parts(a_boxes, first_m, k, bar, a_smem, stage, NUM_WGS, A_K_MAJOR)
        load_shared(
            b_boxes, first_n, k, bar, b_smem, stage,
            BLOCK_N, BLOCK_M, STAGES, B_K_MAJOR, IN_ONE,
        )  # fmt: skip


@gluon.constexpr_function
def bytes_of(descs):
    """The bytes of one element of each of several tensors together."""
    return sum(boxes[0].dtype.primitive_bitwidth // 8 for boxes in descs)


@gluon.jit
def load_operands(
    operands, first_m, first_n, turn,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CONSUMERS: gl.constexpr,
    SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Load each consumer's slice of a tile's operands when its buffers are empty."""
    descs, smems, operand_full, operand_empty = operands
    PINGPONG: gl.constexpr = CONSUMERS == 1
    ROWS: gl.constexpr = BLOCK_M if SWAP_AB else BLOCK_M // CONSUMERS
    COLUMNS: gl.constexpr = BLOCK_N // CONSUMERS if SWAP_AB else BLOCK_N
    for part in gl.static_range(CONSUMERS):
        consumer = turn % (1 + PINGPONG) + part
        phase = (turn // (1 + PINGPONG)) & 1
        bar = operand_full.index(consumer)
        mbarrier.wait(operand_empty.index(consumer), phase ^ 1)
        mbarrier.expect(bar, ROWS * COLUMNS // gl.num_ctas() * bytes_of(descs))
        at_m = first_m + part * (1 - SWAP_AB) * ROWS
        at_n = first_n + part * SWAP_AB * COLUMNS
        for i in gl.static_range(len(descs)):
            if SWAP_AB:
                load_pieces(descs[i], at_m, at_n, bar, smems[i], consumer, 0)
            else:
                load_pieces(descs[i], at_n, at_m, bar, smems[i], consumer, 1)


@gluon.jit
def produce(
    loads, operands, k_begin, M, N, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
    IN_ONE: gl.constexpr,
):  # fmt: skip
    """Load the K blocks of every tile of this program, each into an empty stage."""
    a_boxes, _b_boxes, _a_smem, _b_smem, full, empty, _order = loads
    first_k = 0 if SPLIT_K == 1 else k_begin  # the compiler does not know that 0
    ROWS: gl.constexpr = BLOCK_M + BLOCK_N // gl.num_ctas()  # clusters cut columns
    BYTES: gl.constexpr = ROWS * BLOCK_K * bytes_of((a_boxes,))
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    turn = 0
    k_iter = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m, first_n = tile_m * BLOCK_M, tile_n * BLOCK_N
        for k in range(first_k, first_k + K, BLOCK_K):
            stage = k_iter % STAGES
            bar = full.index(stage)
            wait_for_all(empty, stage, ((k_iter // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, BYTES)
            load_stage(
                loads, bar, stage, first_m, first_n, k, BLOCK_M, BLOCK_N, STAGES,
                NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAP_AB, IN_ONE,
            )  # fmt: skip
            k_iter += 1
        # Operands last: consumers need them after their K loops.
        if len(operands[0]) > 0:
            load_operands(
                operands, first_m, first_n, turn, BLOCK_M, BLOCK_N, NUM_WGS, SWAP_AB
            )
        turn += 1
