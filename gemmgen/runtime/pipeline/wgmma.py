"""One wgmma for all columns of a side, where Gluon has one for each power of two.

wgmma takes any multiple of 8 columns, layouts of Gluon powers of two. PTX gets the
registers of a sum that is a power of two wide, and gives those of its first columns to
wgmma. All rows of a side follow each other in shared memory, 128 bytes of K each. The
left side, of which each consumer has a slice, may lie along its rows instead: then 64
of them follow each other, 128 bytes for each step of K.

PTX must know where that is. The ring is one allocation, the largest, and Triton 3.6 to
3.9 place the largest first: at `global_smem`, as they call the whole. Stages of the
left side lie there, in slices of the consumers, then stages of the other. With a newer
Triton, of which that is not known, pieces are multiplied one by one.
"""

from typing import Any

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..device import tma_load
from ..sides import in_one, most_in_one, reserved, rows_of_ring
from .sums import halves

# Triton 3.9 calls it by the first name, those before by the second.
_memory: Any = gl.shared_memory_descriptor
reinterpret: Any = getattr(_memory, "reinterpret", None) or _memory._reinterpret

VERSION = tuple(map(int, triton.__version__.split(".")[:2]))
PLACES_LARGEST_FIRST = gl.constexpr(VERSION < (3, 10))

reserved_for = gluon.constexpr_function(reserved)
rows_of = gluon.constexpr_function(rows_of_ring)
most_of = gluon.constexpr_function(most_in_one)
fits_in_one = gluon.constexpr_function(in_one)


@gluon.constexpr_function
def ring_rows(side, left, warpgroups, stages):
    """The rows of a ring for a side multiplied in one, and the left one."""
    return rows_of(left + reserved_for(side), left // warpgroups, stages)


@gluon.constexpr_function
def multiplies_in_one(
    m, n, k, stages, warpgroups, swap_ab, dtype, a_k_major, b_k_major, able
):
    """Whether one does, if `able`: for 16 bits, of which rows have 128 bytes of K."""
    if not (able and PLACES_LARGEST_FIRST.value):
        return False
    side, left = (m, n) if swap_ab else (n, m)
    along_k = a_k_major if swap_ab else b_k_major
    rows = ring_rows(side, left, warpgroups, stages)
    lines = dtype.primitive_bitwidth == 16 and k == 64 and along_k
    return lines and fits_in_one(side, left // warpgroups, most_of(warpgroups), rows)


@gluon.jit
def ring_in_one(
    desc, SIDE: gl.constexpr, LEFT: gl.constexpr, NUM_WGS: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Shared memory for all stages of both sides; 8 rows of it are swizzled alike."""
    ROWS: gl.constexpr = ring_rows(SIDE, LEFT, NUM_WGS, STAGES)
    shape: gl.constexpr = [ROWS // 8, 8, desc.block_shape[1]]
    return gl.allocate_shared_memory(desc.dtype, shape, desc.layout)


@gluon.jit
def in_boxes(ring, desc):
    """The same memory as boxes of a descriptor."""
    ROWS: gl.constexpr = desc.block_shape[0]
    COLUMNS: gl.constexpr = desc.block_shape[1]
    ELEMENTS: gl.constexpr = ring.shape[0] * ring.shape[1] * ring.shape[2]
    shape: gl.constexpr = [ELEMENTS // (ROWS * COLUMNS), ROWS, COLUMNS]
    return reinterpret(ring, desc.dtype, shape, desc.layout)


@gluon.jit
def load_boxes(desc, ring, row, COUNT: gl.constexpr, first, k, bar):
    """Load boxes from `first` on, one after the other, to a row of the ring and on."""
    SIDE: gl.constexpr = desc.block_shape[0]
    boxes = in_boxes(ring, desc)
    for i in gl.static_range(COUNT):
        tma_load(desc, [first + i * SIDE, k], bar, boxes.index(row // SIDE + i))


@gluon.jit
def load_in_one(
    descs, ring, stage, first, k, bar, SIDE: gl.constexpr, LEFT: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Load a K block of a side, from `first` on, to its stage."""
    row = STAGES * LEFT + stage * reserved_for(SIDE)
    BOX: gl.constexpr = descs[0].block_shape[0]
    REST: gl.constexpr = SIDE % BOX
    load_boxes(descs[0], ring, row, SIDE // BOX, first, k, bar)
    if REST > 0:
        at = SIDE - REST
        load_boxes(descs[1], ring, row + at, 1, first + at, k, bar)


@gluon.constexpr_function
def width_of(columns):
    """The power of two that so many columns have room in."""
    return 1 << (columns - 1).bit_length()


@gluon.constexpr_function
def product_text(rows, columns, consumer, left, left_along_k, stages, dtype):
    """PTX that begins to add the product of a consumer's rows and a block's columns.

    Its operands are registers of the sum after and before, a power of two wide, then as
    many with the stage. Matrix descriptors: PTX ISA, asynchronous warpgroup-level
    matrix multiplication; addresses count 16 bytes, rows of 128 are swizzled, 8 of them
    1024 bytes apart. Of a left side that lies along its rows, which wgmma transposes,
    16 such of 64 elements are a step of K.
    """
    described = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
    held = rows * width_of(columns) // 128
    of_64 = held * 64 // rows
    name = {"bf16": "bf16", "fp16": "f16"}[dtype.name]
    kind = f"m64n{columns}k16.f32.{name}.{name}"
    left_bytes, transposes = (32, 0) if left_along_k else (16 * 128, 1)
    lines = ["{ .reg .pred adds; .reg .b32 at; .reg .b64 lefts, rights, left, right;"]
    lines += ["setp.eq.b32 adds, 0, 0;"]
    for side, stride in (("lefts", left), ("rights", reserved_for(columns))):
        lines += [
            "mov.u32 at, global_smem;",
            f"mad.lo.u32 at, ${2 * held}, {stride * 128}, at;",
            "shr.u32 at, at, 4;",
            f"cvt.u64.u32 {side}, at;",
        ]
    lines += ["wgmma.fence.sync.aligned;"]
    for row in range(0, rows, 64):
        first = row // 64 * of_64
        total = ", ".join(f"${first + i}" for i in range(columns // 2))
        for step in range(4):  # of 16 elements
            left_at = (consumer * rows + row) * 128 + step * left_bytes
            right_at = stages * left * 128 + step * 32
            lines += [
                f"add.u64 left, lefts, {described + (left_at >> 4)};",
                f"add.u64 right, rights, {described + (right_at >> 4)};",
                f"wgmma.mma_async.sync.aligned.{kind}",
                f"{{{total}}}, left, right, adds, 1, 1, {transposes}, 0;",
            ]
    return "\n".join([*lines, "wgmma.commit_group.sync.aligned; }"])


@gluon.constexpr_function
def product_operands(held):
    """How PTX has the operands of `product_text`: the sum's are the same registers."""
    same = [str(i) for i in range(held)]
    return ",".join(["=f"] * held + same + ["r"] * held)


@gluon.jit
def begin_in_one(
    total, stage, COLUMNS: gl.constexpr, LEFT: gl.constexpr,
    LEFT_K_MAJOR: gl.constexpr, STAGES: gl.constexpr, CONSUMER: gl.constexpr,
    dtype: gl.constexpr,
):  # fmt: skip
    """Begin to multiply a consumer's slice of a block by all columns of it."""
    ROWS: gl.constexpr = total.shape[0]
    HELD: gl.constexpr = ROWS * total.shape[1] // 128
    text: gl.constexpr = product_text(
        ROWS, COLUMNS, CONSUMER, LEFT, LEFT_K_MAJOR, STAGES, dtype
    )
    operands: gl.constexpr = product_operands(HELD)
    stages = gl.full(total.shape, stage, gl.int32, total.type.layout)
    return gl.inline_asm_elementwise(
        text, operands, [total, stages], gl.float32, is_pure=False, pack=HELD
    )


@gluon.jit
def cut_sum(total, PIECES: gl.constexpr):
    """A sum's first columns, which are not all of it, as a sum for each piece."""
    sums = ()
    for i in gl.static_range(len(PIECES)):
        for _ in gl.static_range(8):
            if total.shape[1] > 2 * PIECES[i]:
                total, _rest = halves(total)
        piece, total = halves(total)
        sums += (piece,)
    return sums
