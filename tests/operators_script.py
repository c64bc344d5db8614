"""Calls kernels as operators of torch, in Triton's interpreter; a line for each case.

A process of its own, for the interpreter is asked for before Triton is imported, and
mended for bf16.
"""

import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import generated
from gemmgen.output import alone
from gemmgen.select.plan import Plan, load, plans
from gemmgen.spec.parse import parse
from gemmgen.verification.cases.cases import Case, numbers
from gemmgen.verification.contract.memory_rules import check_in_place
from gemmgen.verification.example import subject
from gemmgen.verification.example.one_example import Wrong, framed_inputs
from gemmgen.verification.interpret import interpreter
from gemmgen.verification.operators.checks import check_operator
from generated import (
    gemm_nn_bf16_alpha_beta,
    gemm_nn_fp32,
    gemm_tn_fp32,
    linear_bias_relu,
    linear_gelu_aux,
    linear_scales,
    study_linear,
)
from tests.cases import case, refused, run_all

CPU = torch.device("cpu")
SPEC = Path(__file__).parent.parent / "spec.yaml"
NO_NUMBERS = """
gemmgen: 1
defaults: {op: linear, schedule: tiled, tiles: {m: 16, n: 16, k: 16}, dtype: fp32}
kernels:
  - {name: logs, epilogue: "log(acc + bias[n])"}
  - {name: never, epilogue: "log(-abs(acc) - 1)"}
  - {name: logs_in_place, epilogue: "acc * 0 + log(residual[m, n])"}
"""


def halves(*sizes: int) -> Tensor:
    return torch.randn(sizes).half()


def brains(*sizes: int) -> Tensor:
    return torch.randn(sizes).bfloat16()


X, W = halves(2, 5, 32), halves(8, 32)
LEARNING = X.clone().requires_grad_()
A, B = torch.randn(3, 4), torch.randn(4, 5)
GRADIENT = "study_linear: x must not require a gradient, which study_linear does not"


def arguments(plan: Plan, given: Case) -> list[Any]:
    """What an operator of a kernel is called with."""
    inputs = framed_inputs(plan, given, CPU)
    numbered = dict.fromkeys(numbers(plan), 0.5)
    names = getattr(generated, plan.name).operator.names
    return [inputs[name].view if name in inputs else numbered[name] for name in names]


def compiled(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> int:
    """Hold that a compiled function returns what it does; how often it was compiled."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    made = torch.compile(function, backend=counter, fullgraph=True, dynamic=True)
    for one in calls:
        torch.testing.assert_close(made(*one), function(*one), rtol=0, atol=0)
    return counter.frame_count


# -- registered ----------------------------------------------------------------------


@case
def operators_pass_opcheck() -> None:
    """In its own layout, and with A and B stored the other way round.

    An eighth of them: `gemmgen verify` does the same with each kernel.
    """
    for plan in load(SPEC)[::8]:
        operator = getattr(generated, plan.name).operator
        for given in (Case((5,), 7, 9), Case((1,), 16, 32)):
            passed = arguments(plan, given)
            turned = [
                one.mT.contiguous().mT if getattr(one, "ndim", 0) > 1 else one
                for one in passed
            ]
            for each in (passed, turned):
                torch.library.opcheck(operator.overload, each)


@case
def results_that_are_no_numbers_are_no_faults() -> None:
    """Of logarithms, some or all; torch takes NaN for another result than NaN."""
    for plan in plans(parse(NO_NUMBERS.encode(), "spec.yaml")):
        with TemporaryDirectory() as folder:
            module = subject.load(alone.written(Path(folder), plan, "spec.yaml"))
        launcher = getattr(module, plan.name)
        assert check_operator(plan, launcher, CPU)
        assert check_in_place(plan, launcher, CPU) == 2 * (plan.name == "logs_in_place")


@case
def every_operator_returns_what_its_launcher_does() -> None:
    for plan in load(SPEC):
        launcher = getattr(generated, plan.name)
        packet = getattr(torch.ops.generated, plan.name)
        passed = arguments(plan, Case((5,), 7, 9))
        torch.testing.assert_close(packet(*passed), launcher(*passed), rtol=0, atol=0)


@case
def a_schema_names_arguments_and_results() -> None:
    schemas = {
        gemm_nn_bf16_alpha_beta: "(Tensor a, Tensor b, Scalar alpha, Scalar beta, "
        "Tensor addend) -> Tensor",
        linear_gelu_aux: "(Tensor x, Tensor w, Tensor bias) -> (Tensor, Tensor)",
    }
    for launcher, wanted in schemas.items():
        schema = launcher.operator.overload._schema
        assert str(schema) == f"generated::{launcher.__name__}{wanted}"


@case
def results_without_memory_are_those_of_the_launcher() -> None:
    with FakeTensorMode():
        x = torch.empty(2, 5, 32, dtype=torch.bfloat16, device="cuda")
        bias = torch.empty(8, dtype=torch.bfloat16, device="cuda")
        w = torch.empty_strided((8, 32), (1, 8), dtype=x.dtype, device="cuda")
        out, pre = linear_gelu_aux(x, w, bias)
    assert (out.shape, out.stride(), out.dtype) == ((2, 5, 8), (40, 8, 1), x.dtype)
    assert (pre.dtype, pre.device) == (torch.float32, torch.device("cuda", 0))
    made = torch.ops.generated.study_linear(X.to("meta"), W.to("meta"))
    assert (made.shape, made.device.type) == ((2, 5, 8), "meta")


@case
def what_is_wrong_is_said_in_the_launcher_s_words() -> None:
    call = torch.ops.generated.study_linear
    with FakeTensorMode():
        x, w = torch.empty(2, 32).half(), torch.empty(8, 32).half()
        refused(lambda: call(x, w[:, 1:]), "study_linear: w must be [N, 32] fp16, got")
        refused(lambda: call(x.float(), w), "x must be [..., K] fp16, got [2, 32] fp32")
        far = torch.empty(8, 32, dtype=torch.float16, device="cuda")
        refused(lambda: call(x, far), "study_linear: w must be on cpu, got cuda")
    refused(lambda: call(X, W[:, 1:]), "study_linear: w must be [N, 32] fp16, got")
    refused(lambda: call(X.to_sparse(), W), "study_linear: x must be dense and strided")


# -- compiled ------------------------------------------------------------------------


@case
def all_sizes_are_compiled_once() -> None:
    def linear(x: Tensor, w: Tensor) -> Tensor:
        return study_linear(x * 2, w=w) + 1

    calls = [(halves(2, m, k), halves(n, k)) for m, n, k in
             ((5, 8, 32), (3, 9, 48), (16, 16, 16), (129, 2, 7))]  # fmt: skip
    assert compiled(linear, calls) == 1

    def scaled(a: Tensor, b: Tensor, c: Tensor, alpha: float) -> Tensor:
        return gemm_nn_bf16_alpha_beta(a, b, alpha, beta=2.0, addend=c)

    def halved(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return scaled(a, b, c, 0.5)

    matrices = [(brains(m, 9), brains(9, 6), brains(m, 6)) for m in (3, 5, 7)]
    assert compiled(halved, list(matrices)) == 1
    torch._dynamo.reset()
    counter = CompileCounter()
    made = torch.compile(scaled, backend=counter, fullgraph=True, dynamic=True)
    for one, alpha in zip(matrices, (0.5, 0.25, 1.5), strict=True):
        made(*one, alpha)
    assert counter.frame_count == 1  # backends of torch's AOTAutograd make it more


@case
def whole_numbers_are_compiled() -> None:
    """Which are symbols of their own: the second one is, the first of `dynamic` too."""

    def scaled(c: Tensor, alpha: float, beta: float) -> Tensor:
        return gemm_nn_bf16_alpha_beta(c, c, alpha, 2 * beta, c)

    c = brains(4, 4)
    assert compiled(scaled, [(c, 2, 3), (c, 5, -7), (c, 4, 9)]) == 1
    torch._dynamo.reset()
    made = torch.compile(scaled, backend="aot_eager", fullgraph=True)
    for factors in ((2, 3), (5, -7), (0.5, 9)):
        assert torch.equal(made(c, *factors), scaled(c, *factors))


@case
def several_results_and_given_ones_are_compiled() -> None:
    def both(x: Tensor, w: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        out, pre = linear_gelu_aux(x, w, bias)
        return out * 2, pre

    assert compiled(both, [(brains(m, 32), brains(8, 32), brains(8)) for m in (5, 6)])

    def into(x: Tensor, w: Tensor, out: Tensor) -> Tensor:
        return study_linear(x, w, out=out)

    assert compiled(into, [(X, W, halves(2, 5, 8))]) == 1
    torch._dynamo.reset()
    made = torch.compile(into, backend="aot_eager", fullgraph=True)
    out = torch.zeros(2, 5, 8).half()
    made(X, W, out)
    assert torch.equal(out, study_linear(X, W))
    refused(lambda: made(X, W, halves(2, 4, 8)), "out must have the result's shape")


@case
def inductor_calls_the_operator() -> None:
    torch._dynamo.reset()
    made = torch.compile(lambda x, w: study_linear(x, w).relu(), fullgraph=True)
    assert torch.equal(made(X, W), study_linear(X, W).relu())


@case
def a_trace_has_the_operator() -> None:
    def step(x: Tensor, w: Tensor) -> Tensor:
        return study_linear(x, w).relu()

    made = torch.jit.trace(step, (X, W))
    assert "generated::study_linear" in str(made.graph)
    x = halves(2, 7, 32)
    assert torch.equal(made(x, W), step(x, W))


@case
def a_symbolic_trace_has_the_operator() -> None:
    def layer(x: Tensor, w: Tensor, alpha: float) -> Tensor:
        relu = linear_bias_relu(x * 2, w=w, bias=w[:, 0])
        return relu + gemm_nn_bf16_alpha_beta(relu, relu, alpha, 2.0, relu)

    graph = torch.fx.symbolic_trace(layer).graph
    names = [str(one.target) for one in graph.nodes if "generated" in str(one.target)]
    assert names == [
        "generated.linear_bias_relu.default",
        "generated.gemm_nn_bf16_alpha_beta.default",
    ]
    made = torch.fx.symbolic_trace(lambda x: study_linear(x, W))
    assert torch.equal(made(X), study_linear(X, W))


@case
def a_module_is_exported_for_any_number_of_rows() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(W, requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return study_linear(x, self.weight)

    sizes = {"x": {1: torch.export.Dim("rows", min=2, max=4096)}}
    for strict in (False, True):
        made = torch.export.export(Layer(), (X,), dynamic_shapes=sizes, strict=strict)
        assert torch.ops.generated.study_linear.default in [
            node.target for node in made.graph.nodes
        ]
        assert made.module()(halves(2, 77, 32)).shape == (2, 77, 8)


@case
def a_compiled_mistake_is_named() -> None:
    torch._dynamo.reset()
    made = torch.compile(study_linear, backend="aot_eager", fullgraph=True)
    refused(lambda: made(X, W[:, 1:]), "study_linear: w must be [N, 32] fp16, got")
    refused(lambda: made(LEARNING, W), GRADIENT)
    with torch.no_grad():
        assert torch.equal(made(LEARNING, W), study_linear(X, W))


# -- entered -------------------------------------------------------------------------


class Told(TorchDispatchMode):
    """Notes the operators that it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


class ToldOfFunctions(TorchFunctionMode):
    """The same of functions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@case
def modes_are_told() -> None:
    for mode in (Told(), ToldOfFunctions()):
        with mode:
            returned = study_linear(X, W)
        assert mode.seen == ["generated.study_linear.default"]
        assert torch.equal(returned, study_linear(X, W))
    out = torch.zeros(2, 5, 8).half()
    with Told() as mode:
        assert study_linear(X, W, out=out) is out
    assert mode.seen[0] == "generated.study_linear.default"
    assert torch.equal(out, study_linear(X, W))


@case
def a_plain_call_is_no_operator_s() -> None:
    def never(*_: Any) -> None:
        raise AssertionError("entered")

    operator, before = study_linear.operator, study_linear.operator.overload
    operator.overload = never
    try:
        study_linear(X, W)
        with torch.no_grad():
            study_linear(LEARNING, W)
        with torch.inference_mode():
            study_linear(X, w=W)
        study_linear(X, W, out=halves(2, 5, 8))
    finally:
        operator.overload = before


@case
def flops_are_counted() -> None:
    with FlopCounterMode(display=False) as counter:
        study_linear(X, W)
        gemm_nn_fp32(A, B)
        gemm_tn_fp32(A.mT.contiguous(), B)
        linear_scales(X, W, torch.ones(2, 5), torch.ones(8))
        study_linear(X[:, :, :0], W[:, :0])
    linear, product = 2 * 10 * 8 * 32, 2 * 3 * 5 * 4
    counts = counter.get_flop_counts()["Global"]
    assert {str(name): count for name, count in counts.items()} == {
        "generated.study_linear": linear,
        "generated.gemm_nn_fp32": product,
        "generated.gemm_tn_fp32": product,
        "generated.linear_scales": linear,
    }


@case
def a_profiler_has_the_operator_s_name() -> None:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profiler:
        study_linear(X, W)
    assert "generated::study_linear" in [one.key for one in profiler.key_averages()]


@case
def a_subclass_decides_for_itself() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    named = type("Named", (Tensor,), {})
    assert type(study_linear(X.as_subclass(named), W)) is named
    two = study_linear(TwoTensor(X, 2 * X), TwoTensor(W, W))
    assert type(two) is TwoTensor
    assert torch.equal(two.a, study_linear(X, W))
    assert torch.equal(two.b, study_linear(2 * X, W))


@case
def numbers_of_any_kind_are_taken() -> None:
    a, b, c = brains(3, 4), brains(4, 5), brains(3, 5)
    wanted = gemm_nn_bf16_alpha_beta(a, b, 0.5, 2.0, c)
    for half in (0.5, np.float32(0.5), np.float64(0.5), Fraction(1, 2)):
        with Told() as told:
            found = gemm_nn_bf16_alpha_beta(a, b, half, beta=2, addend=c)
        assert torch.equal(found, wanted)
        assert told.seen == ["generated.gemm_nn_bf16_alpha_beta.default"]
    with Told():
        for wrong in (None, "1", True):
            call = partial(gemm_nn_bf16_alpha_beta, a, b, wrong, 2.0, c)
            refused(call, "gemm_nn_bf16_alpha_beta: alpha must be a float, got")
        refused(lambda: gemm_nn_bf16_alpha_beta(a, b), "missing")


# -- autocast ------------------------------------------------------------------------


@case
def autocast_casts_to_what_a_kernel_takes() -> None:
    wanted = study_linear(X, W)
    with torch.autocast("cpu", torch.float16):
        assert torch.equal(study_linear(X.float(), W.float()), wanted)
        assert torch.equal(study_linear(X.float(), W), wanted)
        made = torch.compile(study_linear, backend="aot_eager", fullgraph=True)
        assert torch.equal(made(X.float(), W.float()), wanted)
        scales = torch.rand(2, 5), torch.rand(8)
        scaled = linear_scales(X.float(), W.float(), *scales)
        refused(lambda: study_linear(X.double(), W), "x must be [..., K] fp16, got")
    assert torch.equal(scaled, linear_scales(X, W, *scales))


@case
def autocast_to_another_type_casts_nothing() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        refused(lambda: study_linear(X.float(), W), "x must be [..., K] fp16, got")
        assert torch.equal(gemm_nn_fp32(A, B), gemm_nn_fp32(A.clone(), B))
        refused(lambda: gemm_nn_fp32(A.bfloat16(), B), "a must be [M, K] fp32, got")
    with torch.autocast("cpu", torch.bfloat16, enabled=False):
        refused(lambda: study_linear(X.float(), W), "x must be [..., K] fp16, got")


# -- derivatives and transforms ------------------------------------------------------


@case
def a_gradient_is_refused_by_name() -> None:
    for call in (study_linear, torch.ops.generated.study_linear):
        refused(lambda: call(LEARNING, W), GRADIENT)  # noqa: B023
        with torch.no_grad():
            assert not call(LEARNING, W).requires_grad
        with torch.inference_mode():
            call(LEARNING, W)
    refused(lambda: study_linear(X, W, out=LEARNING[:, :, :8]), "out must not require")
    total = torch.func.grad(lambda x: study_linear(x, W).sum())
    refused(lambda: total(X), GRADIENT)
    other = torch.func.grad(lambda y: y * study_linear(X, W).float().sum())
    torch.testing.assert_close(other(torch.ones(())), study_linear(X, W).float().sum())


@case
def a_checkpoint_loses_no_gradient() -> None:
    def layer(x: Tensor) -> Tensor:
        return study_linear(x, W)

    for reentrant in (False, True):

        def run(x: Tensor, reentrant: bool = reentrant) -> Tensor:
            return checkpoint(layer, x, use_reentrant=reentrant)

        refused(lambda: run(LEARNING).sum().backward(), GRADIENT)
        with torch.no_grad():
            assert torch.equal(run(X), study_linear(X, W))


@case
def a_forward_derivative_is_refused_by_name() -> None:
    wanted = "study_linear: x must have no tangent"
    refused(lambda: torch.func.jvp(lambda x: study_linear(x, W), (X,), (X,)), wanted)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, X)
        refused(lambda: study_linear(dual, W), wanted)
        assert torch.equal(study_linear(X, W), torch.ops.generated.study_linear(X, W))


@case
def vmap_maps() -> None:
    x, w = X, W

    def same(got: Any, wanted: Any) -> None:
        # Of many rows at once the CPU's BLAS may round single sums otherwise.
        rounding = 1e-6 if got.dtype == torch.float32 else 0
        torch.testing.assert_close(got, wanted, rtol=rounding, atol=rounding)

    same(torch.vmap(lambda x: study_linear(x, w))(x), study_linear(x, w))
    rows = torch.vmap(torch.vmap(lambda row: study_linear(row, w)))
    same(rows(x), study_linear(x, w))
    across = torch.vmap(lambda x: study_linear(x, w), in_dims=1, out_dims=1)
    same(across(x), study_linear(x, w))
    weights = torch.stack([w, 2 * w])
    each = torch.stack([study_linear(x, one) for one in weights])
    same(torch.vmap(lambda one: study_linear(x, one))(weights), each)
    many = torch.randn(6, 3, 4)
    same(torch.vmap(lambda a: gemm_nn_fp32(a, B))(many),
         torch.stack([gemm_nn_fp32(a, B) for a in many]))  # fmt: skip
    same(torch.vmap(lambda a: gemm_nn_fp32(a[:0], B))(many), torch.zeros(6, 0, 5))
    same(torch.vmap(lambda a: gemm_tn_fp32(a, B))(many.mT.contiguous()),
         torch.stack([gemm_tn_fp32(a.mT.contiguous(), B) for a in many]))  # fmt: skip
    c = brains(4, 3, 5)
    a, b = brains(3, 4), brains(4, 5)
    same(
        torch.vmap(lambda c: gemm_nn_bf16_alpha_beta(a, b, 0.5, 2.0, c))(c),
        torch.stack([gemm_nn_bf16_alpha_beta(a, b, 0.5, 2.0, one) for one in c]),
    )
    pairs = torch.vmap(lambda one: linear_gelu_aux(one, b.mT, b[0]))(brains(2, 3, 4))
    assert [one.shape for one in pairs] == [(2, 3, 5)] * 2
    nothing = torch.vmap(lambda one: study_linear(x, one))(weights[:0])
    assert (nothing.shape, nothing.dtype) == ((0, *each.shape[1:]), each.dtype)
    pairs = torch.vmap(lambda one: linear_gelu_aux(a, one, b[0]))(brains(0, 5, 4))
    assert [one.shape for one in pairs] == [(0, 3, 5)] * 2


@case
def vmap_of_rows_is_one_call() -> None:
    called = 0

    def counted(*inputs: Any) -> Any:
        nonlocal called
        called += 1
        return before(*inputs)

    operator, before = linear_bias_relu.operator, linear_bias_relu.operator.launch
    operator.launch = counted
    try:
        torch.vmap(lambda x: linear_bias_relu(x, W, W[:, 0]))(X)
        assert called == 1
        torch.vmap(lambda w: linear_bias_relu(X, w, w[:, 0]))(torch.stack([W, W, W]))
        assert called == 4
    finally:
        operator.launch = before


# -- what verify checks of a kernel's operator -----------------------------------------


def later(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with each number of the result larger."""

    def wrong(*inputs: Any) -> Any:
        returned = call(*inputs)
        if isinstance(returned, Tensor):
            return returned + 1
        return returned[0] + 1, returned[1]

    return wrong


def turned(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with a result that is stored the other way round."""

    def wrong(*inputs: Any) -> Any:
        return call(*inputs).mT.contiguous().mT

    return wrong


def doubled(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, in fp64."""
    return lambda *inputs: call(*inputs).double()


def direct(operator: Any) -> Callable[..., Any]:
    """What launches whatever the operator has to do first."""
    return lambda *inputs: operator.launch(*inputs[-len(operator.names) :])


def detached(operator: Any) -> Callable[..., Any]:
    """What takes gradients for none."""

    def wrong(keys: Any, *inputs: Any) -> Any:
        with torch.no_grad():
            return before(keys, *inputs)

    before = operator.autograd
    return wrong


def mended(operator: Any, attribute: str) -> None:
    """Take a fault back: what is set on an operator, or stands for a method."""
    if attribute == "launch":
        operator.launch = generated.gemm_nt_fp16.untracked
    else:
        delattr(operator, attribute)


FAULTS: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "launches otherwise": lambda one: ("launch", later(one.launch)),
    "stores otherwise": lambda one: ("launch", turned(one.launch)),
    "fakes other strides": lambda one: ("fake", turned(one.fake)),
    "fakes another type": lambda one: ("fake", doubled(one.fake)),
    "fakes by launching": lambda one: ("fake", one.launch),
    "leaves gradients out": lambda one: ("autograd", detached(one)),
    "leaves tangents out": lambda one: ("refuse_tangents", lambda _: None),
    "casts nothing": lambda one: ("cast", direct(one)),
    "maps to others": lambda one: ("batched", later(one.batched)),
    "counts one operation a product": lambda one: (
        "flops", lambda *shapes, **_: int(shapes[0].numel() * shapes[1][0])
    ),
}  # fmt: skip


@case
def verify_finds_faults_of_operators() -> None:
    """In a kernel whose operator passes as it stands."""
    (plan,) = [one for one in load(SPEC) if one.name == "gemm_nt_fp16"]
    launcher = generated.gemm_nt_fp16
    assert check_operator(plan, launcher, CPU)
    operator = launcher.operator
    for name, fault in FAULTS.items():
        attribute, wrong = fault(operator)
        setattr(operator, attribute, wrong)
        try:
            check_operator(plan, launcher, CPU)
        except Exception:  # as for `verify`, to which all of them are faults
            continue
        finally:
            mended(operator, attribute)
        raise AssertionError(f"not found: {name}")
    assert check_operator(plan, launcher, CPU)


@case
def verify_finds_launchers_that_do_not_enter() -> None:
    (plan,) = [one for one in load(SPEC) if one.name == "gemm_nt_fp16"]
    launcher, before = generated.gemm_nt_fp16, generated.gemm_nt_fp16.cache.as_operator
    launcher.cache.as_operator = launcher.__wrapped__
    try:
        check_operator(plan, launcher, CPU)
    except Wrong as wrong:
        assert "a mode was told of" in str(wrong), wrong
    else:
        raise AssertionError("not found")
    finally:
        launcher.cache.as_operator = before


if __name__ == "__main__":
    interpreter.mend()
    run_all(sys.argv[1:])
