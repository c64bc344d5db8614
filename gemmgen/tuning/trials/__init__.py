"""Trials of kernels: which tiles are timed, and at which shapes."""
