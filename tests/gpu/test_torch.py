"""Kernels as operators of torch on a GPU: compiled, captured, cast, told apart."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def kernel():
    """A launcher that remembers calls like those of `inputs`."""
    from generated import linear_bias_gelu

    for _ in range(4):
        linear_bias_gelu(*inputs(64))
    return linear_bias_gelu


def inputs(rows: int):
    torch.manual_seed(rows)
    sizes = (rows, 48), (32, 48), (32,)
    return [torch.randn(one, device="cuda").bfloat16() for one in sizes]


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled_calls_return_the_same(kernel, mode) -> None:
    torch._dynamo.reset()
    made = torch.compile(
        lambda x, w, bias: kernel(x * 2, w, bias) + 1, fullgraph=True, mode=mode
    )
    for rows in (64, 64, 64, 77, 77, 300, 64):
        x, w, bias = inputs(rows)
        assert torch.equal(made(x, w, bias), kernel(x * 2, w, bias) + 1)


def test_sizes_are_compiled_once(kernel) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    made = torch.compile(kernel, fullgraph=True, dynamic=True, backend=counter)
    for rows in (64, 77, 300, 16):
        assert torch.equal(made(*inputs(rows)), kernel(*inputs(rows)))
    assert counter.frame_count == 1


def test_a_graph_captures_the_operator(kernel) -> None:
    x, w, bias = inputs(64)
    call = torch.ops.generated.linear_bias_gelu
    call(x, w, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call(x, w, bias)
    x.neg_()
    graph.replay()
    assert torch.equal(found, kernel(x, w, bias))


def test_autocast_casts(kernel) -> None:
    x, w, bias = inputs(64)
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.equal(kernel(x.float(), w.float(), bias), kernel(x, w, bias))
    with (
        torch.autocast("cuda", torch.float16),
        pytest.raises(ValueError, match=r"x must be \[\.\.\., K\] bf16, got .* fp32"),
    ):
        kernel(x.float(), w, bias)


def test_what_is_remembered_hides_nothing_from_torch(kernel) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    x, w, bias = inputs(64)
    with FlopCounterMode(display=False) as counter:
        kernel(x, w, bias)
    assert counter.get_total_flops() == 2 * 64 * 32 * 48
    with pytest.raises(ValueError, match="w must not require a gradient"):
        kernel(x, torch.nn.Parameter(w), bias)
    with pytest.raises(ValueError, match="x must not require a gradient"):
        torch.func.grad(lambda x: kernel(x, w, bias).sum())(x)
    with pytest.raises(ValueError, match="x must have no tangent"):
        torch.func.jvp(lambda x: kernel(x, w, bias), (x,), (x,))
    mapped = torch.vmap(lambda x: kernel(x, w, bias))(x.view(4, 16, 48))
    assert torch.equal(mapped.view(64, 32), kernel(x, w, bias))
    with torch.profiler.profile() as profiler:
        kernel(x, w, bias)
    names = [one.key for one in profiler.key_averages()]
    assert "generated::linear_bias_gelu" in names


@pytest.mark.parametrize(
    "name", ["gemm_tn_bf16", "gemm_nt_tf32", "linear_gelu_aux", "linear_scales"]
)
def test_opcheck_passes(name: str) -> None:
    import generated

    launcher = getattr(generated, name)
    shapes = {
        "gemm_tn_bf16": [(64, 40), (64, 48)],
        "gemm_nt_tf32": [(40, 64), (48, 64)],
        "linear_gelu_aux": [(2, 20, 64), (48, 64), (48,)],
        "linear_scales": [(2, 20, 64), (48, 64), (2, 20), (48,)],
    }
    asked = launcher.operator.requested
    arguments = [
        torch.randn(shape, device="cuda").to(asked[argument][1])
        for argument, shape in zip(launcher.operator.names, shapes[name], strict=True)
    ]
    torch.library.opcheck(launcher.operator.overload, arguments)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    """A launcher with a backward, which remembers calls."""
    from pathlib import Path

    from gemmgen.output import builder

    folder = tmp_path_factory.mktemp("trained")
    spec = Path(__file__).parents[2] / "examples" / "training.yaml"
    builder.build([spec], folder / "trained")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        from trained import mlp_up
    for _ in range(4):
        gradients(mlp_up, 64)
        mlp_up(*inputs(64))
    return mlp_up


def gradients(call, rows: int):
    learning = [one.requires_grad_() for one in inputs(rows)]
    result = call(*learning)
    return [result, *torch.autograd.grad(result, learning, result.detach())]


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled_gradients_are_those_of_plain_calls(trained, mode) -> None:
    torch._dynamo.reset()
    made = torch.compile(trained, fullgraph=True, mode=mode)
    for rows in (64, 64, 64, 77, 77, 300, 64):
        for got, want in zip(
            gradients(made, rows), gradients(trained, rows), strict=True
        ):
            assert torch.equal(got, want)


def test_what_learns_hides_nothing_from_torch(trained) -> None:
    from torch.utils.checkpoint import checkpoint
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        gradients(trained, 64)
    assert counter.get_total_flops() == 3 * 2 * 64 * 32 * 48
    want = gradients(trained, 64)
    again = gradients(lambda *one: checkpoint(trained, *one, use_reentrant=False), 64)
    assert all(map(torch.equal, again, want))
    x, w, bias = inputs(64)
    _, pull = torch.func.vjp(lambda x: trained(x, w, bias), x)
    assert torch.equal(pull(want[0].detach())[0], want[1])
    torch.library.opcheck(trained.operator.overload, (x.requires_grad_(), w, bias))
