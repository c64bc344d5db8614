"""Kernels under compute-sanitizer and Triton's ConSan."""
