"""What kernels share that have gradients: what they are to autograd."""
