"""Kernels under compute-sanitizer and Triton's own sanitizers."""
