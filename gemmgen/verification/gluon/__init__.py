"""Runs the Gluon that warp-specialized kernels use on a CPU, and watches it.

What it models and what it does not see: docs/verification.md. Nothing here compiles.
"""
