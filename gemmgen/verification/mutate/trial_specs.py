"""Specs, and tuning files, of the kernels that shared modules are tried by."""

from gemmgen.schedules.parts.tile import Rates
from gemmgen.select.tuned.costs import Cost, Costs
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.tuned.layers import Pin
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.select.tuned.tuning_file import Measured, Tuning
from gemmgen.spec.shapes import Layer

SPEC = """
gemmgen: 1
defaults: {dtype: bf16}
kernels:
  # Descriptors of every role, parts of K, warp roles, a matrix operand and a vector.
  - {name: fused, op: linear, epilogue: "silu(acc + bias[n]) + residual[m, n]"}
  # Numbers, and a matrix operand that is wider than the result.
  - name: scaled
    op: gemm
    layout: NN
    epilogue: alpha[] * acc + beta[] * addend[m, n]
    operands: {addend: fp32}
  # Two results of different types.
  - name: pair
    op: linear
    epilogue: |
      pre = acc + bias[n]
      out = gelu(pre)
    outputs: {out: bf16, pre: fp32}
  # Blocks that are rounded to tf32 as they are read.
  - {name: rounded, op: gemm, layout: NT, dtype: fp32, precision: tf32}
  # Neither matrix lies along K, whose last block may be one long.
  - {name: across, op: gemm, layout: TN}
  # Groups of warps that share a tile's rows, where others share its columns; of A from
  # registers; two matrix operands.
  - name: turned
    op: gemm
    layout: TT
    dtype: fp32
    precision: tf32
    epilogue: acc * gate[m, n] + addend[m, n]
  # Sides that are sums of two and of three pieces, products in halves and in quarters;
  # parts of K of programs that go from tile to tile.
  - name: pieces
    op: linear
    schedule: warp_specialized
    epilogue: |
      pre = acc + bias[n]
      out = silu(pre) + residual[m, n]
    outputs: {out: bf16, pre: fp32}
    tiles:
      - {m: 104, n: 128, k: 32, stages: 2, warps: 8, split_k: 3}
      - {m: 256, n: 128, k: 32, stages: 2, warps: 8}
      - {m: 128, n: 256, k: 32, stages: 2, warps: 8}
      - {m: 128, n: 208, k: 32, stages: 2, warps: 8}
  # The same of a matrix that lies along them.
  - name: lying
    op: gemm
    layout: TT
    schedule: warp_specialized
    tiles: {m: 192, n: 128, k: 32, stages: 2, warps: 8}
  # Descriptors of whole tiles, of more groups of warps than share one.
  - name: wide
    op: linear
    schedule: tma
    tiles: {m: 256, n: 64, k: 32, warps: 16}
  # A layer of an activation, one whose parameters have types of their own.
  - name: layered
    op: linear
    epilogue: gelu_tanh(acc + bias[n])
    operands: {bias: fp32}
    module: true
    tiles: {m: 16, n: 16, k: 16}
    schedule: tiled
  # Parts of K of many tiles.
  - {name: parted, op: linear, module: true, tiles: {m: 64, n: 64, k: 64, split_k: 4}}
  # Configurations that race.
  - name: raced
    op: gemm
    layout: NN
    dtype: fp16
    autotune: runtime
    tiles: [{m: 16, n: 16, k: 16}, {m: 16, n: 32, k: 32, warps: 8}]
"""


COSTED = """
gemmgen: 1
kernels:
  - name: costed
    op: linear
    dtype: bf16
    schedule: [tiled, tma, persistent, split_k, warp_specialized, gemv]
  # Two matrix operands of tiles whose columns are cut, one of a cluster.
  - name: held
    op: linear
    dtype: bf16
    schedule: [tiled, warp_specialized]
    epilogue: acc * gate[m, n] + addend[m, n]
"""
_LAYERED = {
    Layer(512, 1024): (
        Pin(9, 64, parse_tile("tma 64x64x128 s6 w4"), 64, 1e-5, 2e-5),
        Pin(65, 200, parse_tile("warp_specialized 72x64x64 s8 w4"), 96, 1e-5, 2e-5),
    ),
    Layer(4096, 256): (
        Pin(1, 16, parse_tile("tma 16x64x256 kfill s5 w4"), 8, 1e-5, 2e-5),
    ),
}
TUNED = Tuning(
    "", "sm_90", {}, {"costed": Measured((), (), {}, _LAYERED)},
    costs={
        "bf16": Costs(
            Rates(
                *(0, 0, 2.0, 4.5e6, 1.8e7, 3.0e6, 1.8, 4.8),
                *(1.6, 7e4, 0.15, 4e8, 1e8, 150.0),
            ),
            {
                parse_tile("tma 16x64x256 kfill s5 w4"): Cost(0.24, 2.3, 3.6, 6e-5),
                parse_tile("tma 64x64x128 kfill s7 w4"): Cost(0.21, 2.5, 3.6, 6e-5),
                parse_tile("tma 64x64x128 s6 w4"): Cost(0.21, 2.4, 3.6, 6e-5),
                parse_tile("persistent 128x256x64 s3 w8"): Cost(0.64, 1.9, 4, 4e-5),
                parse_tile("warp_specialized 72x64x64 k2fill s8 w4"): Cost(
                    0.05, 1.5, 3.0, 5e-5
                ),
                parse_tile("warp_specialized 104-120x128x64 kfill s5 w8"): Cost(
                    0.34, 0.9, 3.2, 4e-5
                ),
                parse_tile("warp_specialized 128x72-208x64 kfill s4 w8"): Cost(
                    0.51, 1.2, 3.2, 4e-5
                ),
                parse_tile("warp_specialized 144-256x256x64 c2 s4 w8"): Cost(
                    0.3, 1.6, 3.2, 4e-5
                ),
            },
        )
    },
)  # fmt: skip
"""A kernel that chooses among tiles by what they cost, but for its layers.

One stands for others of fewer rows, one for those of fewer columns: each in one; one of
a cluster for tiles in pieces.
"""

STREAMING = """
gemmgen: 1
targets: [sm_90]
kernels:
  - {name: streaming, op: gemm, layout: NT, dtype: bf16, schedule: [tiled, gemv]}
"""
OF_ROWS = ("row_dot", "streamed")
FOUR_COLUMNS = Tuning(
    "", "sm_90", {},
    {
        "streaming": Measured(
            (Rule((1, ANY, ANY), parse_tile("gemv 1x4x256 s1 w1")),), (), {}
        )
    },
)  # fmt: skip
"""Rows times a matrix without a tensor core, several columns in a program."""

FOR_OLDER = """
gemmgen: 1
targets: [{target}]
kernels:
  - {{name: for_{target}, op: linear, dtype: bf16}}
  - name: deep_for_{target}
    op: linear
    dtype: bf16
    tiles: {{m: 128, n: 256, k: 64, stages: 4, warps: 8}}
"""
"""Kernels that newer GPUs have no rows of their own for, one with little room left."""

TRAINED = """
gemmgen: 1
targets: [sm_80]
kernels:
  - name: trained
    op: linear
    dtype: fp32
    tiles: {m: 32, n: 32, k: 32}
    epilogue: |
      out = alpha[] * gelu(acc + bias[n]) * scale[m] + residual[m, n]
      gated = out * gate[m, n]
    outputs: [out, gated]
    operands: {scale: bf16}
    grad: true
    grad_accumulate: true
    module: true
  - name: lone
    op: linear
    dtype: bf16
    tiles: {m: 32, n: 32, k: 32}
    epilogue: gelu(acc)
    grad: true
  - {name: bare, op: linear, dtype: bf16, tiles: {m: 32, n: 32, k: 32}, grad: true}
"""
"""Kernels with a backward: all that such share, of two results; of one; of no pass.

A gradient that is summed is of another type than its sums.
"""

ADDING = """
gemmgen: 1
targets: [sm_80]
kernels:
  - {name: added, op: gemm, layout: NT, dtype: fp32, schedule: [tiled, simt]}
  - name: added_across
    op: gemm
    layout: TN
    dtype: {a: fp32, out: bf16}
    schedule: [tiled, simt]
"""
"""Multiply-adds of sides along K, and of such as are not, whose results are rounded."""

CALLING = """
gemmgen: 1
defaults: {{dtype: fp32, tiles: {{m: 32, n: 32, k: 32}}}}
kernels:
  - {{name: with_{}, op: linear, epilogue: "{}"}}
"""
