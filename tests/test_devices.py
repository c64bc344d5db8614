"""Whatever GPU a module meets takes tiles that it holds and can run."""

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from gemmgen.cost.resources import shared_memory, why_not_compiled
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.output import builder
from gemmgen.render.names.parts import file_of
from gemmgen.runtime.tile import ASYNCHRONOUS
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.plan import load
from gemmgen.select.table import Row
from gemmgen.verification.example import subject

ROOT = Path(__file__).resolve().parent.parent
DEVICE = torch.device("cpu")

# Compute capabilities, and the target whose limits and units a GPU of each has.
GPUS = {
    **{target.architecture: target for target in TARGETS.values()},
    **{87: TARGETS["sm_80"], 103: TARGETS["sm_100"], 110: TARGETS["sm_100"]},
    121: TARGETS["sm_120"],
}
SPEC = """\
gemmgen: 1
targets: [{targets}]
kernels:
  - {{name: half, op: linear, dtype: bf16, epilogue: "gelu(acc + bias[n])"}}
  - {{name: thrice, op: gemm, layout: TN, dtype: fp32, precision: tf32x3}}
  - {{name: exact, op: gemm, layout: NT, dtype: fp32}}
  - {{name: long, op: gemm, layout: NN, dtype: fp64}}
  - {{name: given, op: linear, dtype: fp16, tiles: {{m: 128, n: 128, k: 64}}}}
"""
SIZES = [(1, 1, 1), (1, 4096, 4096), (32, 512, 512), (512, 8192, 1024), (4096,) * 3]
MATRIX = torch.zeros(64, 64)


@pytest.fixture(
    scope="module", params=["sm_80", "sm_90", "sm_100", "sm_80, sm_120", ""]
)
def built(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Any:
    """The plans and modules of a spec for some targets; those of the project for ''."""
    spec = ROOT / "spec.yaml"
    if request.param:
        spec = tmp_path_factory.mktemp("devices") / "spec.yaml"
        spec.write_text(SPEC.format(targets=request.param))
        builder.build([spec])
    folder = spec.parent / "generated"
    return [
        (plan, subject.load(folder / file_of(plan)))
        for plan in load(spec)
        if plan.rows  # Triton's autotuner leaves out what does not fit
    ]


def support_of(module: ModuleType) -> ModuleType:
    return subject.runtime(module, "table")


def matrices(matrix: torch.Tensor, schedule: str) -> tuple[torch.Tensor, ...]:
    """What a schedule takes through descriptors."""
    described = ("tma", "persistent", "warp_specialized")
    return (matrix,) if schedule in described else ()


def calls(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, sm: int
) -> Iterator[Any]:
    """The tiles that calls of all kinds get on a GPU."""
    support, room = support_of(module), GPUS[sm].shared_per_block
    monkeypatch.setattr(support, "compute_capability", lambda device: sm)
    monkeypatch.setattr(support, "shared_memory", lambda device: room)
    monkeypatch.setattr(support, "num_sms", lambda device: GPUS[sm].sms)
    monkeypatch.setattr(support, "specializes", lambda sm: sm == 90)
    for sizes, rows in itertools.product(SIZES, (64, 63)):
        given = partial(matrices, MATRIX[:, :rows])
        yield support.select(module.TILES, DEVICE, sizes, (128, 128), given)


def real(tile: Any, product: Product, target: Target) -> tuple[Tile, int]:
    """The model's tile, and the bytes that it takes on a GPU."""
    same = Tile(tile.m, tile.n, tile.k, tile.group_m, tile.stages, tile.warps,
                tile.schedule, tile.split_k)  # fmt: skip
    return same, shared_memory(same, product, target)


@pytest.mark.parametrize("sm", GPUS)
def test_every_gpu_takes_tiles_that_it_holds(
    built: Any, monkeypatch: pytest.MonkeyPatch, sm: int
) -> None:
    for plan, module in built:
        target = GPUS[sm]
        if sm < min(row.sm for row in module.TILES):
            assert set(calls(monkeypatch, module, sm)) == {None}
            continue
        for tile in calls(monkeypatch, module, sm):
            same, bytes_ = real(tile, plan.product, target)
            assert bytes_ <= target.shared_per_block, tile
            assert not (tile.schedule == "warp_specialized" and sm != 90)
            assert target.tensor_maps or not SCHEDULES[same.schedule].described
            of_fp64 = plan.product.kind == "fp64" and tile.sm < 100
            assert of_fp64 or not why_not_compiled(same, plan.product, target)


@pytest.mark.parametrize("sm", GPUS)
def test_verification_looks_at_all_that_a_gpu_takes(
    built: Any, monkeypatch: pytest.MonkeyPatch, sm: int
) -> None:
    cuda, room = torch.device("cuda"), GPUS[sm].shared_per_block
    properties = type("Properties", (), {"shared_memory_per_block_optin": room})
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: divmod(sm, 10))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    for _, module in built:
        if sm < min(row.sm for row in module.TILES):
            continue
        rows = subject._reached(module.TILES, cuda)
        tiles = {tile for row in rows for tile in row.members()}
        assert set(calls(monkeypatch, module, sm)) <= tiles
        assert all(row.runs_on(sm, room) for row in rows)


def test_a_row_says_of_gpus_what_the_launcher_does(built: Any) -> None:
    for plan, module in built:
        for row, tile in zip(plan.rows, module.TILES, strict=True):
            assert isinstance(row, Row) and row.architecture == tile.sm
            for sm, target in GPUS.items():
                if sm >= tile.sm:
                    said = tile.runs_on(sm, target.shared_per_block)
                    assert said == row.runs_on(target, plan.product)


def test_launchers_know_whose_units_read_shared_memory() -> None:
    for one in TARGETS.values():
        assert (one.architecture in ASYNCHRONOUS) == (one.unit != "mma")


def test_targets_have_their_own_limits() -> None:
    """CUDA C++ Programming Guide, technical specifications per compute capability."""
    limits = {
        name: (one.threads_per_sm, one.blocks_per_sm, one.shared_per_block)
        for name, one in TARGETS.items()
    }
    assert limits == {
        "sm_80": (2048, 32, 163 * 1024),
        "sm_86": (1536, 16, 99 * 1024),
        "sm_89": (1536, 24, 99 * 1024),
        "sm_90": (2048, 32, 227 * 1024),
        "sm_100": (2048, 32, 227 * 1024),
        "sm_120": (1536, 24, 99 * 1024),
    }
    for one in TARGETS.values():
        assert one.shared_per_sm == one.shared_per_block + one.reserved_per_block
