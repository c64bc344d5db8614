"""A block is trained, compiled and exported as torch's is, and shared by processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests import forked

pytestmark = pytest.mark.slow  # tests/test_layers.py has smaller models

ROOT = Path(__file__).parent.parent
MENDED = """
from gemmgen.verification.interpret import interpreter
interpreter.mend()
from examples import train_block
train_block.main()
"""
"""For bf16, whose products Triton's own interpreter gets wrong."""


def trained(*options: str) -> str:
    """What the example prints."""
    done = forked.python(ROOT, "-c", MENDED, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--steps", "2", "--width", "32", "--dtype", "fp32"),
        ("--steps", "4", "--dtype", "bf16"),
        ("--steps", "3", "--dtype", "fp32", "--compile"),
        ("--width", "32", "--dtype", "fp32"),
    ],
)
def test_a_block_is_trained(options: tuple[str, ...]) -> None:
    assert "gradients at most" in trained(*options)


@pytest.mark.parametrize("options", [(), ("--compile",)])
def test_a_block_is_shared(options: tuple[str, ...]) -> None:
    """As tests/sharding_script.py does with its layers alone."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "2", "-m", "examples.shard_block",
         "--steps", "3", "--width", "32", *options],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 steps in 2 processes on cpu" in done.stdout
