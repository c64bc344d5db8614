"""What kernels share that have gradients: their entry into autograd."""
