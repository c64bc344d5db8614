"""Consumers that share a tile: how it is cut, what compiles, what is refused."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmgen import api
from gemmgen.base.errors import SpecErrors
from gemmgen.cost.resources import fits, shared_memory, threads, why_not_compiled
from gemmgen.hardware.targets import TARGETS
from gemmgen.render.names.parts import file_of
from gemmgen.schedules.parts.consumers import multiplies_in_one
from gemmgen.schedules.parts.tile import FILL, Tile
from gemmgen.schedules.warp_specialized import consumers, takes_turns
from gemmgen.select.plan import Plan, load
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.tuning.trials.candidates import searched
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from gemmgen.verification.machine.compiled import check_tile
from tests import folders

TARGET = TARGETS["sm_90"]
SPEC = """\
gemmgen: 1
targets: [sm_90]
defaults: {{op: gemm, dtype: bf16, layout: {layout}, schedule: warp_specialized}}
kernels:
  - {{name: plain}}
  - name: fused
    epilogue: c = silu(acc + bias[n] + row[m]) + residual[m, n]
"""
TILES = [
    Tile(m, n, 64, 8, stages, warps, "warp_specialized")
    for m, n, stages, warps in (
        (128, 128, 5, 4),
        (256, 128, 3, 8),
        (128, 192, 4, 12),
        (64, 192, 6, 12),
        (128, 192, 2, 12),
    )
]


IN_PARTS = [
    Tile(m, n, 64, 8, stages, warps, "warp_specialized", 2)
    for m, n, stages, warps in (
        (128, 128, 5, 4),
        (72, 64, 10, 4),
        (104, 128, 5, 8),
        (64, 192, 6, 12),
        (136, 192, 3, 12),
        (256, 192, 2, 12),
    )
]


def built(folder: Path, layout: str = "NT") -> Iterator[tuple[Plan, Any]]:
    """The plans of SPEC in a layout, each with its kernel."""
    path = folder / "spec.yaml"
    path.write_text(SPEC.format(layout=layout), encoding="utf-8")
    api.build([path])
    for plan in load(path):
        module = subject.load(folder / "generated" / file_of(plan))
        yield plan, jit_function(module, plan, "warp_specialized")


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tiles_of_every_number_of_consumers_compile(
    layout: str, tmp_path: Path
) -> None:
    """With the room that was predicted and wgmma, hardly a spill, in every layout."""
    for plan, kernel in built(tmp_path, layout):
        for tile in TILES:
            assert fits(tile, plan.product, TARGET)
            assert why_not_compiled(tile, plan.product, TARGET) is None
            made = check_tile(plan, kernel, TARGET, tile)
            assert not made.problems
            assert 0 <= made.predicted_bytes - made.shared_bytes <= 128


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_of_k_have_the_room_that_was_predicted(
    layout: str, tmp_path: Path
) -> None:
    for plan, kernel in built(tmp_path, layout):
        for tile in IN_PARTS:
            if why_not_compiled(tile, plan.product, TARGET) is None:
                made = compile_aligned(plan, kernel, TARGET, tile)
                has_room(plan, tile, made.metadata.shared)


@pytest.mark.parametrize("tile", IN_PARTS[::3])
def test_parts_of_k_take_no_more_room_than_predicted(
    tile: Tile, tmp_path: Path
) -> None:
    plan, kernel = next(built(tmp_path))
    made = compile_aligned(plan, kernel, TARGET, tile)
    has_room(plan, tile, made.metadata.shared)


def has_room(plan: Plan, tile: Tile, taken: int) -> None:
    """As much is predicted, and hardly more; a third one's count begins 128 bytes.

    And pieces that are multiplied in one are not passed each.
    """
    most = 128 * (consumers(tile) - 1) + 64 * multiplies_in_one(tile, plan.product)
    assert 0 <= shared_memory(tile, plan.product, TARGET) - taken <= most


@pytest.mark.parametrize(
    "tile",
    [
        Tile(200, 128, 64, 8, 4, 8, "warp_specialized", 2),
        Tile(72, 64, 64, 8, 10, 4, "warp_specialized", 4),
    ],
)
def test_parts_of_k_compile_without_a_spill(tile: Tile, tmp_path: Path) -> None:
    """Kept and summed by 16 bytes a thread, with the room that was predicted."""
    plan, kernel = next(built(tmp_path))
    made = check_tile(plan, kernel, TARGET, tile)
    assert not made.problems and not made.spilled_bytes
    assert 0 <= made.predicted_bytes - made.shared_bytes <= 128
    ptx = compile_aligned(plan, kernel, TARGET, tile).asm["ptx"]
    vectors = 2 * tile.m * tile.n // tile.warpgroups // (4 * 128)  # of two consumers
    assert ptx.count("st.global.v4.b32") == vectors
    assert ptx.count("ld.global.cg.v4.b32") == vectors
    assert len(re.findall(r"\batom\.\S*acq_rel", ptx)) == 2


def test_k_in_one_part_costs_nothing(tmp_path: Path) -> None:
    plan, kernel = next(built(tmp_path))
    ptx = compile_aligned(plan, kernel, TARGET, TILES[1]).asm["ptx"]
    assert "atom" not in ptx and "global.v4" not in ptx and "ctaid.y" not in ptx


def test_parts_of_three_consumers_are_not_tuned() -> None:
    """For they spill."""
    plan = next(one for one in load(folders.ROOT / "spec.yaml") if one.specialized)
    parted = [
        tile for tile in searched(plan, TARGET)
        if tile.schedule == "warp_specialized" and tile.split_k != 1
    ]  # fmt: skip
    assert parted and {tile.warpgroups for tile in parted} == {1, 2}
    assert {tile.split_k for tile in parted} == {FILL, 2 * FILL}


def test_consumers_are_two_at_least_and_one_warpgroup_loads() -> None:
    found = [(one.warpgroups, consumers(one), takes_turns(one)) for one in TILES[:3]]
    assert found == [(1, 2, True), (2, 2, False), (3, 3, False)]
    assert [threads(one) for one in TILES[:3]] == [384, 384, 512]


@pytest.mark.parametrize(
    "tile",
    [
        "{m: 64, n: 64, k: 64, warps: 8}",
        "{m: 32, n: 32, k: 64, warps: 4}",
        "{m: 64, n: 64, k: 64, warps: 2}",
        "{m: 64, n: 256, k: 64, warps: 16}",
    ],
)
def test_tiles_that_cannot_be_shared_are_refused_with_what_can(
    tile: str, tmp_path: Path
) -> None:
    path = tmp_path / "spec.yaml"
    text = SPEC.format(layout="NT").replace("plain}", f"plain, tiles: [{tile}]}}")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(
        SpecErrors, match="n or m into a part of 64, 128 or 256 for every"
    ):
        api.build([path])
    assert not (tmp_path / "generated").exists()
