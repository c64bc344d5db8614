"""Table `OPS`: the functions of the epilogue language, one row each.

A row holds the Triton text, the torch function that it must equal, and how far an
error of its arguments can move its result. Nothing here imports torch.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gemmgen.tables.error_rules import (
    LARGEST,
    NONE,
    Rule,
    Tensor,
    beside_argument,
    beside_one,
    fading,
    jumping,
    lipschitz,
    relative,
    through_exp,
    through_small_exp,
    where_positive,
)

NAN = "propagate_nan=tl.PropagateNan.ALL"

FAST = ("fast_divide", "fast_exp2", "normal_cdf", "times_ndtr")


@dataclass(frozen=True)
class Op:
    """One function.

    `triton` is an expression over the parameters; a name of `triton.language` alone
    (`tl.exp`) is called in place, everything else becomes a helper, whose lines before
    the result are `steps`. Of the names in `FAST` `_runtime/device.py` has functions
    that are faster than Triton's in fp32, where they lose subnormal numbers.
    `torch(torch, *arguments)` is the meaning.

    `moved(torch, *arguments, *errors)` bounds the change of the exact result when each
    argument moves by at most its error; NaN counts as no bound. `rounding(torch,
    result, *arguments)` bounds the function's own error, beside one underflow, in units
    of the roundoff u of the arithmetic (2^-24 for fp32): `result` is its largest
    magnitude, the arguments are those farthest from zero. `rounds_once` says that it is
    one IEEE operation, hence exact where its result has few enough bits.

    `partials` are its derivatives, by each parameter, as epilogues write them: over the
    parameters and the result, `f`. `of_result` is the first of them over `f` alone, for
    where that is at hand and x is not. Where it has none, torch's choice is taken.

    `instructions` is what it adds to the machine code for an element, for estimates of
    time; one of the special unit, which is a quarter as wide, counts four times (fp32,
    sm_90, Triton 3.6).
    """

    name: str
    parameters: tuple[str, ...]
    doc: str
    triton: str
    torch: Callable[..., Tensor]
    moved: Rule
    rounding: Rule
    steps: tuple[str, ...] = ()
    rounds_once: bool = False
    instructions: int = 16
    partials: tuple[str, ...] = ()
    of_result: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether Triton has the function under a name of its own."""
        return self.triton.startswith("tl.") and self.triton[3:].isidentifier()

    @property
    def called(self) -> str:
        """The name that a kernel calls."""
        return self.triton if self.in_place else self.name


OPS: dict[str, Op] = {
    row.name: row
    for row in (
        Op(
            "relu", ("x",), "max(x, 0); NaN stays NaN.",
            f"tl.maximum(x, 0.0, {NAN})",
            lambda torch, x: torch.relu(x), lipschitz(1.0), NONE,
            instructions=1, partials=("where(x <= 0, 0, 1)",),
            of_result="where(f <= 0, 0, 1)",
        ),
        Op(
            "leaky_relu", ("x", "slope"), "x where it is positive, else slope * x.",
            "tl.where(x > 0.0, x, x * slope)",
            lambda torch, x, slope: torch.where(x > 0, x, x * slope),
            Rule(
                "max(1, |slope|) e(x) + |x| e(slope) + e(x) e(slope)",
                lambda torch, x, slope, dx, dslope: (
                    slope.abs().clamp(min=1.0) * dx + x.abs() * dslope + dx * dslope
                ),
            ),
            relative(1.0), rounds_once=True,
            instructions=3,
            partials=("where(x > 0, 1, slope)", "where(x > 0, 0, 1) * x"),
        ),
        Op(
            "gelu", ("x",), "x times the normal distribution function of x.",
            "times_ndtr(x)",
            lambda torch, x: torch.nn.functional.gelu(x), lipschitz(1.13),
            beside_argument(10.0),
            instructions=19,
            partials=("ndtr(x) + x * normal_pdf(x)",),  # of one exponential
        ),
        Op(
            "gelu_tanh", ("x",), "The tanh approximation of gelu, as x * sigmoid(2 u).",
            "fast_divide(x, 1.0 + fast_exp2(z))",
            lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
            lipschitz(1.13),
            beside_argument(8.0),
            steps=(
                "# z = -2 u log2(e), where u = sqrt(2 / pi) (x + 0.044715 x^3)",
                "z = x * (-2.302208198144325 - 0.1029432395800235 * x * x)",
            ),
            instructions=14,
            partials=(
                "sigmoid(x * (1.5957691216057308 + 0.07135481627260025 * x * x)) * "
                "(1 + x * (1.5957691216057308 + 0.21406444881780076 * x * x) * "
                "sigmoid(-x * (1.5957691216057308 + 0.07135481627260025 * x * x)))",
            ),
        ),
        Op(
            "silu", ("x",), "x * sigmoid(x).",
            "fast_divide(x, 1.0 + fast_exp2(-1.4426950408889634 * x))",
            lambda torch, x: torch.nn.functional.silu(x), lipschitz(1.1),
            # Where exp(-x) is beyond 2^126, up to 89 * 2^-126 is lost.
            through_small_exp(16.0, 2.0, lost=2.0**-95),
            instructions=11, partials=("sigmoid(x) * (1 + x * sigmoid(-x))",),
        ),
        Op(
            "sigmoid", ("x",), "1 / (1 + exp(-x)).",
            "fast_divide(1.0, 1.0 + fast_exp2(-1.4426950408889634 * x))",
            lambda torch, x: torch.sigmoid(x), lipschitz(0.25),
            through_small_exp(16.0, 2.0, lost=2.0**-101),
            instructions=11, partials=("f * (1 - f)",),
        ),
        Op(
            "tanh", ("x",), "Hyperbolic tangent; a Padé quotient where it is small.",
            "tl.where(tl.abs(x) < 0.5, small, large)",
            lambda torch, x: torch.tanh(x), lipschitz(1.0), relative(24.0),
            steps=(
                "s = tl.minimum(x * x, 0.25)",
                "p = 135135.0 + s * (17325.0 + s * (378.0 + s))",
                "q = 135135.0 + s * (62370.0 + s * (3150.0 + s * 28.0))",
                "small = x * p / q",
                "e = fast_exp2(2.885390081777927 * x)",
                "large = 1.0 - fast_divide(2.0, 1.0 + e)",
            ),
            instructions=33, partials=("1 - f * f",),
        ),
        Op(
            "exp", ("x",), "e to the power x.",
            "tl.exp",
            lambda torch, x: torch.exp(x),
            Rule(
                "exp(x) (exp(e) - 1)",
                lambda torch, x, dx: torch.exp(x) * torch.expm1(dx),
            ),
            through_exp(8.0, 2.0),
            instructions=8, partials=("f",),
        ),
        Op(
            "log", ("x",), "Natural logarithm.",
            "tl.log",
            lambda torch, x: torch.log(x),
            where_positive(
                "-log(1 - e / x)", lambda torch, x, dx: -torch.log1p(-dx / x)
            ),
            beside_one(4.0),
            instructions=26, partials=("1 / x",),
        ),
        Op(
            "sqrt", ("x",), "Square root.",
            "tl.sqrt",
            lambda torch, x: torch.sqrt(x),
            where_positive("e / sqrt(x)", lambda torch, x, dx: dx / x.sqrt()),
            relative(4.0),
            instructions=4, partials=("0.5 / f",),
        ),
        Op(
            "rsqrt", ("x",), "1 / sqrt(x).",
            "tl.rsqrt",
            lambda torch, x: torch.rsqrt(x),
            where_positive(
                "1 / sqrt(x - e) - 1 / sqrt(x)",
                lambda torch, x, dx: (x - dx).rsqrt() - x.rsqrt(),
            ),
            relative(6.0),
            instructions=4, partials=("-0.5 * f / x",),
            of_result="-0.5 * f * f * f",
        ),
        Op(
            "ndtr", ("x",), "The normal distribution function.",
            "normal_cdf(x)",
            # 2 ulp of the quotient t, 2.6 times as many of t q(t), and 2 of the power.
            lambda torch, x: torch.special.ndtr(x), lipschitz(0.4),
            beside_one(10.0),
            instructions=22, partials=("normal_pdf(x)",),
        ),
        Op(
            "normal_pdf", ("x",), "The density of the normal distribution.",
            "0.3989422804014327 * fast_exp2(-0.7213475204444817 * x * x)",
            lambda torch, x: torch.exp(-x * x / 2) / 2.5066282746310002,
            # 2 ulp of the power and 3 roundings of its exponent: less than 3 together.
            lipschitz(0.25), beside_one(4.0),
            instructions=8,
            partials=("-x * f",),
        ),
        Op(
            "erf", ("x",), "Error function.",
            "tl.erf",
            lambda torch, x: torch.erf(x), lipschitz(1.13), relative(8.0),
            instructions=31,
            partials=("1.1283791670955126 * exp(-x * x)",),
        ),
        Op(
            "abs", ("x",), "Absolute value.",
            "tl.abs",
            lambda torch, x: torch.abs(x), lipschitz(1.0), NONE,
            instructions=1,
            partials=("where(x > 0, 1, where(x < 0, -1, 0))",),
        ),
        Op(
            "square", ("x",), "x * x.",
            "x * x",
            lambda torch, x: torch.square(x),
            Rule("(2 |x| + e) e", lambda torch, x, dx: (2.0 * x.abs() + dx) * dx),
            relative(1.0),
            rounds_once=True,
            instructions=1,
            partials=("2 * x",),
        ),
        Op(
            "softplus", ("x",), "log(1 + exp(x)); x itself above 20, as in torch.",
            f"tl.where(x > 20.0, x, tl.maximum(x, 0.0, {NAN}) + log1p_t)",
            lambda torch, x: torch.nn.functional.softplus(x),
            jumping(20.0, 2.1e-9), fading(16.0, 3.0, 0.75),
            steps=(
                "t = tl.exp(-tl.abs(x))",
                "w = 1.0 + t",
                "log1p_t = tl.where(w == 1.0, t, tl.log(w) * (t / (w - 1.0)))",
            ),
            instructions=51,
            partials=("where(x > 20, 1, sigmoid(x))",),
        ),
        Op(
            "hardswish", ("x",), "x * clamp(x + 3, 0, 6) / 6.",
            "x * gate / 6.0",
            lambda torch, x: torch.nn.functional.hardswish(x), lipschitz(1.5),
            relative(8.0),
            steps=(
                f"gate = tl.maximum(x + 3.0, 0.0, {NAN})",
                f"gate = tl.minimum(gate, 6.0, {NAN})",
            ),
            instructions=5,
            partials=("where(x <= -3, 0, where(x < 3, x / 3 + 0.5, 1))",),
        ),
        Op(
            "minimum", ("x", "y"), "The smaller; NaN if either is.",
            f"tl.minimum(x, y, {NAN})",
            lambda torch, x, y: torch.minimum(x, y), LARGEST, NONE,
            instructions=1,
            partials=(
                "where(x == y, 0.5, where(x > y, 0, 1))",
                "where(x == y, 0.5, where(x < y, 0, 1))",
            ),
        ),
        Op(
            "maximum", ("x", "y"), "The larger; NaN if either is.",
            f"tl.maximum(x, y, {NAN})",
            lambda torch, x, y: torch.maximum(x, y), LARGEST, NONE,
            instructions=1,
            partials=(
                "where(x == y, 0.5, where(x < y, 0, 1))",
                "where(x == y, 0.5, where(x > y, 0, 1))",
            ),
        ),
        Op(
            "clamp", ("x", "lo", "hi"), "x kept in [lo, hi]; NaN stays NaN.",
            f"tl.minimum(tl.maximum(x, lo, {NAN}), hi, {NAN})",
            lambda torch, x, lo, hi: torch.clamp(x, lo, hi), LARGEST, NONE,
            instructions=2,
            partials=(
                "where(x >= lo, where(x <= hi, 1, 0), 0)",
                "where(x < lo, where(lo < hi, 1, 0), 0)",
                "where(x > hi, 1, where(hi < lo, 1, 0))",
            ),
        ),
    )
}  # fmt: skip
"""`where` is part of the grammar, not of this table: its condition is no number."""
