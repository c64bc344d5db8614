"""What only a GPU shows: streams, graphs, compilations, offsets past 2^31."""

import random
import sys

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


def test_new_sizes_compile_few_kernels(generated) -> None:
    """Contiguous NT operands: K and N by class (1, multiple of 16, other), M never."""
    module = sys.modules["generated.gemm_nt_fp16"]
    kernel = module.gemm_nt_fp16_kernel
    tiles = len({tile[1:7] for tile in module.TILES})
    draw = random.Random(0)
    for _ in range(80):
        m, n, k = (draw.choice([1, 3, 16, 31, 64, 100, 128, 333]) for _ in "mnk")
        generated.gemm_nt_fp16(half(m, k), half(n, k))
    compiled = len(kernel.device_caches[torch.cuda.current_device()][0])
    assert compiled <= 9 * tiles


def test_time_of_compiling_is_paid_once_a_class(generated) -> None:
    module = sys.modules["generated.gemm_nt_bf16"]
    kernel = module.gemm_nt_bf16_kernel
    b = torch.randn(256, 128, device="cuda").bfloat16()
    for m in (1, 2, 16, 33, 48):
        generated.gemm_nt_bf16(torch.randn(m, 128, device="cuda").bfloat16(), b)
    assert len(kernel.device_caches[torch.cuda.current_device()][0]) == 1
