"""Rows for shapes that fill the waves of large tiles."""

from dataclasses import replace

import pytest

from gemmgen.hardware.targets import TARGETS
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.tuned.decision_list import ANY, Rule
from gemmgen.select.waves import with_full_waves
from gemmgen.spec.shapes import Shape

H200 = TARGETS["sm_90"]

BIG = Tile(128, 256, 64, 8, 3, 8, "persistent")
WIDE = Tile(128, 192, 64, 8, 4, 12, "warp_specialized")
SMALL_ONE = Tile(128, 128, 64, 8, 3, 4, "tma")


def full_waves(**times: tuple[float, float]) -> list[Rule]:
    """The rows where SMALL_ONE serves all, by what BIG and it take at each shape."""
    rule = Rule((ANY, ANY, ANY), SMALL_ONE)
    measured = {
        Shape(*map(int, name[1:].split("x"))): {BIG: big, SMALL_ONE: small}
        for name, (big, small) in times.items()
    }
    found = with_full_waves([rule], measured, H200, 0.02)
    assert found[-1] == rule
    return found[:-1]


def test_a_row_for_full_waves_comes_before_the_one_that_it_is_faster_than() -> None:
    assert full_waves(_4096x4096x4096=(178.3, 182.7)) == [
        Rule((ANY, ANY, ANY), BIG, full=True)
    ]


@pytest.mark.parametrize(
    "times",
    [
        {"_4096x4096x4096": (182.7, 178.3)},
        {"_4096x4096x4096": (181.0, 182.7)},  # too little
        {"_1000x3000x2000": (10.0, 20.0)},  # 96 tiles for 132 SMs
        {"_4096x4096x4096": (178.3, 182.7), "_8192x8192x8192": (1800.0, 1600.0)},
        {},
    ],
)
def test_what_is_not_faster_in_full_waves_gets_no_row(times: dict) -> None:
    assert full_waves(**times) == []


def test_tiles_whose_waves_are_full_elsewhere_get_a_row_each() -> None:
    """2048x2048 are 128 tiles of BIG, 176 of WIDE; 1000x3000 are 96 and 128."""
    rule = Rule((ANY, ANY, ANY), SMALL_ONE)
    measured = {
        Shape(2048, 2048, 2048): {BIG: 27.3, WIDE: 36.5, SMALL_ONE: 29.0},
        Shape(1000, 3000, 2000): {BIG: 27.6, WIDE: 23.9, SMALL_ONE: 28.6},
    }
    assert with_full_waves([rule], measured, H200, 0.02) == [
        Rule(rule.limits, WIDE, full=True),
        Rule(rule.limits, BIG, full=True),
        rule,
    ]


def test_what_was_too_slow_to_be_remembered_is_not_taken_for_fast() -> None:
    """At the second shape WIDE, whose waves are full there too, has no time."""
    rule, slow = Rule((ANY, ANY, ANY), SMALL_ONE), replace(SMALL_ONE, m=64)
    measured = {
        Shape(8192, 8192, 8192): {WIDE: 1585.0, SMALL_ONE: 1756.0},
        Shape(8192, 1024, 8192): {BIG: 171.4, SMALL_ONE: 183.2, slow: 205.0},
    }
    assert with_full_waves([rule], measured, H200, 0.02) == [
        Rule(rule.limits, BIG, full=True),
        rule,
    ]
