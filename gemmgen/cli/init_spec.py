"""The commented spec that `gemmgen init` writes."""

STARTER = """\
# A gemmgen spec: `gemmgen build spec.yaml` writes a folder of Triton kernels per entry.
gemmgen: 1
targets: [sm_80, sm_90, sm_100]   # architectures that every kernel must compile for

defaults:                         # any kernel key but name; a kernel may override it
  dtype: bf16

kernels:
  # y = gelu(x @ w.T + bias): x [..., K], w [N, K], bias [N].
  - name: mlp_up
    op: linear
    epilogue: gelu(acc + bias[n])

  # c = a @ b in every layout: gemm_nn, gemm_nt, gemm_tn, gemm_tt.
  - name: gemm_{layout}
    for_each: {layout: [NN, NT, TN, TT]}
    op: gemm

  # Two results: the activation, and what its backward pass needs.
  - name: mlp_up_train
    op: linear
    epilogue: |
      pre = acc + bias[n]
      out = gelu(pre)
    outputs: [out, pre]
    tiles: {m: 128, n: 128, k: 64}   # instead of auto: one tile, or a list
"""
