"""The stand-in for a GPU, where torch has kernels of its own for CUDA."""

import os
import subprocess
import sys

SCRIPT = """
import torch

def needs_a_gpu(*_, **__):
    raise RuntimeError("no CUDA-capable device is detected")

# As of a torch that was built with CUDA.
own = torch.library.Library("aten", "IMPL", "CUDA")
for name in ("fill_.Scalar", "add.out", "add.Tensor", "ne.Tensor", "equal"):
    own.impl(name, needs_a_gpu, allow_override=True)

from gemmgen.verification.stand_in.installation import install

driver = install()
ones, twos = (torch.full((2, 8), value, device="cuda:1") for value in (1.0, 2.0))
total = torch.empty_like(ones)
assert torch.add(ones, ones, out=total) is total
assert total.device == torch.device("cuda", 1)
assert torch.equal(total, twos) and torch.equal(ones + ones, twos)
print("as on a GPU")
"""


def test_no_function_of_torch_asks_for_a_gpu() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "as on a GPU\n", done.stderr
