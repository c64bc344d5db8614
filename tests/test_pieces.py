"""Sides that are sums of powers of two: their pieces, boxes and memory."""

from pathlib import Path

import pytest

from gemmgen.cost.resources import fits, shared_memory, why_not_compiled
from gemmgen.hardware.targets import TARGETS
from gemmgen.output import alone
from gemmgen.runtime.sides import cuts, most_columns, most_stored, pieces
from gemmgen.schedules.parts.consumers import multiplies_in_one
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import plans
from gemmgen.spec.parse import parse
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from tests.slow import all_but

TARGET = TARGETS["sm_90"]
SPEC = """
gemmgen: 1
targets: [sm_90]
defaults: {dtype: bf16, schedule: warp_specialized}
kernels:
  - {name: plain, op: linear}
  - name: fused
    op: linear
    epilogue: |
      pre = acc + bias[n]
      out = silu(pre) + residual[m, n]
    outputs: {out: bf16, pre: fp32}
  - {name: lying, op: gemm, layout: TT}
  - {name: turned, op: gemm, layout: NN, dtype: {a: fp16, out: fp32}}
"""
ALONG_K = [
    *((72, 64, 4), (104, 64, 4), (24, 128, 8), (104, 128, 8), (200, 128, 8)),
    *((248, 128, 8), (256, 128, 8), (136, 192, 12)),
    *((200, 192, 12), (256, 192, 12), (88, 256, 8), (136, 256, 8)),
]
ALONG_M = [(192, 64, 4), (192, 128, 8), (192, 192, 12), (256, 128, 8)]
ALONG_M += [(72, 128, 8), (160, 128, 8), (200, 64, 4)]
OF_ROWS = [
    *((64, 72, 4), (64, 208, 4), (128, 96, 8), (128, 144, 8), (128, 208, 8)),
    *((192, 80, 12), (192, 160, 12), (256, 144, 8)),
]
CASES = [
    *(("plain", *each) for each in ALONG_K),
    *(("fused", *each) for each in ALONG_K[:-4]),
    *(("lying", *each) for each in ALONG_M),
    *((name, *each) for name in ("plain", "turned") for each in OF_ROWS),
    *(("fused", *each) for each in OF_ROWS[:-1]),
]


@pytest.mark.parametrize("side", range(8, 264, 8))
@pytest.mark.parametrize("most", [128, 256])
def test_pieces_are_powers_of_two_whose_sum_a_side_is(side: int, most: int) -> None:
    found = pieces(side, most)
    assert sum(found) == side
    assert list(found) == sorted(found, reverse=True)
    assert all(one & (one - 1) == 0 and 8 <= one <= most for one in found)
    below = [one for one in found if one < most]
    assert len(set(below)) == len(below)  # so that they are as few as may be


def test_three_consumers_multiply_fewer_columns_at_a_time() -> None:
    assert [most_columns(one) for one in (1, 2, 3)] == [256, 256, 128]
    assert pieces(256, most_columns(2)) == (256,)
    assert pieces(256, most_columns(3)) == (128, 128)
    assert pieces(200, 256) == (128, 64, 8)


@pytest.mark.parametrize(
    ("m", "n", "warps", "axis"),
    [
        *((72, 128, 8, "n"), (128, 128, 8, "n"), (256, 192, 12, "n"), (64, 64, 4, "n")),
        *((128, 144, 8, "m"), (128, 192, 8, "m"), (192, 96, 12, "m"), (64, 96, 4, "m")),
    ],
)
def test_columns_are_cut_where_they_can_be(
    m: int, n: int, warps: int, axis: str
) -> None:
    assert launched(m, n, warps).cut_axis == axis
    assert cuts(n if axis == "n" else m, warps // 4)
    assert not cuts(192, 2) and not cuts(512, 1)


def launched(m: int, n: int, warps: int):
    return Tile(m, n, 32, 8, 2, warps, "warp_specialized").launched


@pytest.mark.parametrize(
    ("m", "boxes", "along_k"),
    [
        (64, [64], [64]),
        (128, [128], [128]),
        (256, [256], [256]),
        (24, [16, 8], [16, 8]),
        (104, [32, 8], [32, 8]),
        (160, [128, 32], [32]),
        (176, [32, 16], [32, 16]),
        (192, [128, 64], [64]),
        (200, [64, 8], [32, 8]),
        (248, [16, 8], [16, 8]),
    ],
)
def test_boxes_are_as_large_as_the_smallest_piece_but_one(
    m: int, boxes: list[int], along_k: list[int]
) -> None:
    """What is left has a second box, if its size is another.

    Along K boxes have 32 rows at most, or as many as the side is a multiple of.
    """
    tile = launched(m, 128, 8)
    assert tile.boxes("mk", "n") == tuple((one, 32) for one in along_k)
    assert tile.boxes("km", "n") == tuple((32, one) for one in boxes)


def test_what_consumers_share_is_cut_into_their_parts() -> None:
    tile = launched(104, 192, 12)
    assert tile.boxes("nk", "n") == ((64, 32),)
    assert tile.boxes("kn", "n") == ((32, 64),)
    assert tile.boxes("mn", "n") == ((32, 64), (8, 64))
    assert launched(192, 104, 12).boxes("mn", "m") == ((64, 32), (64, 8))
    # A part is whole, also of as many rows as are not stored at a time.
    assert launched(64, 256, 4).boxes("mn", "n", beside=True) == ((64, 256),)
    assert launched(64, 768, 12).boxes("nk", "n") == ((256, 32),)


def test_what_is_stored_has_boxes_of_as_many_rows_as_are_stored_at_a_time() -> None:
    tile = launched(256, 128, 8)
    assert tile.boxes("mk", "n") == ((256, 32),)
    assert tile.boxes("mn", "n", beside=True) == ((128, 64),)
    assert launched(128, 256, 8).boxes("mn", "m", beside=True) == ((64, 64),)


@pytest.mark.parametrize(
    ("m", "n", "warps", "stored"),
    [
        *((128, 128, 8, 128), (256, 128, 8, 128), (160, 128, 8, 64)),
        *((128, 192, 12, 32), (128, 256, 8, 32)),
    ],
)
def test_larger_tiles_are_stored_in_smaller_parts(
    m: int, n: int, warps: int, stored: int
) -> None:
    """8192 elements at a time, if a ring has a stage more for that."""
    assert most_stored(m, n, cuts_columns=True) == stored
    assert launched(m, n, warps).boxes("mn", "n", beside=True)[0][0] == stored


def test_columns_come_in_pieces_where_rows_are_cut() -> None:
    """Pieces of several lines of 128 bytes, and a second box for what is left."""
    tile = launched(128, 208, 8)
    assert tile.boxes("mk", "m") == ((64, 32),)
    assert tile.boxes("nk", "m") == ((32, 32), (16, 32))
    assert tile.boxes("kn", "m") == ((32, 64), (32, 16))
    assert tile.boxes("mn", "m", beside=True) == ((64, 64), (64, 16))
    assert launched(192, 144, 12).boxes("mn", "m", beside=True) == ((64, 64), (64, 16))
    assert launched(64, 32, 4).boxes("mn", "m", beside=True) == ((64, 32),)


def test_tiles_that_nobody_shares_are_moved_whole() -> None:
    assert launched(104, 128, 8).boxes("mk") == ((104, 32),)
    assert launched(64, 128, 8).boxes("mn") == ((64, 128),)


@pytest.mark.parametrize("m", [*range(8, 264, 8)])
@pytest.mark.parametrize(("n", "warps"), [(64, 4), (128, 8), (192, 12)])
def test_every_piece_is_a_multiple_of_a_box(m: int, n: int, warps: int) -> None:
    """Of the first, but for the last piece, which may have a box of its own."""
    tile = launched(m, n, warps)
    stored = most_stored(m, n, cuts_columns=True)
    for beside, most in ((False, most_columns(warps // 4)), (True, stored)):
        first, *rest = tile.boxes("mn", "n", beside)
        *larger, last = pieces(m, most)
        assert all(one % first[0] == 0 for one in larger)
        assert last == (rest[0] if rest else first)[0]
        assert len(rest) == (bool(larger) and larger[-1] != last)


@pytest.mark.parametrize("m", [*range(8, 264, 8)])
@pytest.mark.parametrize(("n", "warps"), [(64, 4), (128, 8), (192, 12)])
def test_every_piece_is_a_multiple_of_a_box_along_k(m: int, n: int, warps: int) -> None:
    """There a last piece that is a multiple of it too has no box of its own."""
    first, *rest = launched(m, n, warps).boxes("mk", "n")
    *larger, last = pieces(m, most_columns(warps // 4))
    assert all(one % first[0] == 0 for one in larger)
    assert last == (rest[0] if rest else first)[0]
    assert len(rest) == (m % first[0] > 0)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory):
    """By name, each kernel with its plan."""
    made = {}
    for plan in plans(parse(SPEC.encode(), "spec.yaml")):
        folder = tmp_path_factory.mktemp(plan.name)
        module = subject.load(alone.written(folder, plan, "spec.yaml"))
        made[plan.name] = plan, jit_function(module, plan, "warp_specialized")
    return made


FEW = {
    *(("plain", 104, 64, 4), ("fused", 200, 128, 8), ("plain", 256, 192, 12)),
    *(("fused", 256, 128, 8), ("lying", 192, 128, 8), ("lying", 72, 128, 8)),
    *(("plain", 128, 144, 8), ("fused", 128, 208, 8), ("turned", 192, 160, 12)),
}


@pytest.mark.parametrize(("name", "m", "n", "warps"), all_but(FEW, CASES))
def test_tiles_of_pieces_take_the_memory_predicted(
    name: str, m: int, n: int, warps: int, kernels
) -> None:
    """Never more: who is let in by the prediction must find room."""
    plan, kernel = kernels[name]
    tile = Tile(m, n, 32, 8, 2, warps, "warp_specialized")
    assert fits(tile, plan.product, TARGET)
    assert why_not_compiled(tile, plan.product, TARGET) is None
    real = compile_aligned(plan, kernel, TARGET, tile).metadata.shared
    assert 0 <= shared_memory(tile, plan.product, TARGET) - real <= 512


IN_ONE = [
    *((104, 128, 3, 8), (200, 128, 3, 8), (136, 192, 3, 12), (88, 256, 3, 8)),
    *((104, 128, 3, 4), (72, 64, 4, 4), (128, 144, 3, 8), (192, 96, 3, 12)),
]
CASES_IN_ONE = [(name, *each) for name in ("plain", "fused") for each in IN_ONE]
FEW_IN_ONE = {
    *(("plain", 104, 128, 3, 4), ("plain", 136, 192, 3, 12)),
    *(("fused", 200, 128, 3, 8), ("fused", 88, 256, 3, 8), ("fused", 128, 144, 3, 8)),
}


@pytest.mark.parametrize(
    ("name", "m", "n", "stages", "warps"), all_but(FEW_IN_ONE, CASES_IN_ONE)
)
def test_tiles_in_one_take_the_memory_predicted(
    name: str, m: int, n: int, stages: int, warps: int, kernels
) -> None:
    """Stages of their ring have whole boxes, and the ring has whole slices."""
    plan, kernel = kernels[name]
    tile = Tile(m, n, 64, 8, stages, warps, "warp_specialized")
    assert multiplies_in_one(tile, plan.product)
    assert fits(tile, plan.product, TARGET)
    assert why_not_compiled(tile, plan.product, TARGET) is None
    real = compile_aligned(plan, kernel, TARGET, tile).metadata.shared
    assert 0 <= shared_memory(tile, plan.product, TARGET) - real <= 512


@pytest.mark.parametrize(
    ("m", "n"), [(16, 128), (24, 128), (200, 128), (256, 128), (128, 144), (256, 72)]
)
def test_a_spec_may_list_them(m: int, n: int, tmp_path: Path) -> None:
    """In the schedule whose kernels compose their sides."""
    spec = SPEC.replace(
        "op: linear}", f"op: linear, tiles: {{m: {m}, n: {n}, k: 32, warps: 8}}}}"
    )
    plan = plans(parse(spec.encode(), "spec.yaml"))[0]
    found = [tile for _, tile in plan.tiles if tile.schedule == "warp_specialized"]
    assert [(tile.m, tile.n, tile.k) for tile in found] == [(m, n, 32)]
