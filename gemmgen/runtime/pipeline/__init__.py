"""Warp-specialized kernels: roles that pass blocks on in shared memory."""
