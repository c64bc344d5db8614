"""Tiles as text: what is written can be read, what cannot be launched is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.runtime.tile import FILL
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.tile_text import format_tile, parse_tile


@st.composite
def tiles(draw: st.DrawFn) -> Tile:
    schedule = draw(st.sampled_from(list(SCHEDULES)))
    sides = [2 ** draw(st.integers(4, 9)) for _ in range(3)]
    if schedule == "gemv":
        sides = [*draw(st.permutations([1, 2 ** draw(st.integers(0, 6))]))]
        sides.append(2 ** draw(st.integers(4, 11)))
    specialized = schedule == "warp_specialized"
    warps = draw(st.sampled_from((4, 8) if specialized else (1, 2, 4, 8, 16)))
    if specialized:  # one side is cut into slices
        sides[draw(st.integers(0, 1))] = draw(st.sampled_from((16, 32, 64))) * warps
    splits = [FILL, *range(1, 65)] if SCHEDULES[schedule].splits else [1]
    ctas = draw(st.sampled_from((1, 2) if specialized else (1,)))
    if ctas > 1:  # whose columns are cut, and K is whole
        sides[1], splits = draw(st.sampled_from((32, 64))) * warps, [1]
    return Tile(
        *sides,
        draw(st.integers(1, 64)),
        draw(st.integers(1, 12)),
        warps,
        schedule,
        draw(st.sampled_from(splits)),
        ctas=ctas,
    )


@settings(deadline=None)
@given(tiles())
def test_a_tile_is_its_text(tile: Tile) -> None:
    assert parse_tile(format_tile(tile)) == tile


@settings(deadline=None)
@given(tiles(), tiles())
def test_no_two_tiles_have_one_text(one: Tile, other: Tile) -> None:
    assert (format_tile(one) == format_tile(other)) == (one == other)


@pytest.mark.parametrize(
    ("tile", "text"),
    [
        (Tile(128, 256, 64, 8, 3, 8), "tiled 128x256x64 s3 w8"),
        (Tile(64, 64, 128, 8, 5, 4, "tma", FILL), "tma 64x64x128 kfill s5 w4"),
        (
            Tile(64, 64, 64, 8, 4, 4, "split_k", 2 * FILL),
            "split_k 64x64x64 k2fill s4 w4",
        ),
        (Tile(64, 64, 128, 4, 5, 4, "split_k", 3), "split_k 64x64x128 g4 k3 s5 w4"),
        (Tile(1, 2, 1024, 8, 1, 4, "gemv"), "gemv 1x2x1024 s1 w4"),
        (
            Tile(128, 192, 64, 8, 4, 12, "warp_specialized"),
            "warp_specialized 128x192x64 s4 w12",
        ),
        (
            Tile(128, 144, 64, 8, 5, 8, "warp_specialized"),
            "warp_specialized 128x144x64 s5 w8",
        ),
        (
            Tile(192, 256, 64, 8, 5, 8, "warp_specialized", ctas=2),
            "warp_specialized 192x256x64 c2 s5 w8",
        ),
        (
            Tile(256, 256, 64, 2, 4, 8, "warp_specialized", from_side=192, ctas=2),
            "warp_specialized 192-256x256x64 c2 g2 s4 w8",
        ),
        (
            Tile(200, 128, 64, 8, 4, 4, "warp_specialized", FILL, from_side=72),
            "warp_specialized 72-200x128x64 kfill s4 w4",
        ),
        (
            Tile(128, 224, 64, 8, 4, 8, "warp_specialized", FILL, from_side=72),
            "warp_specialized 128x72-224x64 kfill s4 w8",
        ),
    ],
)
def test_the_text_leaves_out_what_is_usual(tile: Tile, text: str) -> None:
    assert format_tile(tile) == text
    assert parse_tile(text) == tile


@pytest.mark.parametrize(
    "text",
    [
        *("", "None", "tma", "tma 64x64x128", "tma 64x64 s5 w4", "tma 64x64x128 s5"),
        *("tma 64x64x128 w4 s5", "tma  64x64x128 s5 w4", "tma 64x64x128 s5 w4 "),
        *("tma 64x64x128 s5 w4\n", "tma 64X64X128 s5 w4", "tma 64x64x-128 s5 w4"),
        *("tma 0x64x128 s5 w4", "tma 064x64x128 s5 w4", "tma ٦٤x64x128 s5 w4"),
        *("tma 64x64x128 s0 w4", "tma 64x64x128 s5 w0", "tma 64x64x128 k0 s5 w4"),
        *(
            "tma 64x64x128 g0 s5 w4",
            "tma 64x64x128 full s5 w4",
            "tma 64x64x128 k3fill s5 w4",
            "tma 16384x64x64 s1 w4",
        ),
        *("tma 64x64x128 c4 s5 w4", "tma 64x64x128 g2 c2 s5 w4"),
        *("tmaa 64x64x128 s5 w4", "TMA 64x64x128 s5 w4", "auto 64x64x128 s5 w4"),
    ],
)
def test_what_is_no_tile(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tile '.*' must be like 'tma 64x64x128 k"):
        parse_tile(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tma 48x64x128 s5 w4", "no power of two"),
        ("tiled 64x64x64 s5 w3", "no power of two"),
        ("warp_specialized 192x192x64 s5 w8", "no side that is 64, 128 or 256 for"),
        ("warp_specialized 128x96x64 s5 w12", "no side that is 64, 128 or 256 for"),
        ("warp_specialized 128x192x192 s2 w12", "no power of two"),
        ("tma 128x192x64 s5 w4", "no power of two"),
        ("tiled 8x64x64 s5 w4", "has a side under 16"),
        ("gemv 2x2x1024 s1 w4", "several rows and columns"),
        ("warp_specialized 128x128x64 s5 w16", "warps must be 4, 8 or 12"),
        ("tiled 64x64x64 k4 s5 w4", "cuts K into parts, which tiled does not"),
        ("persistent 64x64x64 kfill s5 w4", "which persistent does not"),
        ("tma 64x64x128 c2 s5 w4", "is a cluster's, which tma has none of"),
        ("warp_specialized 256x256x64 c2 kfill s4 w8", "or not in parts of K"),
        ("warp_specialized 256x192x64 c2 s4 w8", "no columns that are 64, 128 or 256"),
    ],
)
def test_tiles_that_no_kernel_could_take(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_tile(text)
    assert str(caught.value).startswith(f"tile '{text}' ")


def test_a_long_text_is_cut_and_on_one_line() -> None:
    with pytest.raises(ValueError) as caught:
        parse_tile("tma\n" * 10_000)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
