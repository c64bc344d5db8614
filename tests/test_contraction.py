"""Kernels of several right sides, which an operation's row alone asks for.

`gated_linear` is one, and not for users yet: here its row says that it is.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gemmgen.base.errors import SpecErrors
from gemmgen.benchmark.eager import eager
from gemmgen.cost.time import compulsory
from gemmgen.hardware.targets import TARGETS
from gemmgen.render import render
from gemmgen.schedules.parts.memory import accumulator_registers, ring_memory
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select.plan import Plan, plans
from gemmgen.spec.parse import parse
from gemmgen.tables.operations import OPERATIONS
from gemmgen.tuning.trials.candidates import searched
from gemmgen.verification.oracle.comparison import Block, judged
from gemmgen.verification.oracle.reference import Inputs
from tests import forked

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(OPERATIONS["gated_linear"], built=True)
    monkeypatch.setitem(OPERATIONS, row.name, row)


def planned(more: str = "", targets: str = "[sm_80, sm_90]") -> Plan:
    text = f"gemmgen: 1\ntargets: {targets}\nkernels:\n  - name: mlp\n"
    text += f"    op: gated_linear\n    dtype: bf16\n{more}"
    (plan,) = plans(parse(text.encode(), "spec.yaml"))
    return plan


def error(more: str) -> str:
    with pytest.raises(SpecErrors) as caught:
        planned(more)
    return str(caught.value)


def test_the_row_names_matrices_and_sums() -> None:
    plan = planned()
    assert plan.argument_names == ["x", "w_gate", "w_up"]
    assert [one.role for one in plan.passed] == ["inputs"] * 3 + ["results"]
    assert plan.schedules == ("tiled", "tma", "gemv")
    texts = render.files(plan, "spec.yaml")
    assert "y = silu(x @ w_gate.T) * (x @ w_up.T)" in texts["mlp/__init__.py"]
    assert "def epilogue(gate, up):" in texts["mlp/epilogue.py"]
    assert "        up = tl.dot(w_up, x.T, up)\n" in texts["mlp/tma.py"]


def test_steps_follow_what_the_operation_does_by_default() -> None:
    plan = planned("    epilogue: [bias, residual]\n")
    launcher = render.files(plan, "spec.yaml")["mlp/__init__.py"]
    assert 'epilogue: "silu(gate) * up + bias[n] + residual[m, n]"' in launcher


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("    epilogue: silu(gate)\n", "epilogue never uses 'up', one of the products"),
        ("    epilogue: gate + acc\n", "unknown name 'acc'"),
        ("    epilogue: gate * up + up[n]\n", "'up' is no operand and has no index"),
        ("    epilogue: |\n      up = gate * up\n", "'up' is already a name"),
        ("    schedule: split_k\n", "the parts of a split K meet in one sum"),
        ("    schedule: warp_specialized\n", "its consumers keep one sum"),
        (
            "    tiles: {m: 64, n: 64, k: 64, split_k: 4}\n",
            "parts of a split K meet in one sum, this kernel has one for each side",
        ),
    ],
)
def test_what_several_right_sides_cannot_have_is_said(more: str, says: str) -> None:
    assert says in error(more)


def test_each_right_side_costs_what_the_first_does() -> None:
    product = planned().product
    one, tile = replace(product, rights=1), Tile(64, 32, 64, 8, 3, 4)
    assert accumulator_registers(tile, product) == 2 * accumulator_registers(tile, one)
    assert ring_memory(tile, product, "wgmma", 32) == 3 * (64 + 2 * 32) * 64 * 2
    difference = compulsory((8, 16, 4), product) - compulsory((8, 16, 4), one)
    assert difference == 16 * 4 * 2


def test_no_tile_has_more_sums_than_registers_hold() -> None:
    plan = planned()
    tiles = {tile for _, tile in plan.tiles}
    assert max(accumulator_registers(tile, plan.product) for tile in tiles) <= 128


def test_no_tile_that_is_tuned_splits_k() -> None:
    tried = searched(planned(), TARGETS["sm_90"])
    assert {tile.schedule for tile in tried} == {"tiled", "tma", "gemv"}
    assert {tile.split_k for tile in tried} == {1}


def test_torch_s_own_form_has_a_line_for_each_sum() -> None:
    plan = planned("    epilogue: silu(gate + bias[n]) * up\n")
    assert eager(plan, torch.device("cpu")).text.splitlines() == [
        "gate = F.linear(x, w_gate, bias)",
        "up = F.linear(x, w_up)",
        "y = silu(gate) * up",
        "return y",
    ]


def test_a_lost_block_is_found_in_all_sums() -> None:
    plan = planned("    epilogue: gate * up\n")
    drawn = torch.Generator().manual_seed(0)
    shapes = ((2, 64), (64, 3), (64, 3))
    lhs, *rhs = (torch.randn(one, generator=drawn).bfloat16() for one in shapes)
    left = lhs.float()
    left[:, 32:48] = 0
    got = (left @ rhs[0].float()) * (left @ rhs[1].float())
    inputs = Inputs(lhs, tuple(rhs), {})
    verdict = judged(plan, inputs, [got.bfloat16()], Block(16, 16, 16))
    assert "as if K block 2 (k 32 to 47) were left out" in verdict.fault


SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
import torch
from gemmgen.tables.operations import OPERATIONS
OPERATIONS["gated_linear"] = replace(OPERATIONS["gated_linear"], built=True)
from gemmgen.output import alone
from gemmgen.render import render
from gemmgen.render.names.parts import file_of
from gemmgen.select.plan import load
from gemmgen.verification.cases.cases import Case
from gemmgen.verification.example import one_example, subject
from gemmgen.verification.interpret import interpreter
interpreter.mend()
spec = Path(sys.argv[1])
(plan,) = load(spec)
alone.write(spec.parent, {**alone.shared_texts(), **render.files(plan, "spec.yaml")})
module, cpu = subject.load(spec.parent / file_of(plan)), torch.device("cpu")
for variant in subject.variants(plan, module, cpu):
    for case in (Case((17,), 24, 40), Case((2, 3), 16, 64, "wide")):
        small = variant.cut_to(replace(variant.block, k=32))
        with small.forced(module):
            launcher = subject.launcher(plan, module)
            one_example.run(plan, launcher, case, small.block, cpu)
    print(variant.schedule)
"""


@pytest.mark.slow
def test_kernels_of_all_schedules_compute_it(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(
        "gemmgen: 1\ntargets: [sm_90]\nkernels:\n  - name: mlp\n"
        "    op: gated_linear\n    dtype: bf16\n    epilogue: [bias]\n"
        "    schedule: [tiled, tma, persistent, gemv]\n"
    )
    done = forked.python(ROOT, "-c", SCRIPT, tmp_path / "spec.yaml")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"tiled", "tma", "persistent", "gemv"}
