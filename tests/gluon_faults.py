"""A small Gluon kernel and its faults, each with what the interpreter says of it.

Two groups of warps share the rows of a product that a third loads for them. The sum of
all blocks of K is doubled, rounded and stored; a second argument is added to it.
"""

KERNEL = """
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

tma_load = getattr(tma, "async_load", tma.async_copy_global_to_shared)


@triton.jit
def doubled(x):
    return x + x


@gluon.jit
def produce(a_desc, b_desc, a_smem, b_smem, full, empty, K, ROWS, STAGES: tl.constexpr):
    k_iter = 0
    for tile in range(tl.program_id(0), 3, tl.num_programs(0)):
        for k in range(0, K, 16):
            stage = k_iter % STAGES
            mbarrier.wait(empty.index(stage), ((k_iter // STAGES) & 1) ^ 1)
            mbarrier.expect(full.index(stage), (2 * ROWS + 16) * 16 * 2)
            for i in gl.static_range(2):
                corner = [tile * 2 * ROWS + i * ROWS, k]
                a = a_smem.index(2 * stage + i)
                tma_load(a_desc, corner, full.index(stage), a)
            tma_load(b_desc, [0, k], full.index(stage), b_smem.index(stage))
            k_iter += 1


@gluon.jit
def consume(args, STAGES: tl.constexpr, CONSUMER: tl.constexpr):
    c_desc, d_ptr, a_smem, b_smem, c_smem, full, empty, K, ROWS = args
    layout: tl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 16, 16])
    k_iter = 0
    for tile in range(tl.program_id(0), 3, tl.num_programs(0)):
        acc = gl.zeros((ROWS, 16), tl.float32, layout)
        for k in range(tl.cdiv(K, 16)):
            stage = k_iter % STAGES
            mbarrier.wait(full.index(stage), (k_iter // STAGES) & 1)
            a = a_smem.index(2 * stage + CONSUMER)
            b = b_smem.index(stage).permute((1, 0))
            acc = hopper.warpgroup_mma(a, b, acc, is_async=True, use_acc=k > 0)
            acc = hopper.warpgroup_mma_wait(1, deps=[acc])
            mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES), pred=k > 0)
            k_iter += 1
        acc = hopper.warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES))
        columns = gl.arange(0, 16, layout=gl.SliceLayout(0, layout))
        d = tl.load(d_ptr + columns, mask=columns < 16)
        tma.store_wait(0)
        c = (doubled(acc) + d[None, :]).to(tl.bfloat16)
        c_smem.index(CONSUMER).store(c)
        hopper.fence_async_shared()
        row = tile * 2 * ROWS + CONSUMER * ROWS
        tma.async_copy_shared_to_global(c_desc, [row, 0], c_smem.index(CONSUMER))
    tma.store_wait(0)


@gluon.jit
def kernel(a_desc, b_desc, c_desc, d_ptr, K, STAGES: tl.constexpr):
    ROWS: tl.constexpr = 64
    blocks = [2 * STAGES, ROWS, 16]
    a_smem = gl.allocate_shared_memory(tl.bfloat16, blocks, a_desc.layout)
    b_smem = gl.allocate_shared_memory(tl.bfloat16, [STAGES, 16, 16], b_desc.layout)
    c_smem = gl.allocate_shared_memory(tl.bfloat16, [2, ROWS, 16], c_desc.layout)
    full = gl.allocate_shared_memory(tl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(tl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    sums = (c_desc, d_ptr, a_smem, b_smem, c_smem, full, empty, K, ROWS)
    gl.warp_specialize(
        [
            (consume, (sums, STAGES, 0)),
            (consume, (sums, STAGES, 1)),
            (produce, (a_desc, b_desc, a_smem, b_smem, full, empty, K, ROWS, STAGES)),
        ],
        [4, 4],
        [240, 24],
    )
"""

WAITS_FREE = (
    "            mbarrier.wait(empty.index(stage), ((k_iter // STAGES) & 1) ^ 1)\n"
)
WAITS_FULL = "            mbarrier.wait(full.index(stage), (k_iter // STAGES) & 1)\n"
RELEASES = "        mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES))\n"
WAITS_SUM = "        acc = hopper.warpgroup_mma_wait(0, deps=[acc])\n"
BYTES = "(2 * ROWS + 16) * 16 * 2"
MULTIPLIES = "hopper.warpgroup_mma(a, b, acc, is_async=True, use_acc=k > 0)"

FAULTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a stage is not waited for until it is free": (
        WAITS_FREE,
        "",
        ("produce, line ", "tile=0, k=32, k_iter=2"),
    ),
    "a stage is not waited for until it is full": (
        WAITS_FULL,
        "",
        ("a product reads ", "_smem["),
    ),
    "the producer waits for the wrong phase": (
        "((k_iter // STAGES) & 1) ^ 1",
        "(k_iter // STAGES) & 1",
        ("deadlock: ", "produce (2) waits for empty[0] (parity 0", "(tile=0, k=0"),
    ),
    "a consumer waits for the wrong phase": (
        "full.index(stage), (k_iter // STAGES) & 1)",
        "full.index(stage), ((k_iter // STAGES) & 1) ^ 1)",
        ("consume, line ", "CONSUMER="),
    ),
    "a phase that stands still": (
        "full.index(stage), (k_iter // STAGES) & 1)",
        "full.index(stage), 0)",
        ("full[", "phase 0, which it has waited for before: the wrong phase"),
    ),
    "a stage is never released": (RELEASES, "", ("deadlock: ",)),
    "a stage is released twice": (
        RELEASES,
        RELEASES + RELEASES,
        ("",),
    ),
    "a stage is released before it is read": (
        "warpgroup_mma_wait(1, deps",
        "warpgroup_mma_wait(2, deps",
        ("overwrites ", "while a product of consume", "may be reading it"),
    ),
    "a barrier counts one arrival less": (
        "empty.index(i), count=2",
        "empty.index(i), count=1",
        ("",),
    ),
    "a barrier counts one arrival more": (
        "empty.index(i), count=2",
        "empty.index(i), count=3",
        ("deadlock: ", "2 of 3 arrivals"),
    ),
    "a barrier is not initialized": (
        "        mbarrier.init(full.index(i), count=1)\n",
        "",
        ("full[0] is used before it is initialized",),
    ),
    "a barrier that is none of the ring's": (
        "full.index(stage), a)",
        "full.index(stage + 1), a)",
        ("full[",),
    ),
    "more bytes are expected than come": (
        BYTES,
        "(2 * ROWS + 32) * 16 * 2",
        ("deadlock: ", "512 bytes to come"),
    ),
    "fewer bytes are expected than come": (BYTES, "ROWS * 16 * 2", ("[",)),
    "the sum is read in flight": (
        WAITS_SUM,
        "",
        ("the accumulator is read before the wait for its products",),
    ),
    "the sum is read in flight by a function": (
        WAITS_SUM + RELEASES,
        "        acc = doubled(acc)\n" + WAITS_SUM + RELEASES,
        ("the accumulator is read before the wait for its products",),
    ),
    "products are left in flight": (
        "        acc = hopper.warpgroup_mma_wait(0, deps=[acc])\n"
        "        mbarrier.arrive(empty.index((k_iter + STAGES - 1) % STAGES))\n",
        "        acc = gl.zeros((ROWS, 16), tl.float32, layout)\n" + RELEASES,
        ("may be reading it",),
    ),
    "no fence before the store": (
        "        hopper.fence_async_shared()\n",
        "",
        (
            "a store to global memory reads c_smem[",
            "before a fence has made a store of",
        ),
    ),
    "a fence before what it should make visible": (
        "        c_smem.index(CONSUMER).store(c)\n"
        "        hopper.fence_async_shared()\n",
        "        hopper.fence_async_shared()\n"
        "        c_smem.index(CONSUMER).store(c)\n",
        ("before a fence has made a store of",),
    ),
    "a tile is overwritten that is being stored": (
        "        tma.store_wait(0)\n        c =",
        "        c =",
        ("a store overwrites c_smem[", "while a store to global memory of consume"),
    ),
    "the kernel ends while it stores": (
        "    tma.store_wait(0)\n\n",
        "\n",
        ("ends while its stores read shared memory",),
    ),
    "a stage that does not exist": (
        "stage = k_iter % STAGES\n            mbarrier.wait(empty",
        "stage = k_iter\n            mbarrier.wait(empty",
        ("is beyond its 2 parts",),
    ),
    "the last block of K is not loaded": (
        "range(0, K, 16)",
        "range(0, K - 16, 16)",
        ("deadlock: ", "waits for full["),
    ),
    "a block of K too many is loaded": (
        "range(0, K, 16)",
        "range(0, K + 16, 16)",
        ("",),
    ),
    "a box that does not fit its block": (
        "[STAGES, 16, 16], b_desc",
        "[STAGES, 32, 16], b_desc",
        ("a descriptor of boxes [16, 16] is used with b_smem[0] of [32, 16]",),
    ),
    "a product whose sides do not fit": (
        "b_smem.index(stage).permute((1, 0))",
        "a_smem.index(2 * stage)",
        ("[64, 16] times [64, 16] is added to",),
    ),
    "a product of too few rows": (
        "ROWS: tl.constexpr = 64",
        "ROWS: tl.constexpr = 32",
        ("is used with a_smem[0] of [32, 16]",),
    ),
    "registers that there are not": (
        "[240, 24]",
        "[256, 256]",
        ("the workers leave no registers to the others",),
    ),
    "a tile is stored elsewhere": (
        "c_desc, [row, 0]",
        "c_desc, [row + 1, 0]",
        ("wrong",),
    ),
    "rows of the second half are not stored": (
        "CONSUMER * ROWS\n        tma",
        "0 * ROWS\n        tma",
        ("wrong",),
    ),
    "a block is not added": ("use_acc=k > 0", "use_acc=k > 1", ("wrong",)),
    "an operand is read beyond its end": (
        "d_ptr + columns, mask",
        "d_ptr + columns + 1, mask",
        ("load outside every argument",),
    ),
    "a name that the interpreter lacks": (
        "hopper.fence_async_shared()",
        "hopper.fence_of_another_kind()",
        ("the interpreter of Gluon has no hopper.fence_of_another_kind",),
    ),
}
"""What is replaced, by what, and what is said of it in every order."""

HARMLESS: dict[str, tuple[str, str]] = {
    "nothing": ("", ""),
    "the first block is added to zeros": ("use_acc=k > 0", "use_acc=True"),
    "a fence too many": (RELEASES, RELEASES + "        hopper.fence_async_shared()\n"),
    "a product at a time": ("warpgroup_mma_wait(1, deps", "warpgroup_mma_wait(0, deps"),
    "copies that are asked for before their bytes are expected": (
        "            mbarrier.expect(full.index(stage), (2 * ROWS + 16) * 16 * 2)\n"
        "            for i in gl.static_range(2):\n"
        "                corner = [tile * 2 * ROWS + i * ROWS, k]\n"
        "                a = a_smem.index(2 * stage + i)\n"
        "                tma_load(a_desc, corner, full.index(stage), a)\n",
        "            for i in gl.static_range(2):\n"
        "                corner = [tile * 2 * ROWS + i * ROWS, k]\n"
        "                a = a_smem.index(2 * stage + i)\n"
        "                tma_load(a_desc, corner, full.index(stage), a)\n"
        "            mbarrier.expect(full.index(stage), (2 * ROWS + 16) * 16 * 2)\n",
    ),
}
"""What hardware allows, though it is not how one would write it."""
