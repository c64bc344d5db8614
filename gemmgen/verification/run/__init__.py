"""The checks of many kernels, in processes of their own."""
