"""GPUs that are not there, for torch and Triton: what is launched is noted."""
