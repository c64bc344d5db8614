"""Warp-specialized kernels: a producer and consumers that share blocks."""
