"""The model's arithmetic, and its shared memory against the compiler's."""

from dataclasses import replace
from itertools import product as product_of

import pytest

from gemmgen.cost.resources import (
    fits,
    instruction,
    registers,
    resident,
    residents,
    shared_memory,
    threads,
)
from gemmgen.hardware.targets import TARGETS, Target
from gemmgen.runtime.tile import FILL
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.schedules.parts.tile import Product, Tile, nearest_fitting
from gemmgen.select.fallback_tiles import fallback_tiles

HALF = Product("fp16", 2, 2)
PRODUCTS = [
    HALF,
    Product("bf16", 2, 4),
    Product("tf32", 4, 4),
    Product("tf32x3", 4, 4),
    Product("ieee", 4, 4),
    Product("fp64", 8, 8),
]


def tile(m: int, n: int, k: int, stages: int, warps: int) -> Tile:
    return Tile(m, n, k, 8, stages, warps)


@pytest.mark.parametrize(
    ("product", "size", "target", "bytes_"),
    [
        # Read off the compiler once: see test_shared_memory_is_what_compiles.
        (HALF, tile(128, 256, 64, 3, 8), "sm_90", 147_456),
        (HALF, tile(128, 256, 64, 3, 8), "sm_80", 98_304),
        (HALF, tile(128, 256, 64, 3, 8), "sm_100", 147_472),
        (Product("tf32x3", 4, 4), tile(64, 128, 32, 4, 4), "sm_90", 106_496),
        (Product("fp64", 8, 8), tile(64, 64, 16, 3, 4), "sm_90", 32_768),
        # mma has a barrier for A's block and one for B's, and none for the last stage.
        (HALF, Tile(64, 64, 64, 8, 4, 4, "tma"), "sm_120", 3 * 16_384 + 56),
        (HALF, Tile(64, 64, 64, 8, 5, 4, "tma"), "sm_120", 4 * 16_384 + 64),
        (HALF, Tile(32, 32, 64, 8, 4, 4, "tma"), "sm_90", 3 * 8_192 + 56),
    ],
)
def test_shared_memory(product: Product, size: Tile, target: str, bytes_: int) -> None:
    assert shared_memory(size, product, TARGETS[target]) == bytes_


def test_unit_follows_tile_and_target() -> None:
    large, small = tile(64, 64, 64, 3, 4), tile(32, 64, 64, 3, 4)
    units = {name: instruction(large, HALF, row) for name, row in TARGETS.items()}
    assert units["sm_80"] == units["sm_89"] == "mma"
    assert (units["sm_90"], units["sm_100"]) == ("wgmma", "tcgen05")
    assert instruction(small, HALF, TARGETS["sm_90"]) == "mma"
    assert instruction(large, PRODUCTS[4], TARGETS["sm_90"]) == "fma"
    assert instruction(large, PRODUCTS[5], TARGETS["sm_100"]) == "fma"
    assert units["sm_120"] == "mma"
    assert instruction(large, PRODUCTS[5], TARGETS["sm_120"]) == "fma"


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.kind)
def test_candidates_fit(product: Product, target: Target) -> None:
    tiles = fallback_tiles(product, target, 0, 256)
    assert tiles and all(fits(one, product, target) for one in tiles)


def test_nearest_fitting_fits_and_is_no_larger() -> None:
    target, large = TARGETS["sm_86"], tile(256, 256, 128, 5, 8)
    near = nearest_fitting(large, lambda one: fits(one, HALF, target))
    assert near is not None and fits(near, HALF, target)
    assert near.m <= large.m and near.n <= large.n and near.k <= large.k


DESCRIBED = replace(tile(128, 128, 64, 4, 4), schedule="tma")
POINTERS = tile(128, 128, 64, 4, 4)
SPECIALIZED = replace(tile(128, 128, 64, 4, 8), schedule="warp_specialized")
GEMV = Tile(1, 2, 1024, 8, 1, 4, "gemv")


def test_registers_are_the_accumulator_and_what_addresses_take() -> None:
    assert accumulator_registers(POINTERS, HALF) == 128 * 128 // 128
    assert registers(POINTERS, HALF) == 128 + 72
    assert registers(DESCRIBED, HALF) == 128 + 26
    assert registers(SPECIALIZED, HALF) == 168
    assert registers(GEMV, HALF) == 2 * 1024 // 128 + 56
    double = accumulator_registers(POINTERS, Product("fp64", 8, 8))
    assert double == 2 * accumulator_registers(POINTERS, HALF)
    assert accumulator_registers(replace(POINTERS, warps=8), HALF) == 64


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_registers_are_what_a_thread_may_have(schedule: str) -> None:
    for m, n, warps in ((16, 16, 4), (64, 256, 4), (256, 256, 4), (256, 256, 8)):
        size = replace(tile(m, n, 64, 3, warps), schedule=schedule)
        assert 24 < registers(size, HALF) <= 255


def test_programs_on_an_sm_are_held_by_what_they_need_most_of() -> None:
    target = TARGETS["sm_90"]
    # 64 KiB a block and one for the system: three in 228 KiB.
    assert shared_memory(tile(64, 64, 64, 4, 4), HALF, target) == 65_536
    assert resident(tile(64, 64, 64, 4, 4), HALF, target) == 3
    # 32 registers of sums and 72 more, in 128 threads: four in 65536.
    assert resident(tile(64, 64, 64, 1, 4), HALF, target) == 65_536 // (104 * 128) == 4
    assert resident(tile(16, 16, 16, 1, 16), HALF, target) == 65_536 // (73 * 512) == 1
    # 1536 threads, 24 programs, where others have 2048 and 32.
    assert residents(tile(16, 16, 16, 1, 4), HALF, TARGETS["sm_89"]) == {
        "shared memory": 102_400 // (1024 + 1024), "registers": 65_536 // (74 * 128),
        "threads": 12, "programs": 24,
    }  # fmt: skip
    assert residents(GEMV, HALF, TARGETS["sm_86"])["programs"] == 16
    # All a block may have is all that there is.
    assert resident(tile(128, 256, 64, 4, 8), HALF, target) == 1


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.kind)
def test_what_is_resident_fits_together(product: Product, target: Target) -> None:
    for m, n, k, stages, schedule in product_of(
        (16, 64, 128), (16, 64, 256), (16, 64), (1, 3, 6), ("tiled", "tma", "split_k")
    ):
        size = Tile(m, n, k, 8, stages, 4, schedule, FILL if schedule != "tiled" else 1)
        if not fits(size, product, target):
            continue
        count = resident(size, product, target)
        taken = shared_memory(size, product, target) + target.reserved_per_block
        assert count >= 1
        assert count * taken <= target.shared_per_sm
        if count > 1:
            assert count * threads(size) * registers(size, product) <= 65_536
        deeper = replace(size, stages=stages + 1)
        assert resident(deeper, product, target) <= count
        assert shared_memory(deeper, product, target) >= taken - 1024
