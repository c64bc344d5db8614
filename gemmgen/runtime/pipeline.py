"""What warp-specialized kernels have in common: a ring in shared memory, two roles.

The producer loads K blocks into the stages of the ring, consumers of four warps each
multiply them. A stage has two barriers: the producer's loads fill one (full), consumers
arrive at the other (empty) when they have read it. NUM_WGS consumers share a tile;
where that is one, two have a tile each (ping-pong), and one multiplies while the other
runs its epilogue, for which each has a barrier (order).
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .blocks import (
    bars,
    begin_products,
    buffers,
    columns_of,
    load_piece,
    load_pieces,
    no_sums,
    piece_buffers,
    pieces_of,
    ring,
    side,
    wait_for_products,
)
from .device import split_range, swizzle
from .tile import MOST_STORED

MOST_STORED = gl.constexpr(MOST_STORED)


@gluon.jit
def tiles_of(
    M, N,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """Which tiles are a consumer's: the first, their end, the step to the next.

    NUM_WGS consumers share every tile of the program; where that is one, each of two
    has every other tile.
    """
    PINGPONG: gl.constexpr = NUM_WGS == 1
    start = tl.program_id(0) + CONSUMER * PINGPONG * tl.num_programs(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    return start, tiles, (1 + PINGPONG) * tl.num_programs(0)


@gluon.jit
def split_of_k(K, SPLIT_K, BLOCK_K: gl.constexpr):
    """Where this program's split of K begins, and its length, which may be 0."""
    if SPLIT_K == 1:
        return 0, K
    else:
        k_begin, k_end = split_range(K, SPLIT_K, BLOCK_K)
        return k_begin, max(0, k_end - k_begin)


@gluon.jit
def load_parts(
    desc, first, k, bar, smem, stage, PARTS: gl.constexpr, K_MAJOR: gl.constexpr
):
    """Load a K block of the left side, a part for each consumer that shares it."""
    AXIS: gl.constexpr = 1 - K_MAJOR
    for part in gl.static_range(PARTS):
        at = first + part * desc.block_shape[AXIS]
        load_piece((desc,), smem.index(stage * PARTS + part), at, k, bar, AXIS)


@gluon.constexpr_function
def bytes_of(descs):
    """Bytes of an element of each of several tensors, together."""
    return sum(boxes[0].dtype.primitive_bitwidth // 8 for boxes in descs)


@gluon.jit
def load_operands(
    operands, first_m, first_n, turn,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CONSUMERS: gl.constexpr,
    SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Load each consumer's part of a tile's operands [m, n], when its room is empty."""
    descs, smems, operand_full, operand_empty = operands
    PINGPONG: gl.constexpr = CONSUMERS == 1
    ROWS: gl.constexpr = BLOCK_M if SWAP_AB else BLOCK_M // CONSUMERS
    COLUMNS: gl.constexpr = BLOCK_N // CONSUMERS if SWAP_AB else BLOCK_N
    for part in gl.static_range(CONSUMERS):
        consumer = turn % (1 + PINGPONG) + part
        phase = (turn // (1 + PINGPONG)) & 1
        bar = operand_full.index(consumer)
        mbarrier.wait(operand_empty.index(consumer), phase ^ 1)
        mbarrier.expect(bar, ROWS * COLUMNS * bytes_of(descs))
        at_m = first_m + part * (1 - SWAP_AB) * ROWS
        at_n = first_n + part * SWAP_AB * COLUMNS
        for i in gl.static_range(len(descs)):
            load_pieces(descs[i], at_m, at_n, bar, smems[i], consumer, 0)


@gluon.jit
def produce(
    loads, operands, k_begin, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
):  # fmt: skip
    """Load the K blocks of every tile of this program, each when its stage is empty."""
    a_desc, b_desc, a_smem, b_smem, full, empty, M, N = loads
    first_k = 0 if SPLIT_K == 1 else k_begin  # which the compiler cannot know
    left_desc = b_desc if SWAP_AB else a_desc
    BITS: gl.constexpr = (
        (BLOCK_M + BLOCK_N) * BLOCK_K * left_desc.dtype.primitive_bitwidth
    )
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    turn = 0
    k_iter = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m, first_n = tile_m * BLOCK_M, tile_n * BLOCK_N
        for k in range(first_k, first_k + K, BLOCK_K):
            stage = k_iter % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((k_iter // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, BITS // 8)
            # B last: programs beside this one want the same, which L2 reads once if all
            # ask together: 1.13 ms against 1.41 (8192x14336x4096 of zeros, H200).
            if SWAP_AB:
                load_pieces(a_desc, first_m, k, bar, a_smem, stage, 1 - A_K_MAJOR)
                load_parts(b_desc, first_n, k, bar, b_smem, stage, NUM_WGS, B_K_MAJOR)
            else:
                load_parts(a_desc, first_m, k, bar, a_smem, stage, NUM_WGS, A_K_MAJOR)
                load_pieces(b_desc, first_n, k, bar, b_smem, stage, 1 - B_K_MAJOR)
            k_iter += 1
        # Operands last: a consumer reads them when its sum is done.
        if len(operands) > 0:
            load_operands(
                operands, first_m, first_n, turn, BLOCK_M, BLOCK_N, NUM_WGS, SWAP_AB
            )
        turn += 1


@gluon.jit
def multiply(
    loads, K, k_iter, wave, ROWS: gl.constexpr, COLUMNS: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr, LEFT_K_MAJOR: gl.constexpr, RIGHT_K_MAJOR: gl.constexpr,
    LEFT_IN_REGISTERS: gl.constexpr = False,
):  # fmt: skip
    """Sum the K blocks of a consumer's tile, and hand each stage back to the producer.

    Returns a sum for each piece of the right side, of which the tile has COLUMNS.
    `k_iter` counts K blocks, those that the other consumer takes too, `wave` tiles.
    """
    left_smem, right_smem, full, empty, order = loads
    PINGPONG: gl.constexpr = NUM_WGS == 1
    WG: gl.constexpr = CONSUMER * (NUM_WGS > 1)
    PIECES: gl.constexpr = pieces_of(COLUMNS, columns_of(NUM_WGS))
    sums = no_sums(ROWS, PIECES, left_smem.dtype)
    SUM: gl.constexpr = sums[0].type.layout if LEFT_IN_REGISTERS else None
    k_blocks = tl.cdiv(K, BLOCK_K)
    if PINGPONG:
        mbarrier.wait(order.index(CONSUMER), (wave & 1) ^ (1 - CONSUMER))
    for k in range(k_blocks):
        stage = k_iter % STAGES
        mbarrier.wait(full.index(stage), (k_iter // STAGES) & 1)
        left = side(left_smem.index(stage * NUM_WGS + WG), LEFT_K_MAJOR, SUM)
        sums = begin_products(left, right_smem, stage, sums, k > 0, RIGHT_K_MAJOR)
        if LEFT_IN_REGISTERS:  # into which the next block is loaded
            sums = wait_for_products(sums, 0)
            mbarrier.arrive(empty.index(stage))
        else:  # the block before this one has been read
            sums = wait_for_products(sums, len(PIECES))
            mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES), pred=k > 0)
        k_iter += 1
    if not LEFT_IN_REGISTERS:
        sums = wait_for_products(sums, 0)
        mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES))
    if PINGPONG:
        mbarrier.arrive(order.index(1 - CONSUMER))
        k_iter += k_blocks
    return sums, k_iter


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


@gluon.jit
def run_consumer(
    consume: gl.constexpr, sums, loads, M, N, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """Call the kernel's own: no parameter may stand in a list of roles."""
    consume(
        *sums, loads, M, N, K, SPLIT_K,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, NUM_WGS, CONSUMER,
    )  # fmt: skip


@gluon.jit
def rings_of(
    a_desc, b_desc, M, N,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr,
):  # fmt: skip
    """What the producer and what consumers take for the K blocks of A and B.

    Consumers share the blocks of one side and have slices of the other, the left of
    their products: that is B if they compute the transpose.
    """
    if SWAP_AB:
        a_smem = piece_buffers(a_desc, STAGES, BLOCK_M, NUM_WGS, A_K_MAJOR)
        b_smem = buffers(b_desc, STAGES * NUM_WGS)
    else:
        a_smem = buffers(a_desc, STAGES * NUM_WGS)
        b_smem = piece_buffers(b_desc, STAGES, BLOCK_N, NUM_WGS, B_K_MAJOR)
    full, empty = ring(STAGES, NUM_WGS)
    CONSUMERS: gl.constexpr = NUM_WGS + (NUM_WGS == 1)
    order = bars(CONSUMERS, NUM_WGS == 1)
    inputs = (a_desc, b_desc, a_smem, b_smem, full, empty, M, N)
    if SWAP_AB:
        return inputs, (b_smem, a_smem, full, empty, order)
    else:
        return inputs, (a_smem, b_smem, full, empty, order)


@gluon.jit
def specialize(
    consume: gl.constexpr, sums, a_desc, b_desc, operands, M, N, K, SPLIT_K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr = True,
):  # fmt: skip
    """Run the roles beside each other. The first has the kernel's own four warps."""
    k_begin, K = split_of_k(K, SPLIT_K, BLOCK_K)
    inputs, loads = rings_of(
        a_desc, b_desc, M, N,
        BLOCK_M, BLOCK_N, STAGES, NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAP_AB,
    )  # fmt: skip
    if NUM_WGS == 3:
        gl.warp_specialize([  # roles; warps of the others; their threads' registers
            (run_consumer, (
                consume, sums, loads, M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, 0)),
            (run_consumer, (
                consume, sums, loads, M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, 1)),
            (run_consumer, (
                consume, sums, loads, M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, 2)),
            (produce, (
                inputs, operands, k_begin, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAP_AB)),
        ], [4, 4, 4], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (run_consumer, (
                consume, sums, loads, M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, 0)),
            (run_consumer, (
                consume, sums, loads, M, N, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, 1)),
            (produce, (
                inputs, operands, k_begin, K, SPLIT_K, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, STAGES, NUM_WGS, A_K_MAJOR, B_K_MAJOR, SWAP_AB)),
        ], [4, 4], [240, 24])  # fmt: skip
