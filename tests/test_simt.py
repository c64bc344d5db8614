"""Multiply-adds of fp32: what the schedule serves, how a sum is spread over threads.

And that faults of its copies, stages and edges are found with no GPU.
"""

import ast
import math
from pathlib import Path

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.hardware.targets import TARGETS
from gemmgen.output.alone import shared_texts
from gemmgen.render.names.parts import SIMT as SHARED
from gemmgen.render.names.parts import file_of
from gemmgen.runtime.pipeline.simt import (
    row_layout,
    rows_cut,
    shared_layout,
    sum_layout,
)
from gemmgen.schedules import SCHEDULES
from gemmgen.schedules.parts.tile import Product, Tile
from gemmgen.select.plan import Plan
from gemmgen.tables.layouts import LAYOUTS
from gemmgen.verification.faults.multiply_adds import multiply_add_families
from gemmgen.verification.mutate.host_mutants import device_mutants
from gemmgen.verification.mutate.shared_trial import callers_of, trial_plans, written
from gemmgen.verification.run.pool import run_properties
from tests import folders
from tests.test_tf32 import built

SIMT = SCHEDULES["simt"]
TILES = [
    *((256, 128, 8), (128, 256, 8), (128, 128, 8), (128, 128, 4), (64, 128, 4)),
    *((128, 64, 4), (64, 64, 4), (32, 128, 4), (32, 64, 4), (16, 128, 4), (16, 64, 4)),
]


def made(folder: Path, entry: str) -> Plan:
    """The plan of a kernel for sm_90."""
    text = f"gemmgen: 1\ntargets: [sm_90]\nkernels:\n  - {{name: one, {entry}}}\n"
    return built(folder, text)["one"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("target", TARGETS)
def test_fp32_has_it_unless_a_spec_says_otherwise(
    layout: str, target: str, tmp_path: Path
) -> None:
    plans = built(
        tmp_path,
        f"gemmgen: 1\ntargets: [{target}]\nkernels:\n"
        f"  - {{name: one, op: gemm, layout: {layout}, dtype: fp32}}\n",
    )
    assert "simt" in plans["one"].schedules


def test_alone_it_leaves_nothing_to_others_but_what_it_does_not_hold(
    tmp_path: Path,
) -> None:
    plan = made(tmp_path, "op: linear, dtype: fp32, schedule: simt")
    assert set(plan.schedules) == {"simt", "tiled"}


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        ("dtype: bf16", "bf16 has a tensor core, simt has multiply-adds"),
        ("dtype: fp32, precision: tf32", "tf32 has a tensor core"),
        ("dtype: fp32, precision: tf32x3", "tf32x3 has a tensor core"),
        ("dtype: fp64", "fp64 has a tensor core"),
    ],
)
def test_what_tensor_cores_multiply_is_refused(
    dtype: str, says: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecErrors, match=says):
        made(tmp_path, f"op: linear, {dtype}, schedule: simt")


def test_a_ring_of_one_stage_is_refused(tmp_path: Path) -> None:
    listed = "schedule: simt, tiles: [{m: 64, n: 64, k: 32, stages: 1}]"
    with pytest.raises(SpecErrors, match="copies ahead: stages must be 2 or more"):
        made(tmp_path, f"op: linear, dtype: fp32, {listed}")


@pytest.mark.parametrize(("m", "n", "warps"), TILES)
@pytest.mark.parametrize("along_k", [(True, True), (True, False), (False, False)])
def test_threads_have_as_many_rows_as_columns_or_twice_as_many(
    m: int, n: int, warps: int, along_k: tuple[bool, bool]
) -> None:
    layout = sum_layout(m, n, warps, *along_k)
    assert math.prod(layout.warps_per_cta) == warps
    assert math.prod(layout.threads_per_warp) == 32
    rows, columns = (
        side // (groups * lanes)
        for side, groups, lanes in zip(
            (m, n), layout.warps_per_cta, layout.threads_per_warp, strict=True
        )
    )
    assert rows * columns == m * n // (32 * warps)
    assert max(rows, columns) <= 2 * min(rows, columns)
    assert layout.size_per_thread == [1 if one else 4 for one in along_k]


def test_squares_are_halved_along_columns_first() -> None:
    assert [rows_cut(64, 64, parts) for parts in (1, 2, 4, 8)] == [1, 1, 2, 2]
    assert rows_cut(256, 64, 4) == 4 and rows_cut(64, 256, 4) == 1


@pytest.mark.parametrize("block_k", [16, 32, 64])
def test_eight_rows_along_k_have_an_element_in_all_banks(block_k: int) -> None:
    """Each reads 16 bytes of the same K: of 128 bytes, which is what banks are."""
    layout = shared_layout(block_k, True)
    for chunk in range(block_k // layout.vec):
        places = set()
        for row in range(8):
            phase = row // layout.per_phase % layout.max_phase
            at = row * block_k + (chunk ^ phase) * layout.vec
            places.add(at % 32 // layout.vec)
        assert len(places) == 8


@pytest.mark.parametrize("columns", [16, 32, 64, 128, 256])
def test_a_row_is_copied_16_bytes_a_thread(columns: int) -> None:
    layout = row_layout(columns, 4)
    assert layout.size_per_thread == [1, 4] and layout.warps_per_cta == [4, 1]
    assert layout.threads_per_warp[1] * 4 == min(columns, 128)


@pytest.mark.parametrize(
    ("layout", "tile", "spills"),
    [
        ("NT", (128, 256, 2, 8), True),
        ("TT", (128, 256, 3, 8), True),
        ("TT", (128, 256, 2, 8), False),
        ("TN", (64, 128, 2, 4), True),
        ("TN", (64, 128, 3, 4), False),
        ("NT", (128, 128, 3, 8), False),
    ],
)
def test_tiles_that_spill_are_known(
    layout: str, tile: tuple[int, int, int, int], spills: bool
) -> None:
    m, n, stages, warps = tile
    one = Tile(m, n, 32, 8, stages, warps, "simt")
    assert SIMT.spills(one, Product("ieee", 4, 4, layout=layout)) == spills


# -- faults ----------------------------------------------------------------------------


def test_every_kind_of_fault_is_made_of_some_text() -> None:
    """A pattern that the text outgrew would make no mutants and kill none."""
    plan, file = callers_of(SHARED, "multiply_add")[0]
    assert file is not None
    own = folders.rendered(plan)[file_of(plan, file)]
    nodes = [
        node
        for text in (shared_texts()[SHARED], own)
        for node in ast.walk(ast.parse(text))
    ]
    never = [
        (number, family)
        for number, (family, edit) in enumerate(multiply_add_families())
        if all(edit(node) is None for node in nodes)
    ]
    assert never == []


def test_a_mutant_of_each_kind_dies(tmp_path: Path) -> None:
    first = {}
    for function, mutant in device_mutants(
        trial_plans()[0], SHARED, shared_texts()[SHARED]
    ):
        if not mutant.equivalent:
            first.setdefault(mutant.family, (function, mutant))
    assert len(first) > 20
    tried = [
        (family, written(tmp_path / f"{family}{plan.name}", plan, changed, file=file))
        for family, (function, mutant) in first.items()
        for changed in [{SHARED: mutant.source}]
        for plan, file in callers_of(SHARED, function)
    ]
    outcomes = run_properties([one for _, one in tried], "cpu", "quick", seed=1)
    found = {
        family
        for (family, _), outcome in zip(tried, outcomes, strict=True)
        if not outcome.ok
    }
    assert set(first) - found == set()


def test_a_healthy_text_passes(tmp_path: Path) -> None:
    subjects = [
        written(tmp_path / plan.name, plan, {}, file=file)
        for plan, file in callers_of(SHARED, "multiply_add")
    ]
    outcomes = run_properties(subjects, "cpu", "quick", seed=1)
    assert [one.detail for one in outcomes if not one.ok] == []
