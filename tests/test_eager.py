"""torch's forms of a kernel: right by the oracle, and as a user would write them."""

import pytest

torch = pytest.importorskip("torch")

from gemmgen.benchmark import eager  # noqa: E402
from gemmgen.benchmark.peers import PEERS, returning, takes_out  # noqa: E402
from gemmgen.measurement import Problem, judge, problem  # noqa: E402
from gemmgen.render.docs import Description  # noqa: E402
from gemmgen.select import plan  # noqa: E402
from gemmgen.select.plan import Plan  # noqa: E402
from gemmgen.spec.parse import parse  # noqa: E402
from gemmgen.spec.shapes import Shape  # noqa: E402
from gemmgen.tables.functions import OPS  # noqa: E402
from tests.own import OWN  # noqa: E402

SHAPE = Shape(19, 24, 32)
# Coarser than any rounding between operations, far finer than a wrong formula.
LIMITS = {"fp16": 4e-3, "bf16": 3e-2, "fp32": 1e-5, "fp64": 1e-13}


def linear(epilogue: str, dtype: str = "fp32", more: str = "") -> Plan:
    text = f"gemmgen: 1\nkernels:\n  - name: it\n    op: linear\n    dtype: {dtype}\n"
    text += f"    epilogue: {epilogue}\n{more}"
    (only,) = plan.plans(parse(text, "spec.yaml"))
    return only


def posed(kernel: Plan) -> Problem:
    return problem(kernel, SHAPE, "cpu")


def error(kernel: Plan, peer: str) -> float | None:
    """The error of a peer against float64, None if it does not apply."""
    given = posed(kernel)
    contestant = PEERS[peer].enter(given)
    if contestant is None:
        return None
    results = contestant.call()
    results = (results,) if isinstance(results, torch.Tensor) else results
    for mine, result in zip(results, kernel.results, strict=True):
        assert mine.dtype == getattr(
            torch, eager.torch_dtype(result.dtype).__str__()[6:]
        )
        assert mine.shape == SHAPE[:2]
    return judge(given, {peer: results})[peer].error


@pytest.mark.parametrize("kernel", OWN.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("peer", ["torch", "addmm", "activation"])
def test_peers_compute_what_the_kernel_does(kernel: Plan, peer: str) -> None:
    found = error(kernel, peer)
    if found is None:
        assert peer != "torch"
    else:
        assert found < LIMITS[kernel.dtype]


CALLS = {
    **{name: f"{name}(acc)" for name, op in OPS.items() if len(op.parameters) == 1},
    "log": "log(abs(acc) + 1)",
    "sqrt": "sqrt(abs(acc))",
    "rsqrt": "rsqrt(abs(acc) + 1)",
    "exp": "exp(-abs(acc))",
    "leaky_relu": "leaky_relu(acc, 0.01) + leaky_relu(acc, c[n])",
    "clamp": "clamp(acc, -1, 1) + clamp(acc, -1, c[n]) + clamp(acc, -alpha[], 2)",
    "minimum": "minimum(acc, 0.5) + minimum(acc, c[m])",
    "maximum": "maximum(acc, alpha[]) + maximum(c[m, n], acc)",
    "where": "where(acc > c[n], acc, -1) + where(acc <= 0, 2, acc / 3)",
}


def test_a_docstring_s_formula_is_torch_s() -> None:
    """An operand [m] meets rows in it, where torch would broadcast it along columns."""
    kernel = linear("acc * row[m] * scale[n] + residual[m, n]")
    given = {"x": (3, 4), "w": (5, 4), "row": (3,), "scale": (5,), "residual": (3, 5)}
    named = {name: torch.randn(shape) for name, shape in given.items()}
    (formula,) = Description(kernel).formula
    found = eval(formula.removeprefix("y = "), named)
    sums = named["x"] @ named["w"].T
    wanted = sums * named["row"].reshape(3, 1) * named["scale"] + named["residual"]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", [*OPS, "where"])
def test_every_function(name: str) -> None:
    found = error(linear(CALLS[name]), "torch")
    assert found is not None
    assert found < LIMITS["fp32"]


def text(kernel: Plan, peer: str = "torch") -> str | None:
    contestant = PEERS[peer].enter(posed(kernel))
    return contestant and contestant.text.replace("\n", "; ")


@pytest.mark.parametrize(
    ("epilogue", "wanted"),
    [
        ("gelu(acc + bias[n])", "acc = F.linear(x, w, bias); y = gelu(acc); return y"),
        (
            "2 * silu(bias[n] + acc) - 1",
            "acc = F.linear(x, w, bias); y = 2.0 * silu(acc) - 1.0; return y",
        ),
        ("acc + c[m]", "acc = F.linear(x, w); y = acc + c; return y"),
        ("acc * c[n]", "acc = F.linear(x, w); y = acc * c; return y"),
        # Used twice: the product without the bias is needed too.
        (
            "(acc + bias[n]) * acc",
            "acc = F.linear(x, w); y = (acc + bias) * acc; return y",
        ),
    ],
)
def test_a_bias_is_fused_where_torch_can(epilogue: str, wanted: str) -> None:
    assert text(linear(epilogue)) == wanted


def test_a_bias_of_another_type_is_not_fused() -> None:
    kernel = linear("acc + bias[n]", "bf16", "    operands: {bias: fp32}\n")
    assert text(kernel) == "acc = F.linear(x, w); y = acc + bias; return y"


@pytest.mark.parametrize(
    ("epilogue", "wanted"),
    [
        ("acc + c[m, n]", "torch.addmm(c, x, w.T, alpha=1.0, beta=1.0)"),
        (
            "beta[] * c[m, n] + acc * alpha[]",
            "torch.addmm(c, x, w.T, alpha=alpha, beta=beta)",
        ),
        ("2 * acc + 3 * c[m, n]", "torch.addmm(c, x, w.T, alpha=2.0, beta=3.0)"),
        ("acc + c[n]", None),
        ("acc - c[m, n]", None),
        ("c[m, n] + c[m, n] + acc", None),
        ("relu(acc + c[m, n])", None),
        ("acc", None),
    ],
)
def test_where_addmm_applies(epilogue: str, wanted: str | None) -> None:
    assert text(linear(epilogue), "addmm") == wanted
    if wanted:
        assert (error(linear(epilogue), "addmm") or 0) < LIMITS["fp32"]


@pytest.mark.parametrize(
    ("epilogue", "gelu"),
    [
        ("gelu_tanh(acc + b[n])", True),
        ("relu(b[n] + acc)", False),
        ("gelu(acc + b[n])", None),
        ("relu(acc)", None),
        ("relu(acc + b[m])", None),
        ("relu(acc + b[n]) + c[m, n]", None),
    ],
)
def test_where_the_private_activation_applies(epilogue: str, gelu: bool | None) -> None:
    found = text(linear(epilogue, "bf16"), "activation")
    if gelu is None:
        assert found is None
    else:
        assert found == f"torch._addmm_activation(b, x, w.T, use_gelu={gelu})"


def test_results_have_their_own_types() -> None:
    aux = OWN["linear_gelu_aux"]
    assert (text(aux) or "").endswith("return out, pre.to(torch.float32)")


def test_wider_results_race_the_product_that_widens() -> None:
    wide = OWN["gemm_nn_fp16_to_fp32"]
    wanted = "torch.mm(a, b, out_dtype=torch.float32)"
    assert text(wide, "out_dtype") == wanted
    assert text(linear("acc", "bf16"), "out_dtype") is None


def test_out_is_given_to_both_or_to_none() -> None:
    assert takes_out(OWN["gemm_tn_fp16"])
    assert not takes_out(OWN["linear_bf16"])
    assert not takes_out(OWN["gemm_nn_bf16_alpha_beta"])
    assert text(OWN["gemm_tn_fp16"]) == "torch.mm(a, b, out=out)"
    first, second = (returning(posed(OWN["gemm_tn_fp16"])) for _ in range(2))
    assert first.call() is not first.call()
    assert torch.equal(first.call(), second.call())


@pytest.mark.parametrize("peer", ["compile", "max-autotune"])
def test_there_is_nothing_to_compile_in_a_bare_product(peer: str) -> None:
    assert PEERS[peer].enter(posed(linear("acc"))) is None
