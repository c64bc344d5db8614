"""Which of a kernel's tiles the quick profile compiles."""

from collections import Counter

import pytest

from gemmgen.cost.resources import shared_memory
from gemmgen.schedules.parts.memory import accumulator_registers
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.basics.profiles import PROFILES
from gemmgen.verification.machine.sample import sample
from gemmgen.verification.report import Verification
from tests.own import OWN

NAMES = ("linear_bf16", "gemm_tt_fp32", "study_matmul")


def groups(tiles) -> Counter[tuple[str, str]]:
    return Counter((target.name, tile.schedule) for target, tile in tiles)


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_tile_of_each_schedule_and_target_and_some_more(name: str) -> None:
    plan = OWN[name]
    chosen = sample(plan.tiles, plan.product, 3, "7")
    there = groups(plan.tiles)
    assert len(set(chosen)) == len(chosen) == len(there) + 3
    assert set(chosen) <= set(plan.tiles)
    assert set(groups(chosen)) == set(there)
    for target, tile in plan.tiles:
        sums = [
            accumulator_registers(one, plan.product)
            for where, one in chosen
            if (where, one.schedule) == (target, tile.schedule)
        ]
        assert max(sums) >= accumulator_registers(tile, plan.product)


def test_of_tiles_with_as_many_sums_the_one_with_most_shared_memory() -> None:
    plan = OWN["linear_bf16"]
    alone = {}
    for target, tile in sample(plan.tiles, plan.product, 0, "7"):
        alone[target, tile.schedule] = tile
    for target, tile in plan.tiles:
        largest = alone[target, tile.schedule]
        sums, most = (accumulator_registers(x, plan.product) for x in (tile, largest))
        room, least = (shared_memory(x, plan.product, target) for x in (tile, largest))
        assert sums < most or room <= least


def test_a_seed_draws_the_same_and_seeds_together_all() -> None:
    plan = OWN["linear_bf16"]
    seen = set()
    for seed in range(100):
        chosen = sample(plan.tiles, plan.product, 12, str(seed))
        seen.update(chosen)
    assert chosen == sample(plan.tiles, plan.product, 12, str(seed))
    assert seen == set(plan.tiles)


def test_other_profiles_compile_all() -> None:
    plan = OWN["linear_bf16"]
    for profile in ("ci", "deep"):
        some = PROFILES[profile].compiled
        assert sample(plan.tiles, plan.product, some, "7") == plan.tiles
    assert PROFILES["quick"].compiled == 1


def test_a_report_says_of_how_many_tiles_some_were_compiled() -> None:
    some = Outcome("one", "compiled", "none", "passed", examples=27, out_of=131)
    whole = Outcome("two", "compiled", "none", "passed", examples=9, out_of=9)
    told = Verification((some, whole), {}, 1.0)
    assert "27 of 131 tiles" in told.as_text()
    assert "  9 tiles" in told.as_text()
    assert "| one | compiled | none | passed | 27 of 131 |" in told.as_markdown()
    assert "| two | compiled | none | passed | 9 |" in told.as_markdown()
