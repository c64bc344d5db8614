"""Shared memory and barriers as kernels use them, and what is wrong with a use."""
