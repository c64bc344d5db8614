"""Draws the shapes of random_shapes.yaml, at which nothing was tuned.

    python benchmarks/speed/random_shapes.py > benchmarks/speed/random_shapes.yaml

Each size is log-uniform between 1 and 8192; a third of them is rounded to a multiple of
8 and a third to one of 64, independently. The seed is fixed.
"""

import random

COUNT = 40
LARGEST = 8192
KERNEL = "linear_bf16"


def size(source: random.Random) -> int:
    """One size."""
    drawn = LARGEST ** source.random()
    multiple = source.choice((1, 8, 64))
    return max(1, round(drawn / multiple)) * multiple


def text() -> str:
    """The whole file."""
    source = random.Random(20260101)
    shapes: dict[str, None] = {}
    while len(shapes) < COUNT:
        shapes["x".join(str(size(source)) for _ in range(3))] = None
    lines = [f"  - {shape}" for shape in shapes]
    drawn = "# Drawn by benchmarks/speed/random_shapes.py"
    head = f"{drawn}; not tuned at, and not to be edited."
    return "\n".join([head, f"{KERNEL}:", *lines]) + "\n"


if __name__ == "__main__":
    print(text(), end="")
