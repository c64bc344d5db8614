"""Derivatives of epilogues, against torch's own autograd in float64."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from gemmgen.base.errors import Location, SpecErrors
from gemmgen.epilogue.expression import short_number, spell
from gemmgen.epilogue.gradient import derivative
from gemmgen.epilogue.parser import compile_epilogue
from gemmgen.epilogue.steps import stepwise
from gemmgen.render.names.meanings import NameTaken
from gemmgen.render.render import files
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.tables.functions import OPS
from gemmgen.verification.oracle.bounded import exactly
from gemmgen.verification.oracle.gradients import elementwise

SHAPE = (5, 7)


def plan(epilogue: str, more: str = "", dtype: str = "fp32") -> Plan:
    """A kernel with gradients."""
    lines = "".join(f"\n      {line}" for line in epilogue.split("; "))
    text = "gemmgen: 1\ntargets: [sm_80]\nkernels:\n  - name: one\n    op: linear\n"
    text += f"    dtype: {dtype}\n    tiles: {{m: 16, n: 16, k: 16}}\n    grad: true\n"
    return plans(parse(f"{text}{more}    epilogue: |{lines}\n", "s"))[0]


def derivatives(epilogue: str) -> dict[str, str]:
    """The statements of a backward, and the gradients, as the language writes them."""
    whole = compile_epilogue(epilogue, ("acc",), "y", (), lambda _: Location("s", 1, 1))
    axes = {"acc": ("m", "n"), **{one.name: one.axes for one in whole.operands}}
    steps = stepwise(whole.statements, axes)
    wanted = [name for name, own in axes.items() if own]
    found = derivative(steps, [whole.statements[-1].target], wanted, [])
    said = {
        one.target: spell(one.value, number=short_number) for one in found.statements
    }
    return said | {
        f"d{name}": spell(node, number=short_number)
        for name, node in found.gradients.items()
    }


@pytest.mark.parametrize(
    ("epilogue", "gradients"),
    [
        ("acc", {"dacc": "grad_y"}),
        ("-acc", {"dacc": "-grad_y"}),
        ("acc + bias[n]", {"dacc": "grad_y", "dbias": "grad_y"}),
        ("2 * acc - r[m, n]", {"dacc": "grad_y * 2", "dr": "-grad_y"}),
        ("acc * s[n]", {"dacc": "grad_y * s", "ds": "grad_y * acc"}),
        ("acc / s[n]", {"dacc": "grad_y / s", "ds": "-(grad_y * acc / s / s)"}),
        ("log(acc)", {"dacc": "grad_y / acc"}),
        ("relu(acc)", {"dacc": "where(acc <= 0, 0, grad_y)"}),
        ("0 * acc + r[m, n]", {"dacc": "0", "dr": "grad_y"}),
        (
            "where(acc > 0, acc, b[n])",
            {"dacc": "where(acc > 0, grad_y, 0)", "db": "where(acc > 0, 0, grad_y)"},
        ),
        (
            "leaky_relu(acc, b[n])",
            {
                "dacc": "grad_y * where(acc > 0, 1, b)",
                "db": "where(acc > 0, 0, grad_y) * acc",
            },
        ),
        (
            "hardswish(acc)",
            {"dacc": "where(acc <= -3, 0, grad_y * where(acc < 3, acc / 3 + 0.5, 1))"},
        ),
        (
            "square(acc + b[n]) + acc",
            {
                "grad_square_1": "grad_y",
                "grad_pre": "grad_y * (2 * pre)",
                "dacc": "grad_y + grad_pre",
                "db": "grad_pre",
            },
        ),
    ],
)
def test_a_derivative_reads_as_one_would_write_it(
    epilogue: str, gradients: dict[str, str]
) -> None:
    gradients.pop("grad_square_1", None)
    assert derivatives(epilogue) == gradients


def test_every_function_has_a_derivative_by_each_parameter() -> None:
    assert {name: len(row.partials) for name, row in OPS.items()} == {
        name: len(row.parameters) for name, row in OPS.items()
    }


@pytest.mark.parametrize("name", OPS)
def test_constants_of_derivatives_have_all_digits_of_fp64(name: str) -> None:
    row = OPS[name]
    known = {one: partial(each.torch, torch) for one, each in OPS.items()}
    at = torch.linspace(0.05, 3.1, 41, dtype=torch.float64)  # no kink, all defined
    arguments = [(at + 0.3 * i).requires_grad_() for i in range(len(row.parameters))]
    result = row.torch(torch, *arguments)
    wanted = torch.autograd.grad(result.sum(), arguments)
    values = {**known, "where": torch.where, "f": result, "pi": torch.pi}
    values |= dict(zip(row.parameters, arguments, strict=True))
    for text, gradient in zip(row.partials, wanted, strict=True):
        # Some ten operations, none of which cancels more than four bits.
        error = (eval(text, values) - gradient).abs()
        assert (error <= 2.0**-45 * (1 + gradient.abs())).all(), (text, error.max())


def test_a_function_without_a_derivative_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(OPS, "erf", replace(OPS["erf"], partials=()))
    with pytest.raises(SpecErrors, match=r"s:8:11: erf\(…\) has no derivative"):
        plan("erf(acc)")


@pytest.mark.parametrize(
    ("epilogue", "name"),
    [
        ("gelu(acc + grad_y[m, n])", "grad_y"),
        ("gelu(acc) * grad_acc[n]", "grad_acc"),
        ("grad_y = gelu(acc); y = grad_y * 2", "grad_y"),
        ("pre = gelu(acc); grad_pre = pre * s[n]; out = grad_pre + pre", "grad_pre"),
    ],
)
def test_a_name_of_what_a_backward_computes_is_refused(
    epilogue: str, name: str
) -> None:
    """Also where two that have one name would become one argument."""
    with pytest.raises(NameTaken) as taken:
        files(plan(epilogue), "s")
    assert name in taken.value.names


def values(kind: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Numbers on which a derivative can be wrong: ties, kinks, and any others."""
    random = torch.Generator().manual_seed(seed)
    if kind == "ties":
        return torch.randint(-3, 4, shape, generator=random).float()
    scale = {"normal": 1.0, "wide": 8.0, "small": 1e-3}[kind]
    return torch.randn(shape, generator=random) * scale


def judge(one: Plan, kind: str, seed: int, missing: int | None = None) -> None:
    """Hold the derivative that kernels are made from against autograd's.

    The result of that number has no gradient.
    """
    from gemmgen.verification.oracle import gradients

    acc = exactly(values(kind, SHAPE, seed).double())
    sizes = {"m": (SHAPE[0], 1), "n": (1, SHAPE[1]), "mn": SHAPE, "": ()}
    operands: dict[str, torch.Tensor | float] = {
        own.name: (
            values(kind, sizes["".join(own.axes)], seed + at) if own.axes else 0.75
        )
        for at, own in enumerate(one.operands, 1)
    }
    grads = {
        own.name: values("normal", SHAPE, seed + 99 + at)
        for at, own in enumerate(one.results)
        if at != missing
    }
    exact = elementwise(one, acc, operands, grads)
    assert one.backward is not None
    known = {
        name: gradients.loaded(value, gradients.ARITHMETIC["fp32"], acc.value.device)
        for name, value in operands.items()
    }
    made = gradients._bounds(one, one.backward, {**known, "acc": acc}, grads)
    given = {f"grad_{name}" for name in grads}
    for name in one.backward.operands:
        reached = bool(given & {*one.backward.sources(name)})
        assert reached == (name in exact), f"{name} has a gradient: {reached}"
    for name, want in exact.items():
        found = made[name].value.expand(want.value.shape)
        near = (found - want.value).abs() <= want.error + 1e-12 * want.value.abs()
        both = found.isnan() & want.value.isnan()
        same = found == want.value
        assert (near | both | same | want.error.isinf()).all(), name


ARGUMENTS = {"slope": "0.1", "lo": "b[n]", "hi": "1.5", "y": "r[m, n]"}


@pytest.mark.parametrize("kind", ["ties", "normal", "wide", "small"])
@pytest.mark.parametrize("name", OPS)
def test_a_functions_derivative_is_torchs(name: str, kind: str) -> None:
    row = OPS[name]
    _, *rest = row.parameters
    inner = ", ".join(["acc", *(ARGUMENTS[one] for one in rest)])
    judge(plan(f"{name}({inner})"), kind, 1)
    if rest:  # and by its other parameters
        other = ", ".join(["acc", *(["s[m]"] * len(rest))])
        judge(plan(f"{name}({other})"), kind, 2)


LEAVES = ("acc", "acc", "b[n]", "s[m]", "r[m, n]", "alpha[]", "2", "-0.5")


@st.composite
def expressions(draw: st.DrawFn, depth: int) -> str:
    """Any expression of the language."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(LEAVES))
    inner = expressions(depth - 1)
    kind = draw(st.sampled_from(["+", "-", "*", "/", "where", "-x", *OPS]))
    if kind in "+-*/":
        return f"({draw(inner)} {kind} {draw(inner)})"
    if kind == "-x":
        return f"-({draw(inner)})"
    if kind == "where":
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        return f"where({draw(inner)} {op} {draw(inner)}, {draw(inner)}, {draw(inner)})"
    arguments = ", ".join(draw(inner) for _ in OPS[kind].parameters)
    return f"{kind}({arguments})"


@st.composite
def epilogues(draw: st.DrawFn) -> tuple[str, str]:
    """One statement, or two of which both are returned; the key `outputs`."""
    whole = f"acc + {draw(expressions(3))}"
    if draw(st.booleans()):
        return whole, ""
    more = draw(expressions(2))
    return f"first = {whole}; out = first * {more}", "    outputs: [out, first]\n"


@settings(max_examples=120)
@given(
    epilogues(),
    st.sampled_from(["ties", "normal"]),
    st.integers(0, 999),
    st.sampled_from([None, 0, 1]),
)
def test_the_derivative_of_any_epilogue_is_torchs(
    epilogue: tuple[str, str], kind: str, seed: int, missing: int | None
) -> None:
    text, more = epilogue
    try:
        one = plan(text, more)
    except SpecErrors:  # such as 2 / (2 - 2), or exp(2)
        reject()
    judge(one, kind, seed, missing if more else None)


TWO = "pre = acc * s[n]; out = tanh(pre) * pre"


@pytest.mark.parametrize(
    ("dtype", "outputs", "saved", "kept"),
    [
        ("fp32", "{out: fp32, pre: fp32}", "pre", "product in fp32"),
        ("fp32", "{out: fp32, pre: fp16}", "", "product in fp32"),
        ("bf16", "{out: fp32, pre: bf16}", "pre", "product in bf16"),
        ("{a: bf16, out: fp32}", "{out: fp32, pre: bf16}", "", "product in fp32"),
        ("{a: fp32, out: fp16}", "[out, pre]", "", "product in fp32"),
        ("{a: fp16, out: fp32}", "[out, pre]", "pre", "product in fp32"),
        ("{a: fp64, out: fp32}", "[out]", "", "product in fp64"),
    ],
)
def test_what_is_saved_is_as_precise_as_what_gradients_are_for(
    dtype: str, outputs: str, saved: str, kept: str
) -> None:
    """From a result in fp16 those of fp32 would be wrong, beyond 65504 infinite."""
    back = plan(TWO, f"    outputs: {outputs}\n", dtype).backward
    assert back is not None
    assert f"{back.kept} in {back.kept_dtype}" == kept
    assert back.saved == (*saved.split(), "product")


def texts(epilogue: str, more: str) -> tuple[str, str]:
    """The text of a backward, and that of its pass."""
    made = files(plan(epilogue, more), "s")
    return made["one/backward.py"], made["one/grad_epilogue.py"]


def test_terms_of_a_result_without_a_gradient_are_left_out() -> None:
    backward, whole = texts(
        "h = relu(acc) * s[n]; l = log(h) - h / t[n]; q = l * r[m, n]",
        "    outputs: [h, l, q]\n",
    )
    for statement in (
        """
        grad_l_total = grad_l
        if grad_q_ptr is not None:
            grad_l_total += grad_q * r
""",
        """
        grad_h_total = grad_h
        if grad_l_ptr is not None or grad_q_ptr is not None:
            grad_h_total -= grad_l_total / t[None, :]
            grad_h_total += grad_l_total / h
""",
    ):
        assert statement in whole, whole
    assert """
    if grad_l is None and grad_q is None:
        needs_t = False
    if grad_q is None:
        needs_r = False
""" in backward
    assert backward.count("is None:") == 2, "x, w and s are in all results"


def test_a_sum_without_a_term_that_is_always_there_begins_with_zeros() -> None:
    _, whole = texts(
        "h = acc; l = s[n] * r[m, n] + h; q = s[n] / r[m, n]",
        "    outputs: [h, l, q]\n",
    )
    assert """
        grad_s = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if grad_q_ptr is not None:
            grad_s += grad_q / r
        if grad_l_ptr is not None:
            grad_s += grad_l * r
""" in whole, whole


def test_the_only_result_has_a_gradient() -> None:
    backward, whole = texts("log(relu(acc) * s[n])", "")
    assert "grad_y_ptr is not None" not in whole and "optional" not in whole
    assert "is None" not in backward
