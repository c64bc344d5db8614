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
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from .device import swizzle, tma_load


@gluon.jit
def buffers(desc, COUNT: gl.constexpr):
    """Shared memory for COUNT blocks of a descriptor."""
    shape: gl.constexpr = [COUNT, desc.block_shape[0], desc.block_shape[1]]
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


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


@gluon.constexpr_function
def bytes_of(descs):
    """Bytes of a block of each descriptor, together."""
    return sum(
        one.block_shape[0] * one.block_shape[1] * one.dtype.primitive_bitwidth // 8
        for one in descs
    )


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
def load_block(
    desc, first, k, bar, smem, stage, PARTS: gl.constexpr, K_MAJOR: gl.constexpr
):
    """Load a K block of A or B, in as many parts as consumers cut it into."""
    SIDE: gl.constexpr = desc.block_shape[1 - K_MAJOR]
    for part in gl.static_range(PARTS):
        at = first + part * SIDE
        block = smem.index(stage * PARTS + part)
        if K_MAJOR:
            tma_load(desc, [at, k], bar, block)
        else:
            tma_load(desc, [k, at], bar, block)


@gluon.jit
def load_operands(
    operands, first_m, first_n, turn, PARTS_M: gl.constexpr, PARTS_N: gl.constexpr
):
    """Load each consumer's part of a tile's operands [m, n], when its room is empty."""
    descs, smems, operand_full, operand_empty = operands
    ROWS: gl.constexpr = descs[0].block_shape[0]
    COLUMNS: gl.constexpr = descs[0].block_shape[1]
    PINGPONG: gl.constexpr = PARTS_M * PARTS_N == 1
    for part in gl.static_range(PARTS_M * PARTS_N):
        consumer = turn % (1 + PINGPONG) + part
        phase = (turn // (1 + PINGPONG)) & 1
        bar = operand_full.index(consumer)
        mbarrier.wait(operand_empty.index(consumer), phase ^ 1)
        mbarrier.expect(bar, bytes_of(descs))
        at_m = first_m + part % PARTS_M * ROWS
        at_n = first_n + part % PARTS_N * COLUMNS
        for i in gl.static_range(len(descs)):
            tma_load(descs[i], [at_m, at_n], bar, smems[i].index(consumer))


@gluon.jit
def produce(
    inputs, operands,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr,
):  # fmt: skip
    """Load the K blocks of every tile of this program, each when its stage is empty."""
    a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K = inputs
    PARTS_M: gl.constexpr = BLOCK_M // a_desc.block_shape[1 - A_K_MAJOR]
    PARTS_N: gl.constexpr = BLOCK_N // b_desc.block_shape[1 - B_K_MAJOR]
    BITS: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * a_desc.dtype.primitive_bitwidth
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    turn = 0
    k_iter = 0
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m, first_n = tile_m * BLOCK_M, tile_n * BLOCK_N
        for k in range(0, K, BLOCK_K):
            stage = k_iter % STAGES
            bar = full.index(stage)
            mbarrier.wait(empty.index(stage), ((k_iter // STAGES) & 1) ^ 1)
            mbarrier.expect(bar, BITS // 8)
            # B last: programs beside this one want the same, which L2 reads once if all
            # ask together: 1.13 ms against 1.41 (8192x14336x4096 of zeros, H200).
            load_block(a_desc, first_m, k, bar, a_smem, stage, PARTS_M, A_K_MAJOR)
            load_block(b_desc, first_n, k, bar, b_smem, stage, PARTS_N, B_K_MAJOR)
            k_iter += 1
        # Operands last: a consumer reads them when its sum is done.
        if len(operands) > 0:
            load_operands(operands, first_m, first_n, turn, PARTS_M, PARTS_N)
        turn += 1


@gluon.jit
def side(block, ROWS_FIRST: gl.constexpr, LAYOUT: gl.constexpr = None):
    """A block as wgmma reads it: rows first, and in registers if it has a LAYOUT."""
    turned = block if ROWS_FIRST else block.permute((1, 0))
    return turned if LAYOUT is None else turned.load(LAYOUT)


@gluon.jit
def no_sum(ROWS: gl.constexpr, COLUMNS: gl.constexpr, dtype: gl.constexpr):
    """What products of such elements are added to, where wgmma leaves their sum."""
    DEPTH: gl.constexpr = 256 // dtype.primitive_bitwidth  # of K, at a time
    SUM: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, DEPTH])
    return gl.zeros((ROWS, COLUMNS), gl.float32, SUM)


@gluon.jit
def multiply(
    loads, K, k_iter, wave, ROWS: gl.constexpr, COLUMNS: gl.constexpr,
    BLOCK_K: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr, LEFT_K_MAJOR: gl.constexpr, RIGHT_K_MAJOR: gl.constexpr,
    LEFT_IN_REGISTERS: gl.constexpr = False,
):  # fmt: skip
    """Sum the K blocks of a consumer's tile, and hand each stage back to the producer.

    `k_iter` counts K blocks, those that the other consumer takes too, `wave` tiles.
    """
    left_smem, right_smem, full, empty, order = loads
    PINGPONG: gl.constexpr = NUM_WGS == 1
    WG: gl.constexpr = CONSUMER * (NUM_WGS > 1)
    acc = no_sum(ROWS, COLUMNS, right_smem.dtype)
    OPERAND: gl.constexpr = gl.DotOperandLayout(0, acc.type.layout, 1)
    LAYOUT: gl.constexpr = OPERAND if LEFT_IN_REGISTERS else None
    k_blocks = tl.cdiv(K, BLOCK_K)
    if PINGPONG:
        mbarrier.wait(order.index(CONSUMER), (wave & 1) ^ (1 - CONSUMER))
    for k in range(k_blocks):
        stage = k_iter % STAGES
        mbarrier.wait(full.index(stage), (k_iter // STAGES) & 1)
        left = side(left_smem.index(stage * NUM_WGS + WG), LEFT_K_MAJOR, LAYOUT)
        right = side(right_smem.index(stage), not RIGHT_K_MAJOR)
        acc = hopper.warpgroup_mma(left, right, acc, is_async=True, use_acc=k > 0)
        if LEFT_IN_REGISTERS:  # into which the next block is loaded
            acc = hopper.warpgroup_mma_wait(0, deps=[acc])
            mbarrier.arrive(empty.index(stage))
        else:  # the block before this one has been read
            acc = hopper.warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES), pred=k > 0)
        k_iter += 1
    if not LEFT_IN_REGISTERS:
        acc = hopper.warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES))
    if PINGPONG:
        mbarrier.arrive(order.index(1 - CONSUMER))
        k_iter += k_blocks
    return acc, k_iter


@gluon.jit
def run_consumer(
    consume: gl.constexpr, sums, loads, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """Call the kernel's own: no parameter may stand in a list of roles."""
    consume(
        *sums, loads, M, N, K,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, NUM_WGS, CONSUMER,
    )  # fmt: skip


@gluon.jit
def rings_of(
    a_desc, b_desc, M, N, K,
    STAGES: gl.constexpr, NUM_WGS: gl.constexpr, SWAP_AB: gl.constexpr,
):  # fmt: skip
    """What the producer and what consumers take for the K blocks of A and B.

    Consumers share the blocks of one side and have slices of the other, the left of
    their products: that is B if they compute the transpose.
    """
    a_smem = buffers(a_desc, STAGES * (1 if SWAP_AB else NUM_WGS))
    b_smem = buffers(b_desc, STAGES * (NUM_WGS if SWAP_AB else 1))
    full, empty = ring(STAGES, NUM_WGS)
    CONSUMERS: gl.constexpr = NUM_WGS + (NUM_WGS == 1)
    order = bars(CONSUMERS, NUM_WGS == 1)
    inputs = (a_desc, b_desc, a_smem, b_smem, full, empty, M, N, K)
    if SWAP_AB:
        return inputs, (b_smem, a_smem, full, empty, order)
    else:
        return inputs, (a_smem, b_smem, full, empty, order)


@gluon.jit
def specialize(
    consume: gl.constexpr, sums, a_desc, b_desc, operands, M, N, K,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr, NUM_WGS: gl.constexpr,
    A_K_MAJOR: gl.constexpr, B_K_MAJOR: gl.constexpr, SWAP_AB: gl.constexpr = True,
):  # fmt: skip
    """Run the consumers and the producer beside each other, in warps of their own.

    After the roles: warps of each but the first, which has the kernel's own four, and
    registers of their threads.
    """
    inputs, loads = rings_of(a_desc, b_desc, M, N, K, STAGES, NUM_WGS, SWAP_AB)
    if NUM_WGS == 3:
        gl.warp_specialize([
            (run_consumer, (
                consume, sums, loads, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                STAGES, NUM_WGS, 0)),
            (run_consumer, (
                consume, sums, loads, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                STAGES, NUM_WGS, 1)),
            (run_consumer, (
                consume, sums, loads, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                STAGES, NUM_WGS, 2)),
            (produce, (
                inputs, operands, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES,
                A_K_MAJOR, B_K_MAJOR)),
        ], [4, 4, 4], [160, 160, 24])  # fmt: skip
    else:
        gl.warp_specialize([
            (run_consumer, (
                consume, sums, loads, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                STAGES, NUM_WGS, 0)),
            (run_consumer, (
                consume, sums, loads, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                STAGES, NUM_WGS, 1)),
            (produce, (
                inputs, operands, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES,
                A_K_MAJOR, B_K_MAJOR)),
        ], [4, 4], [240, 24])  # fmt: skip
