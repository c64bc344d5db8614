"""gemmgen: a compiler from a small YAML spec to readable Triton GEMM kernels.

The functions of `gemmgen.api`, imported when first used: nothing here imports torch,
triton or a renderer.
"""

TYPE_CHECKING = False  # a type checker knows better; `typing` takes long to import

if TYPE_CHECKING:
    from gemmgen.api import (
        EnvironmentMissing,
        SpecErrors,
        UsageError,
        bench,
        build,
        calibrate,
        check,
        explain,
        explain_error,
        json_schema,
        kernels,
        outputs,
        plot,
        plot_explanation,
        source,
        tune,
        verify,
    )
    from gemmgen.base.version import VERSION as __version__

__all__ = [
    "EnvironmentMissing",
    "SpecErrors",
    "UsageError",
    "__version__",
    "bench",
    "build",
    "calibrate",
    "check",
    "explain",
    "explain_error",
    "json_schema",
    "kernels",
    "outputs",
    "plot",
    "plot_explanation",
    "source",
    "tune",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import a public function when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'gemmgen' has no attribute {name!r}")
    if name == "__version__":
        from gemmgen.base.version import VERSION

        return VERSION
    from gemmgen import api

    return getattr(api, name)
