"""The model's arithmetic, and its shared memory against the compiler's."""

import pytest

from gemmgen.dispatch import candidates, table
from gemmgen.model import (
    Product,
    Tile,
    best_stages,
    fits,
    instruction,
    nearest_fitting,
    predicted_time,
    shared_memory,
)
from gemmgen.targets import TARGETS

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


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.kind)
def test_candidates_fit_and_serve_every_shape(product: Product, target) -> None:
    tiles = candidates(product, target, 0, 256)
    assert tiles and all(fits(one, product, target) for one in tiles)
    rows = table(tiles, product, target)
    assert (rows[-1].m, rows[-1].n) == (None, None)
    assert len(rows) <= 6


def test_stages_are_the_fewest_that_are_as_fast() -> None:
    target, size = TARGETS["sm_90"], tile(128, 256, 64, 2, 8)
    assert best_stages(size, HALF, target) == 3
    assert best_stages(tile(256, 256, 128, 2, 8), HALF, target) == 1
    assert best_stages(tile(256, 256, 256, 2, 8), HALF, target) is None


def test_nearest_fitting_fits_and_is_no_larger() -> None:
    target, large = TARGETS["sm_86"], tile(256, 256, 128, 5, 8)
    near = nearest_fitting(large, HALF, target)
    assert near is not None and fits(near, HALF, target)
    assert near.m <= large.m and near.n <= large.n and near.k <= large.k


def test_time_grows_with_every_size() -> None:
    target, size = TARGETS["sm_90"], tile(128, 128, 64, 3, 8)
    base = predicted_time((1024, 1024, 1024), size, HALF, target)
    for sizes in ((8192, 1024, 1024), (1024, 8192, 1024), (1024, 1024, 8192)):
        assert predicted_time(sizes, size, HALF, target) > base
