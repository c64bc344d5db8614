"""Names that generated modules use for themselves, so that no operand has them.

They are refused in every kernel alike, and early, beside all other mistakes of a spec.
What a module of one kernel uses beyond them is found when it is rendered.
"""

from gemmgen.gate.allowlist import NAMES_OF_MODULES

IN_MODULES = NAMES_OF_MODULES | {"finish_part"}
"""Those at the top of a module, which no kernel may be called either."""
_IN_LAUNCHERS = ("batch", "out", "out_", "tile")
_IN_KERNELS = (
    *("acc", "first_m", "first_n", "k", "k_begin", "k_end", "part", "step", "sums"),
    *("tile_m", "tile_n", "tiles"),
)
OF_TRITON = (
    *(
        "backend",
        "debug",
        "instrumentation_mode",
        "num_ctas",
        "num_stages",
        "num_warps",
    ),
    *("options", "params", "self", "specialization", "specialize_impl", "warmup"),
)
"""What Triton passes to a kernel beside its parameters, or binds when it reads them."""
_NAMES = frozenset((*IN_MODULES, *_IN_LAUNCHERS, *_IN_KERNELS, *OF_TRITON))
_PREFIXES = ("mask_", "offs_", "stride_")
_SUFFIXES = ("_desc", "_offs", "_part", "_ptr", "_rows")


def is_reserved(name: str) -> bool:
    """Whether some generated module uses the name, in any of its schedules."""
    return name in _NAMES or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES)
