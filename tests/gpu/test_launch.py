"""What only a GPU shows: streams, graphs, compilations, offsets past 2^31."""

import importlib
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture
def generated():
    """The committed kernels; not imported where there is no GPU."""
    import generated

    torch.manual_seed(0)
    return generated


def half(*shape: int):
    return torch.randn(shape, device="cuda").half()


def close(found, a, b) -> bool:
    exact = a.double() @ b.double()
    error = (found.double() - exact).norm() / exact.norm()
    return bool(error < 1e-3)


def test_runs_on_the_current_stream(generated) -> None:
    a, b = half(512, 512), half(512, 512)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        a.fill_(0)
        found = generated.gemm_nn_fp16(a, b)
    stream.synchronize()
    assert found.abs().max() == 0


def test_graph_replays_on_new_data(generated) -> None:
    a, b = half(300, 200), half(200, 100)
    generated.gemm_nn_fp16(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = generated.gemm_nn_fp16(a, b)
    a.copy_(half(300, 200))
    graph.replay()
    torch.cuda.synchronize()
    assert close(found, a, b)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_runs_where_the_tensors_are(generated) -> None:
    a, b = half(64, 64).to("cuda:1"), half(64, 64).to("cuda:1")
    assert torch.cuda.current_device() == 0
    found = generated.gemm_nn_fp16(a, b)
    assert found.device == a.device and close(found, a, b)


def test_offsets_past_two_to_the_31(generated) -> None:
    storage = torch.empty(2**31 + 2**26, device="cuda", dtype=torch.float16)
    a = storage.as_strided((3, 64), (2**30 + 2**23, 1))
    a.copy_(half(3, 64))
    b = half(64, 32)
    assert close(generated.gemm_nn_fp16(a, b), a, b)


def compiled(module) -> int:
    """Kernels of all schedules that were compiled for this GPU."""
    device = torch.cuda.current_device()
    kernels = {one.kernel for one in module.LAUNCHES.arguments.values()}
    return sum(len(kernel.device_caches[device][0]) for kernel in kernels)


def test_new_sizes_compile_few_kernels(generated) -> None:
    """Those whose kinds differ, which `gemmgen list --compile-keys` lists too."""
    module, expected = importlib.import_module("generated.gemm_nt_fp16"), set()
    kind = importlib.import_module("generated._runtime.packed").compile_key
    draw = random.Random(0)
    for _ in range(200):
        m, n, k = (draw.choice([1, 3, 16, 31, 64, 100, 128, 333]) for _ in "mnk")
        a, b = half(m, k), half(n, k)
        c = generated.gemm_nt_fp16(a, b)
        expected.add(kind(module.LAUNCHES.launch(a, b, c)))
    assert 1 < compiled(module) <= len(expected) < 150


def test_time_of_compiling_is_paid_once_a_class(generated) -> None:
    """Of M, all that a tile serves is one class: one row, up to 16, up to 64."""
    module = importlib.import_module("generated.gemm_nt_bf16")
    b = torch.randn(256, 128, device="cuda").bfloat16()

    def call(*rows: int) -> int:
        for m in rows:
            generated.gemm_nt_bf16(torch.randn(m, 128, device="cuda").bfloat16(), b)
        return compiled(module)

    first = call(1, 2, 16, 33, 48)
    assert 1 < first <= 3
    assert call(3, 7, 15, 34, 47) == first


def test_nothing_compiles_at_a_size_that_was_warmed(generated) -> None:
    module = importlib.import_module("generated.linear_bias_silu_residual")
    launcher, draw = generated.linear_bias_silu_residual, random.Random(0)
    x, w, residual = (
        torch.randn(shape, device="cuda").bfloat16()
        for shape in ((3000, 1024), (1536, 1024), (3000, 1536))
    )
    bias = w[:, 0].contiguous()
    told = launcher.warmup(x, w, bias, residual)
    assert len({one.tile for one in told}) > 1
    count = compiled(module)
    assert 1 < count <= len(told)
    for rows in (1, 2, 16, 17, 3000, *(draw.randint(1, 3000) for _ in range(300))):
        launcher(x[:rows], w, bias, residual[:rows])
    assert compiled(module) == count


def test_a_new_thread_calls_as_any_other(generated) -> None:
    """Though Triton makes tensor maps before it asks for a context, which it lacks."""
    w = torch.randn(1536, 1024, device="cuda").bfloat16()
    inputs = [
        torch.randn(rows, 1024, device="cuda").bfloat16() for rows in (2048, 2000)
    ]
    expected = [generated.linear_bf16(x, w) for x in inputs for _ in range(3)]
    for x, wanted in zip(inputs, expected[::3], strict=True):
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(generated.linear_bf16, x, w).result()
        assert torch.equal(found, wanted)


def wholes(*shape: int, dtype):
    """Small whole numbers, whose products have sums that fp32 holds exactly."""
    return torch.randint(-2, 3, shape, device="cuda").to(dtype)


@pytest.mark.parametrize("name", ["linear_bf16", "linear_residual"])
@pytest.mark.parametrize(
    "m, n, stages, warps, parts",
    [
        (72, 64, 6, 4, 5),
        (128, 64, 5, 4, -2),  # 2 * FILL
        (200, 128, 3, 8, 3),
        (128, 128, 4, 8, 64),  # more than there are K blocks
        (64, 192, 4, 12, 2),
    ],
)
def test_parts_of_k_meet_in_specialized_kernels(
    name: str, m: int, n: int, stages: int, warps: int, parts: int
) -> None:
    """Each call finds the counts as they were left; who comes last changes nothing."""
    subject = importlib.import_module("gemmgen.verification.example.subject")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    module = importlib.import_module(f"generated.{name}")
    row = next(one for one in module.TILES if one.schedule == "warp_specialized")
    sides = {"m": m, "n": n, "k": 64, "stages": stages, "warps": warps}
    tile = row._replace(**subject.ANYWHERE, **sides, split_k=parts)
    last = module.TILES[-1]._replace(sm=0)
    block = subject.Block(m, n, 64)
    forced = subject.Variant(block, (tile, last), tile.schedule, parts).forced(module)
    dtype = torch.bfloat16 if name == "linear_bf16" else torch.float16
    with forced:
        for rows in (1, 333, 4000):
            x, w = wholes(rows, 2384, dtype=dtype), wholes(1000, 2384, dtype=dtype)
            more = [wholes(rows, 1000, dtype=dtype)] * (name == "linear_residual")
            exact = sum(more, x.double() @ w.double().T).to(dtype)
            assert tile == module.LAUNCHES.launch(x, w, *more, exact).tile
            for _ in range(50):
                assert torch.equal(getattr(module, name)(x, w, *more), exact)
            drawn = [torch.randn_like(one) for one in (x, w, *more)]
            first = getattr(module, name)(*drawn)
            for _ in range(50):
                assert torch.equal(getattr(module, name)(*drawn), first)
