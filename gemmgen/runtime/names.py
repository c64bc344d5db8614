"""What kernels call their parameters: for who writes them and who launches them."""

# A kernel's constants, and what of the tile they are.
CONSTANTS = {
    "BLOCK_M": "m",
    "BLOCK_N": "n",
    "BLOCK_K": "k",
    "GROUP_M": "group_m",
    "STAGES": "stages",
    "NUM_WGS": "warpgroups",
}


def stride_name(tensor: str, axis: str) -> str:
    """`stride_am` for a tensor of a one-letter name, `stride_bias_n` for others."""
    return f"stride_{tensor}{axis}" if len(tensor) == 1 else f"stride_{tensor}_{axis}"
