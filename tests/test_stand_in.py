"""The stand-in for a GPU, where torch has kernels of its own for CUDA."""

from tests import forked

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

MEMORY = """
import gc

import torch
from gemmgen.verification.stand_in.installation import install

MOST = 1 << 40

def held():
    tensor = torch.empty(MOST, dtype=torch.int8, device="cuda")
    both = [tensor]
    both.append(both)

driver = install()
gc.disable()
for _ in range(9):  # of which a GPU has room for four
    held()
for _ in range(9):
    with driver.capture(0, 11):
        first = torch.empty(MOST, dtype=torch.int8, device="cuda")
        at = first.data_ptr()
        del first
        second = torch.empty(MOST, dtype=torch.int8, device="cuda")
        assert second.data_ptr() != at
        del second
    driver.gpus.drop_graphs()
print("all given back")
"""

MAPS = """
from gemmgen.verification.stand_in.installation import install

driver = install()
(encode,) = (one for name, one in vars(driver.utils).items() if "tma" in name)
driver.capturing()
made = encode(1 << 20, 3, 1, 9, [64, 64], (7, 64), (64, 1), 0)
assert (made.address, made.shape) == (1 << 20, (7, 64))
try:
    encode(1 << 20, 3, 1, 9, [64, 64], (0, 64), (64, 1), 0)
except RuntimeError as error:
    print(error)
"""


def run(script: str) -> forked.Done:
    return forked.python(
        forked.ROOT, "-c", script, modules=forked.TORCH,
        TRITON_INTERPRET="0", CUDA_VISIBLE_DEVICES="",
    )  # fmt: skip


def test_no_function_of_torch_asks_for_a_gpu() -> None:
    done = run(SCRIPT)
    assert done.stdout == "as on a GPU\n", done.stderr


def test_memory_of_errors_and_of_graphs_comes_back() -> None:
    done = run(MEMORY)
    assert done.stdout == "all given back\n", done.stderr


def test_nothing_has_no_tensor_map() -> None:
    done = run(MAPS)
    assert done.stdout == "Triton Error [CUDA]: invalid argument\n", done.stderr
