"""What launchers of kernels with gradients do, on the stand-in."""
