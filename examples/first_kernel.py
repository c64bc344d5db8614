"""Run one generated kernel and compare it with torch.

    python -m examples.first_kernel

On a machine without a GPU the kernel runs in Triton's interpreter.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from generated import linear_bias_relu


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(2, 37, 96, device=device, dtype=torch.float16)
    w = torch.randn(75, 96, device=device, dtype=torch.float16)
    bias = torch.randn(75, device=device, dtype=torch.float16)

    y = linear_bias_relu(x, w, bias)

    exact = torch.relu(x.double() @ w.double().T + bias.double())
    # fp16 keeps 11 bits: rounding the result moves it by 2^-11 of itself at most.
    error = ((y.double() - exact).abs() / exact.abs().clamp(min=1)).max().item()
    assert error < 2**-10, f"wrong by {error:.1e}"
    print(f"linear_bias_relu {list(y.shape)} on {device}: right, error {error:.1e}")


if __name__ == "__main__":
    main()
