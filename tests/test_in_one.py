"""Sides that one wgmma multiplies: which tiles have them, and where their ring lies."""

import importlib
import re
from dataclasses import replace
from typing import Any

import pytest

from gemmgen.cost.resources import fits, sides
from gemmgen.hardware.targets import TARGETS
from gemmgen.runtime.sides import (
    box,
    in_one,
    most_columns,
    most_in_one,
    most_stored,
    pieces,
    reserved,
    rows_of_ring,
)
from gemmgen.schedules.parts.consumers import consumers, multiplies_in_one
from gemmgen.schedules.parts.tile import LINE_BYTES, Product, Tile
from gemmgen.select.tuned.tile_text import parse_tile
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from tests.own import OWN
from tests.slow import all_but

TARGET = TARGETS["sm_90"]
BF16 = Product("bf16", 2, 2, 2)


# -- what is compiled ------------------------------------------------------------------


def made_of(name: str, tile: Tile) -> Any:
    """The compiled kernel of a tile that fits."""
    plan = OWN[name]
    assert fits(tile, plan.product, TARGET)
    module = importlib.import_module(f"generated.{name}")
    kernel = jit_function(module, plan, "warp_specialized")
    return compile_aligned(plan, kernel, TARGET, tile)


def wgmmas(ptx: str) -> list[str]:
    """The shape of each."""
    return re.findall(r"wgmma\.mma_async\.sync\.aligned\.(m\d+n\d+k\d+)", ptx)


TEXTS = ("104x128x64 s6 w4", "200x256x64 s3 w8", "192x192x64 s4 w12",
         "128x96x64 s6 w8", "104x128x64 kfill s5 w8")  # fmt: skip
CASES = [
    *(("linear_bf16", text) for text in TEXTS),
    ("linear_bias_silu_residual", "200x128x64 s3 w8"),
    ("linear_bias_silu_residual", "128x144x64 s3 w8"),
    *(("gemm_nn_bf16", text) for text in TEXTS if "x96x" not in text),
    ("gemm_tt_bf16", "128x96x64 s6 w8"),
]
FEW = {*CASES[:4], CASES[-4], CASES[-1]}


@pytest.mark.parametrize(("name", "text"), all_but(FEW, CASES))
def test_one_wgmma_multiplies_what_lies_where_shared_memory_begins(
    name: str, text: str
) -> None:
    """The ring is placed first, and nothing else in it; loads go where wgmma reads.

    A left side that lies along its rows comes in boxes of 64 of them.
    """
    tile = parse_tile(f"warp_specialized {text}")
    assert multiplies_in_one(tile, OWN[name].product)
    left, side = sides(tile, BF16)
    part = left // tile.warpgroups
    made = made_of(name, tile)
    of_part = 4 * (part // 64)
    box_of_left = part if OWN[name].layout == "NT" else 64
    assert wgmmas(made.asm["ptx"]) == [f"m64n{side}k16"] * of_part * consumers(tile)
    ring = 128 * rows_of_ring(left + reserved(side), part, tile.stages)
    constants, loads = placed(made.asm["llir"])
    assert min(constants) == ring
    assert [at for at in loads if at < ring] == [
        *(128 * row for row in range(0, left, box_of_left)),
        *(128 * (tile.stages * left + row) for row in rows_of_boxes(tile)),
    ]


def rows_of_boxes(tile: Tile) -> list[int]:
    """Where the boxes of the shared side begin."""
    _, side = sides(tile, BF16)
    most = most_columns(tile.warpgroups)
    first, rest = box(side, most), pieces(side, most)[-1]
    whole = [*range(0, side - side % first, first)]
    return whole + [side - rest] * (side % first > 0)


GLOBAL = "@global_smem"
OF_GLOBAL = re.compile(
    rf"getelementptr[a-z ]* \(i8, ptr addrspace\(3\) {GLOBAL}, i(?:32|64) (\d+)\)"
)
STEP = re.compile(
    r"(%\S+) = getelementptr[a-z ]* i8, ptr addrspace\(3\) (\S+), i32 ([%\w.]+)"
)
LOAD = re.compile(r"complete_tx::bytes .*?\(i1 \S+, ptr addrspace\(3\) (\S+),")


def placed(llir: str) -> tuple[set[int], list[int]]:
    """Places in shared memory: those that LLVM names, and those of loads.

    The latter of the first stage: what depends on the stage is left out.
    """
    text = OF_GLOBAL.sub(rf"{GLOBAL}+\1", llir)
    steps = {name: (before, by) for name, before, by in STEP.findall(text)}

    def place(name: str) -> int:
        if name in steps:
            before, by = steps[name]
            return place(before) + (int(by) if by.isdigit() else 0)
        assert name.startswith(GLOBAL)
        return int(name.removeprefix(GLOBAL).removeprefix("+") or 0)

    constants = re.findall(rf"{GLOBAL}\+(\d+)", text)
    return {*map(int, constants)}, sorted(map(place, LOAD.findall(text)))


def test_a_shallow_ring_is_multiplied_in_pieces() -> None:
    """One that may not be placed first."""
    tile = parse_tile("warp_specialized 104x128x64 s2 w8")
    assert not multiplies_in_one(tile, OWN["linear_bf16"].product)
    found = wgmmas(made_of("linear_bf16", tile).asm["ptx"])
    assert {*found} == {"m64n64k16", "m64n32k16", "m64n8k16"}


# -- which tiles -----------------------------------------------------------------------


def rings(groups: int, part: int) -> list[tuple[int, int, int]]:
    """The side, the stages and the rows of each ring of a side in one."""
    every = [
        (side, stages, rows_of_ring(part * groups + reserved(side), part, stages))
        for side in range(72, 264, 8)
        for stages in range(1, 13)
    ]
    most = most_in_one(groups)
    return [one for one in every if in_one(one[0], part, most, one[-1])]


@pytest.mark.parametrize("part", [64, 128, 256])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_boxes_begin_at_multiples_of_their_rows(groups: int, part: int) -> None:
    """So that a ring of whole boxes of each kind has them as its elements."""
    left, most, found = part * groups, most_columns(groups), rings(groups, part)
    fits = part <= 128 and part * 72 <= 128 * most_in_one(groups)
    assert bool(found) == fits
    for side, stages, rows in found:
        first, rest = box(side, most), side % box(side, most)
        assert rest in (0, pieces(side, most)[-1])
        assert rows % part == 0 and rows >= stages * (left + reserved(side))
        for stage in range(stages):
            begin = stages * left + stage * reserved(side)
            assert begin % first == reserved(side) % first == rows % first == 0
            assert not rest or (begin + side - rest) % rest == rows % rest == 0


@pytest.mark.parametrize("cuts_columns", [True, False])
@pytest.mark.parametrize("part", [64, 128, 256])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_no_buffer_is_as_large_as_a_ring_of_sides_in_one(
    groups: int, part: int, cuts_columns: bool
) -> None:
    """Triton places the largest first. Consumers store a part of a tile at a time."""
    left = part * groups
    for side, _, rows in rings(groups, part):
        m, n = (side, left) if cuts_columns else (left, side)
        stored = pieces(side, most_stored(m, n, cuts_columns))[0]
        buffer = 4 * stored * part * max(2, groups)  # of fp32
        assert 64 * 1024 < 128 * rows > buffer


IN_ONE = Tile(104, 128, 64, 8, 6, 8, "warp_specialized")
COLUMNS_IN_ONE = Tile(128, 96, 64, 8, 6, 8, "warp_specialized")
LIES_ALONG_K = [
    *(("NN", True, False), ("NT", True, True)),
    *(("TN", False, False), ("TT", False, True)),
]
"""The layout, and whether rows may be in one, and columns: as the right side of what is
multiplied. The left one may lie as it does."""


def test_sides_in_one_are_of_16_bits_along_k() -> None:
    for kind in ("bf16", "fp16"):
        product = Product(kind, 2, 2, 2)
        assert multiplies_in_one(IN_ONE, product)
        assert not multiplies_in_one(replace(IN_ONE, k=32), product)
        assert not multiplies_in_one(replace(IN_ONE, k=128), product)
        for layout, rows, columns in LIES_ALONG_K:
            own = replace(product, layout=layout)
            assert multiplies_in_one(IN_ONE, own) == rows
            assert multiplies_in_one(COLUMNS_IN_ONE, own) == columns
    for kind in ("tf32", "ieee"):
        for k in (16, 32, 64):
            tile = replace(IN_ONE, k=k)
            assert k * 4 != LINE_BYTES or k == 32
            assert not multiplies_in_one(tile, Product(kind, 4, 4, 4))


def test_a_cluster_s_sides_are_in_pieces() -> None:
    tile = Tile(192, 256, 64, 8, 4, 8, "warp_specialized")
    assert multiplies_in_one(tile, BF16)
    assert not multiplies_in_one(replace(tile, ctas=2), BF16)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        *(("200x256x64 s2 w8", True), ("208x256x64 s2 w8", False)),
        *(("192x192x64 s4 w12", True), ("200x192x64 s4 w12", True)),
        *(("208x192x64 s4 w12", False), ("128x128x64 s6 w8", False)),
        *(("104x128x64 s3 w8", True), ("104x128x64 s2 w8", False)),
        *(("128x200x64 s3 w8", True), ("256x208x64 s2 w8", False)),
    ],
)
def test_sums_have_room_in_registers_and_rings_are_large(
    text: str, whole: bool
) -> None:
    """A side that is a power of two is one piece anyway."""
    tile = parse_tile(f"warp_specialized {text}")
    assert multiplies_in_one(tile, BF16) is whole
