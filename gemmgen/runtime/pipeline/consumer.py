"""Consumers of warp-specialized kernels: the K loop of a tile, and its epilogue.

NUM_WGS consumers share a tile. If that is one, two consumers take tiles in turn
(ping-pong): one multiplies while the other finishes its tile, by `order` barriers.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from ..device import swizzle
from .blocks import columns_of, pieces_of, stored_of
from .clusters import arrive_at_all
from .parts import finish_tile
from .sums import (
    begin_products,
    finishes_sums,
    left_step,
    side,
    sums_of_splits,
    wait_for_products,
    zero_sums,
)
from .wgmma import begin_in_one, cut_sum, width_of


@gluon.constexpr_function
def steps_of(rows, shared, warpgroups, dtype, block_k):
    """In how many steps along K a block is multiplied: 1, or all that wgmma takes.

    Each consumer has its `rows` of what is multiplied, and reads them in shared memory
    anew for each piece of the other side, which takes longer than small pieces are
    multiplied for. In steps they are read into registers, once: larger tiles take up
    to 12 % less time so, smaller ones up to 10 % more (bf16 NT, H200).
    """
    large = rows * warpgroups * shared > 128 * 128 and rows * shared > 64 * 96
    if large and warpgroups > 1 and shared & (shared - 1):
        return block_k * dtype.primitive_bitwidth // 256  # 32 bytes each
    return 1


@gluon.jit
def tiles_of(
    M, N,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """A consumer's tiles as a range: first, end, step."""
    PINGPONG: gl.constexpr = NUM_WGS == 1
    start = tl.program_id(0) + CONSUMER * PINGPONG * tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    return start, tiles, (1 + PINGPONG) * tl.num_programs(0)


@gluon.jit
def multiply_block(
    block, right_smem, stage, sums, adds, empty, read, STEPS: gl.constexpr,
    HELD: gl.constexpr, RIGHT_K_MAJOR: gl.constexpr,
):  # fmt: skip
    """Begin to multiply a block, and let go of `read`, the stage of the one before.

    That block has been read once products of this one's first step are all that is
    under way. HELD steps have their left side in registers. If these are all, products
    end here and `read` is this block's stage: what reads registers at the end of a
    loop makes ptxas 12.8 have every product wait for the one before.
    """
    SUM: gl.constexpr = sums[0].type.layout
    ENDS: gl.constexpr = HELD == STEPS
    left = left_step(block, 0, STEPS, HELD, SUM)
    for i in gl.static_range(STEPS):
        after = True if i > 0 else adds
        sums = begin_products(left, right_smem, stage, sums, after, i, RIGHT_K_MAJOR)
        if i + 1 < STEPS:  # meanwhile
            left = left_step(block, i + 1, STEPS, HELD, SUM)
        sums = wait_for_products(sums, 0 if ENDS else len(sums))
        if i == ENDS * (STEPS - 1):
            arrive_at_all(empty, read, pred=adds | ENDS)
    return sums


@gluon.constexpr_function
def sums_of(columns, warpgroups, in_one):
    """The columns of the sums that a tile has: of its pieces, or of all in one."""
    if in_one:
        return (width_of(columns),)
    return pieces_of(columns, columns_of(warpgroups))


@gluon.jit
def multiply_stage(
    loads, stage, read, sums, adds, COLUMNS: gl.constexpr, STAGES: gl.constexpr,
    NUM_WGS: gl.constexpr, A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr,
    SWAP_AB: gl.constexpr, LEFT_IN_REGISTERS: gl.constexpr, IN_ONE: gl.constexpr,
    WG: gl.constexpr,
):  # fmt: skip
    """Begin to multiply the block of a stage, and let go of `read`, the one before."""
    a_smem, b_smem, _full, empty, _order = loads
    left_smem, right_smem = (b_smem, a_smem) if SWAP_AB else (a_smem, b_smem)
    LEFT_K_MAJOR: gl.constexpr = B_K_MAJOR if SWAP_AB else A_K_MAJOR
    ROWS: gl.constexpr = sums[0].shape[0]
    if IN_ONE:
        LEFT: gl.constexpr = NUM_WGS * ROWS
        dtype: gl.constexpr = left_smem.dtype
        total = begin_in_one(
            sums[0], stage, COLUMNS, LEFT, LEFT_K_MAJOR, STAGES, WG, dtype
        )
        sums = wait_for_products((total,), 1)
        arrive_at_all(empty, read, pred=adds)
        return sums
    else:
        RIGHT_K_MAJOR: gl.constexpr = A_K_MAJOR if SWAP_AB else B_K_MAJOR
        block = side(left_smem.index(stage * NUM_WGS + WG), LEFT_K_MAJOR)
        STEPS: gl.constexpr = steps_of(
            ROWS, COLUMNS, NUM_WGS, left_smem.dtype, block.shape[1]
        )
        HELD: gl.constexpr = STEPS if LEFT_IN_REGISTERS else STEPS - 1
        return multiply_block(
            block, right_smem, stage, sums, adds, empty, read,
            STEPS, HELD, RIGHT_K_MAJOR,
        )  # fmt: skip


@gluon.jit
def multiply(
    loads, K, k_iter, wave, ROWS: gl.constexpr, COLUMNS: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
    LEFT_IN_REGISTERS: gl.constexpr, IN_ONE: gl.constexpr, CONSUMER: gl.constexpr,
):  # fmt: skip
    """The K loop of a tile: a sum for each piece of COLUMNS, and the next `k_iter`.

    `k_iter` counts K blocks, `wave` the consumer's tiles. IN_ONE multiplies all pieces
    with one wgmma.
    """
    a_smem, b_smem, full, empty, order = loads
    dtype: gl.constexpr = (b_smem if SWAP_AB else a_smem).dtype
    PINGPONG: gl.constexpr = NUM_WGS == 1
    WG: gl.constexpr = CONSUMER * (NUM_WGS > 1)
    BEFORE: gl.constexpr = 0 if LEFT_IN_REGISTERS else STAGES - 1
    sums = zero_sums(ROWS, sums_of(COLUMNS, NUM_WGS, IN_ONE), dtype)
    k_blocks = tl.cdiv(K, BLOCK_K)
    if PINGPONG:
        mbarrier.wait(order.index(CONSUMER), (wave & 1) ^ (1 - CONSUMER))
    for k in range(k_blocks):
        stage = k_iter % STAGES
        mbarrier.wait(full.index(stage), (k_iter // STAGES) & 1)
        sums = multiply_stage(
            loads, stage, (k_iter + BEFORE) % STAGES, sums, k > 0, COLUMNS, STAGES,
            NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAP_AB, LEFT_IN_REGISTERS, IN_ONE, WG,
        )  # fmt: skip
        k_iter += 1
    if not LEFT_IN_REGISTERS:
        sums = wait_for_products(sums, 0)
        arrive_at_all(empty, (k_iter + BEFORE) % STAGES)
    if PINGPONG:
        mbarrier.arrive(order.index(1 - CONSUMER))
    if IN_ONE:
        sums = cut_sum(sums[0], sums_of(COLUMNS, NUM_WGS, False))
    return sums, k_iter + PINGPONG * k_blocks  # of the other consumer's tile


@gluon.jit
def consume(
    finish_part: gl.constexpr, given, loads, operands, results, partials_ptr,
    counters_ptr, M, N, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
    LEFT_IN_REGISTERS: gl.constexpr, IN_ONE: gl.constexpr, CONSUMER: gl.constexpr,
):  # fmt: skip
    """Compute a consumer's slice of its tiles, or of a split of their K."""
    WG: gl.constexpr = CONSUMER * (NUM_WGS > 1)
    SLICE: gl.constexpr = (BLOCK_N if SWAP_AB else BLOCK_M) // NUM_WGS
    SHARED: gl.constexpr = BLOCK_M if SWAP_AB else BLOCK_N
    STORED: gl.constexpr = stored_of(BLOCK_M, BLOCK_N, SWAP_AB, gl.num_ctas())
    descs, smems, operand_full, operand_empty = operands
    start, tiles, step = tiles_of(M, N, BLOCK_M, BLOCK_N, NUM_WGS, CONSUMER)
    k_iter, wave = (CONSUMER - WG) * tl.cdiv(K, BLOCK_K), 0
    for tile in range(start, tiles, step):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        sums, k_iter = multiply(
            loads, K, k_iter, wave, SLICE, SHARED, BLOCK_K, STAGES, NUM_WGS,
            A_K_MAJOR, B_K_MAJOR, SWAP_AB, LEFT_IN_REGISTERS, IN_ONE, CONSUMER,
        )  # fmt: skip
        slice_id = tile * NUM_WGS + WG
        arrival = (operand_full.index(CONSUMER), wave & 1) if len(descs) > 0 else ()
        if finishes_sums(sums, partials_ptr, counters_ptr, slice_id, SPLIT_K):
            sums = sums_of_splits(sums, partials_ptr, counters_ptr, slice_id, SPLIT_K)
            first_m = tile_m * BLOCK_M + (1 - SWAP_AB) * WG * SLICE
            first_n = tile_n * BLOCK_N + SWAP_AB * WG * SLICE
            finish_tile(
                finish_part, given, sums, (descs, smems, arrival), results,
                first_m, first_n, M, N, STORED, CONSUMER, SWAP_AB,
            )  # fmt: skip
        elif len(descs) > 0:  # operands are loaded for every split
            mbarrier.wait(operand_full.index(CONSUMER), wave & 1)
        if len(descs) > 0:
            mbarrier.arrive(operand_empty.index(CONSUMER))
        wave += 1
    if len(results[0]) > 0:  # stores read shared memory, which must outlive them
        tma.store_wait(0)
