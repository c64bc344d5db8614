"""Table of element types: how each is spelled, stored, multiplied and rounded.

Plain data; nothing here imports torch or triton.
"""

from dataclasses import dataclass

from gemmgen.base.errors import one_of, quoted, unknown


@dataclass(frozen=True)
class Dtype:
    """One element type.

    `roundoff` is the unit roundoff 2^-p (p significand bits) of rounding to nearest
    even, `smallest_dot_k` the least K of a tile that Triton multiplies, `outputs` the
    types that a kernel with these inputs may return.
    """

    name: str
    torch: str
    triton: str
    bytes: int
    accumulator: str
    smallest_dot_k: int
    roundoff: float
    outputs: tuple[str, ...]
    built: bool = True


_FLOATS = ("fp16", "bf16", "fp32")

DTYPES: dict[str, Dtype] = {
    row.name: row
    for row in (
        Dtype("fp16", "float16", "float16", 2, "fp32", 16, 2.0**-11, _FLOATS),
        Dtype("bf16", "bfloat16", "bfloat16", 2, "fp32", 16, 2.0**-8, _FLOATS),
        Dtype("fp32", "float32", "float32", 4, "fp32", 16, 2.0**-24, _FLOATS),
        Dtype("fp64", "float64", "float64", 8, "fp64", 16, 2.0**-53, ("fp64", "fp32")),
        Dtype(
            "fp8_e4m3", "float8_e4m3fn", "float8e4nv", 1, "fp32", 32, 2.0**-4, (), False
        ),
        Dtype("fp8_e5m2", "float8_e5m2", "float8e5", 1, "fp32", 32, 2.0**-3, (), False),
        Dtype("int8", "int8", "int8", 1, "int32", 32, 0.5, (), False),
    )
}

ELSEWHERE: dict[str, str] = {
    **{"half": "fp16", "f16": "fp16", "float": "fp32", "single": "fp32", "f32": "fp32"},
    **{"double": "fp64", "f64": "fp64", "bfloat": "bf16", "i8": "int8", "char": "int8"},
    **{other: row.name for row in DTYPES.values() for other in (row.torch, row.triton)},
    **{row.torch.removesuffix("fn"): row.name for row in DTYPES.values()},
    **{"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2", "fp8e4m3": "fp8_e4m3"},
}
"""What torch, C and others call these types."""


def unknown_dtype(kind: str, allowed: tuple[str, ...], name: str) -> str:
    """The message for a name that is none of those allowed."""
    meant = ELSEWHERE.get(name.lower().removeprefix("torch.").removeprefix("tl."))
    if meant not in allowed:
        return unknown(kind, name, allowed)
    return f"unknown {kind} {quoted(name)}; did you mean '{meant}'? {one_of(allowed)}"


PRECISIONS: dict[str, str] = {
    "ieee": "fp32 products, fused multiply-add units",
    "tf32": "operands cut to tf32 (10 mantissa bits), tensor cores",
    "tf32x3": "three tf32 products, nearly fp32, tensor cores",
}
"""How the product of fp32 operands is made; Triton's `input_precision`."""
