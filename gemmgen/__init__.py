"""gemmgen: a compiler from a small YAML spec to readable Triton GEMM kernels.

The functions of `gemmgen.api`, imported when first used: nothing here imports torch,
triton or a renderer.
"""

from typing import TYPE_CHECKING, Any

from gemmgen.generator import VERSION as __version__

if TYPE_CHECKING:
    from gemmgen.api import (
        bench,
        build,
        check,
        explain_error,
        json_schema,
        kernels,
        outputs,
        plot,
        source,
        tune,
        verify,
    )

__all__ = [
    "__version__",
    "bench",
    "build",
    "check",
    "explain_error",
    "json_schema",
    "kernels",
    "outputs",
    "plot",
    "source",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public function when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'gemmgen' has no attribute {name!r}")
    from gemmgen import api

    return getattr(api, name)
