"""Tables of element types and of products: how each is spelled, stored, multiplied.

Plain data; nothing here imports torch or triton.
"""

from dataclasses import dataclass

from gemmgen.base.errors import one_of, quoted, unknown
from gemmgen.runtime.tile import TYPE_NAMES


@dataclass(frozen=True)
class Dtype:
    """One element type.

    Launchers know what torch and Triton call it, and so do these rows. `roundoff` is
    the unit roundoff 2^-p (p significand bits) of rounding to nearest even,
    `smallest_dot_k` the least K of a tile that Triton multiplies, `outputs` the types
    that a kernel with these inputs may return. Triton multiplies it on architectures
    from `since`. A `precise` one is multiplied with one of the PRECISIONS.
    """

    name: str
    bytes: int
    accumulator: str
    smallest_dot_k: int
    roundoff: float
    outputs: tuple[str, ...]
    built: bool = True
    precise: bool = False
    since: int = 0
    names: tuple[str, str] | None = None
    """torch's and Triton's, of one that launchers do not know: there they are one."""

    @property
    def torch(self) -> str:
        """torch's name for it."""
        return (self.names or TYPE_NAMES[self.name])[0]

    @property
    def scaled(self) -> bool:
        """Whether it holds so few bits that scales go with it."""
        return self.bytes == 1

    @property
    def triton(self) -> str:
        """Triton's name for it."""
        return (self.names or TYPE_NAMES[self.name])[1]


_FLOATS = ("fp16", "bf16", "fp32")
UNANNOTATED = "fp32"
"""What Triton takes a float argument for, and adds products in, unless it is told."""

DTYPES: dict[str, Dtype] = {
    row.name: row
    for row in (
        Dtype("fp16", 2, "fp32", 16, 2.0**-11, _FLOATS),
        Dtype("bf16", 2, "fp32", 16, 2.0**-8, _FLOATS),
        Dtype("fp32", 4, "fp32", 16, 2.0**-24, _FLOATS, precise=True),
        Dtype("fp64", 8, "fp64", 16, 2.0**-53, ("fp64", "fp32")),
        Dtype("fp8_e4m3", 1, "fp32", 32, 2.0**-4, _FLOATS, built=False, since=89),
        Dtype("fp8_e5m2", 1, "fp32", 32, 2.0**-3, _FLOATS, built=False),
        Dtype("int8", 1, "int32", 32, 0.5, (), False),
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


@dataclass(frozen=True)
class Mma:
    """How products of a kind are made; fp32 has one for every precision.

    `unit` makes them: "matrix" a target's fastest one for matrices, "double" that for
    fp64, "fma" multiply-adds. Several `terms` are products of matrices that add up to
    one, of operands that are split in registers. Where it is `k_major`, wgmma and
    tcgen05 read operands along K alone (PTX ISA). Operands of what `rounds` are rounded
    as they are loaded, since its unit cuts them; what cutting costs, `cut`, is relative
    to the sum of absolute products. An element of the accumulator has
    `accumulator_words` of 32 bits. One term goes at `pace` times the rate of a target
    that `rate` is the key of; `timed_as` is the kind that takes the same time. `ptx` is
    the operands' type in instructions, of tcgen05 `tcgen05_kind`. `title` is how people
    are told of it.
    """

    name: str
    rate: str
    unit: str = "matrix"
    terms: int = 1
    k_major: bool = False
    rounds: bool = False
    cut: float = 0.0
    pace: float = 1.0
    accumulator_words: int = 1
    timed_as: str = ""
    ptx: str = ""
    tcgen05_kind: str = ""
    title: str = ""

    @property
    def one_k_major(self) -> bool:
        """Whether a unit reads the operands themselves, and along K alone."""
        return self.k_major and self.terms == 1


MMAS: dict[str, Mma] = {
    row.name: row
    for row in (
        Mma("fp16", "half", timed_as="bf16", ptx="f16", tcgen05_kind="f16"),
        Mma("bf16", "half", ptx="bf16", tcgen05_kind="f16"),
        Mma(
            "tf32", "half", k_major=True, rounds=True, cut=2.0**-9 + 2.0**-20,
            pace=0.5, ptx="tf32", tcgen05_kind="tf32",
        ),
        Mma(
            "tf32x3", "half", terms=3, k_major=True, cut=3 * 2.0**-20,
            pace=0.5, ptx="tf32", tcgen05_kind="tf32",
        ),
        Mma("ieee", "fp32", unit="fma", title="fp32 with precision ieee"),
        Mma("fp64", "fp64", unit="double", accumulator_words=2),
    )
}  # fmt: skip
"""By dtype, of fp32 by precision; tf32 goes at half the pace of fp16 since Ampere."""
