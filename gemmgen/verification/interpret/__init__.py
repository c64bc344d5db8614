"""Triton's interpreter, mended and watched: memory, order, hardware's limits."""
