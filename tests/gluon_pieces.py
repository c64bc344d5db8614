"""A small Gluon kernel of blocks in parts, its faults, and what is said of each.

One group of warps multiplies a block that comes in two boxes, and stores the sum in
two parts, the second while the first may still be read.
"""

KERNEL = """
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

tma_load = getattr(tma, "async_load", tma.async_copy_global_to_shared)
tma_store = getattr(tma, "async_store", tma.async_copy_shared_to_global)


@gluon.jit
def produce(a_desc, b_desc, a_smem, b_smem, full):
    mbarrier.expect(full.index(0), (64 + 16) * 16 * 2)
    a = a_smem.index(0)
    for i in gl.static_range(2):
        tma_load(a_desc, [32 * i, 0], full.index(0), a.slice(32 * i, 32, 0))
    tma_load(b_desc, [0, 0], full.index(0), b_smem.index(0))


@gluon.jit
def consume(c_desc, a_smem, b_smem, c_smem, full):
    layout: tl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 16, 16])
    acc = gl.zeros((64, 16), tl.float32, layout)
    mbarrier.wait(full.index(0), 0)
    b = b_smem.index(0).permute((1, 0))
    acc = hopper.warpgroup_mma(a_smem.index(0), b, acc, is_async=True, use_acc=False)
    acc = hopper.warpgroup_mma_wait(0, deps=[acc])
    parts = acc.reshape((2, 32, 16)).permute((1, 2, 0)).split()
    c = c_smem.index(0)
    for i in gl.static_range(2):
        part = c.slice(32 * i, 32, 0)
        part.store(parts[i].to(tl.bfloat16))
        hopper.fence_async_shared()
        tma_store(c_desc, [32 * i, 0], part)
    tma.store_wait(0)


@gluon.jit
def kernel(a_desc, b_desc, c_desc):
    a_smem = gl.allocate_shared_memory(tl.bfloat16, [1, 64, 16], a_desc.layout)
    b_smem = gl.allocate_shared_memory(tl.bfloat16, [1, 16, 16], b_desc.layout)
    c_smem = gl.allocate_shared_memory(tl.bfloat16, [1, 64, 16], c_desc.layout)
    full = gl.allocate_shared_memory(tl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full.index(0), count=1)
    gl.warp_specialize(
        [
            (consume, (c_desc, a_smem, b_smem, c_smem, full)),
            (produce, (a_desc, b_desc, a_smem, b_smem, full)),
        ],
        [4],
        [24],
    )
"""

LOADS = """    mbarrier.expect(full.index(0), (64 + 16) * 16 * 2)
    a = a_smem.index(0)
    for i in gl.static_range(2):
"""
FENCE = "        hopper.fence_async_shared()\n"

FAULTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a part that is multiplied was never filled": (
        LOADS,
        LOADS.replace("64 + 16", "32 + 16").replace("range(2)", "range(1)"),
        ("a product reads a_smem[0], which nobody has filled",),
    ),
    "a part is loaded where another is": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(0, 32, 0)",
        ("overwrites a_smem[0] while a load from global memory", "may be writing it"),
    ),
    "a part is loaded over half of another": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(16 * i, 32, 0)",
        ("overwrites a_smem[0] while a load from global memory", "may be writing it"),
    ),
    "a part begins beyond its block": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(64 * i, 32, 0)",
        ("64 to 96 is beyond a_smem[0] of [64, 16]",),
    ),
    "a part ends beyond its block": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(33 * i, 32, 0)",
        ("33 to 65 is beyond a_smem[0] of [64, 16]",),
    ),
    "a part begins before its block": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(-32 * i, 32, 0)",
        ("-32 to 0 is beyond a_smem[0] of [64, 16]",),
    ),
    "a part along the other axis": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(32 * i, 32, 1)",
        ("is beyond a_smem[0] of [64, 16]",),
    ),
    "a box of a part twice as large": (
        "a.slice(32 * i, 32, 0)",
        "a",
        ("a descriptor of boxes [32, 16] is used with a_smem[0] of [64, 16]",),
    ),
    "a block that is loaded turned": (
        "full.index(0), b_smem.index(0))",
        "full.index(0), b_smem.index(0).permute((1, 0)))",
        ("b_smem[0] has another layout than its descriptor",),
    ),
    "a part is multiplied before it is there": (
        "    mbarrier.wait(full.index(0), 0)\n",
        "",
        ("a product reads a_smem[0]",),
    ),
    "the second part is not fenced": (
        FENCE,
        "        if i == 0:\n    " + FENCE,
        ("a store to global memory reads c_smem[0] before a fence has made a store",),
    ),
    "a part is fenced before it is stored": (
        "        part.store(parts[i].to(tl.bfloat16))\n" + FENCE,
        FENCE + "        part.store(parts[i].to(tl.bfloat16))\n",
        ("before a fence has made a store of",),
    ),
    "a part is stored over half of one that is being read": (
        "c.slice(32 * i, 32, 0)",
        "c.slice(16 * i, 32, 0)",
        ("a store overwrites c_smem[0] while a store to global memory of consume",),
    ),
    "a part is stored over one that is being read": (
        "c.slice(32 * i, 32, 0)",
        "c.slice(0, 32, 0)",
        ("a store overwrites c_smem[0] while a store to global memory of consume",),
    ),
    "a part of too few rows": (
        "c.slice(32 * i, 32, 0)",
        "c.slice(32 * i, 16, 0)",
        ("[32, 16] is stored in c_smem[0] of [16, 16]",),
    ),
    "a part in another type": (
        "parts[i].to(tl.bfloat16)",
        "parts[i]",
        ("fp32 is stored in c_smem[0] of bf16",),
    ),
    "parts exchanged": ("parts[i].to", "parts[1 - i].to", ("wrong",)),
    "rows taken in turn": (
        "acc.reshape((2, 32, 16)).permute((1, 2, 0))",
        "acc.reshape((32, 2, 16)).permute((0, 2, 1))",
        ("wrong",),
    ),
    "a part is stored elsewhere": ("c_desc, [32 * i, 0]", "c_desc, [0, 0]", ("wrong",)),
    "a sum in parts that is still being made": (
        "    acc = hopper.warpgroup_mma_wait(0, deps=[acc])\n",
        "",
        ("the accumulator is read before the wait for its products",),
    ),
}
"""What is replaced, by what, and what is said of it in every order."""

HARMLESS: dict[str, tuple[str, str]] = {
    "two loads at a time, and a store beside one that is read": ("", ""),
    "the second part is loaded first": (
        "    for i in gl.static_range(2):\n        tma_load",
        "    for i in (1, 0):\n        tma_load",
    ),
    "a store at a time": (
        "        part = c.slice",
        "        tma.store_wait(0)\n        part = c.slice",
    ),
    "a store into a part that has been read": (
        "        part = c.slice(32 * i, 32, 0)\n",
        "        tma.store_wait(0)\n        part = c.slice(16 * i, 32, 0)\n",
    ),
    "both parts fenced at once": (
        "        part.store(parts[i].to(tl.bfloat16))\n" + FENCE,
        "        if i == 0:\n"
        "            for j in gl.static_range(2):\n"
        "                c.slice(32 * j, 32, 0).store(parts[j].to(tl.bfloat16))\n"
        "    " + FENCE,
    ),
    "a part of a part": (
        "a.slice(32 * i, 32, 0)",
        "a.slice(0, 64, 0).slice(32 * i, 32, 0)",
    ),
}
"""What hardware allows, though it is not how one would write it."""
