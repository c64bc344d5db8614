"""Generated kernels are right in every order; faults that keep their parts in step die.

What a single fault does, the self-test shows for every kernel.
"""

import ast
import json
from itertools import islice
from pathlib import Path

import pytest

from gemmgen.output.alone import shared_texts
from gemmgen.render.names.parts import ROLES, file_of
from gemmgen.verification.faults.pipelines import pipeline_families
from gemmgen.verification.gluon.policies import POLICIES
from gemmgen.verification.mutate.shared_trial import trial_plans
from tests import folders, forked
from tests.slow import all_but

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("gluon_kernels.py")
KERNEL = "linear_bias_silu_residual"
KERNELS = (KERNEL, "gemm_nn_tf32", "linear_gelu_aux")
SPECIALIZED = "warp_specialized"

FAULTS: dict[str, list[list[str]]] = {
    "the last K block is lost": [
        ["first_k + K, BLOCK_K)", "first_k + K - BLOCK_K, BLOCK_K)"],
        ["k_blocks = tl.cdiv(K, BLOCK_K)", "k_blocks = tl.cdiv(K, BLOCK_K) - 1"],
    ],
    "part of a K block is lost": [
        ["first_k + K, BLOCK_K)", "first_k + K - BLOCK_K + 1, BLOCK_K)"],
        ["k_blocks = tl.cdiv(K, BLOCK_K)", "k_blocks = K // BLOCK_K"],
    ],
    "the last tile is lost": [
        ["tl.cdiv(N, BLOCK_N)\n", "tl.cdiv(N, BLOCK_N) - 1\n"],
    ],
    "tiles beyond the second column are lost": [
        ["tl.cdiv(N, BLOCK_N)", "min(tl.cdiv(N, BLOCK_N), 2)"],
    ],
    "a ring of one stage": [["% STAGES", "% 1"], ["// STAGES", "// 1"]],
    "rounded before the epilogue": [
        ["epilogue(acc, ", "epilogue(acc.to(tl.bfloat16).to(tl.float32), "],
    ],
}

TURNED = "gemm_nn_bf16"
OF_TURNED: dict[str, list[list[str]]] = {
    "steps along K of a half": [["16 * 128, 1)", "8 * 128, 1)"]],
    "not transposed": [["(16 * 128, 1)", "(16 * 128, 0)"]],
    "taken to lie along K": [["if left_along_k else", "if True else"]],
    "the first consumer's": [["(consumer * rows + row)", "row"]],
}
"""Of a left side in one that lies along its rows."""


def ran(*arguments: str) -> list[dict[str, str]]:
    done = forked.python(ROOT, SCRIPT, *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


EVERY, FEW = len(POLICIES), 2


@pytest.mark.parametrize(
    ("name", "orders"),
    all_but(
        {("gemm_nn_tf32", FEW)},
        [("gemm_nn_tf32", FEW), *((name, EVERY) for name in KERNELS)],
    ),
)
def test_kernels_are_right_in_every_order(name: str, orders: int) -> None:
    found = ran("orders", name, str(orders))
    assert [one["said"] for one in found] == [""] * orders
    # Of 16 bits there are tiles too whose rows are cut, three whose sides are in one
    # along K, five that may not be, and one that two CTAs share.
    runs = {"gemm_nn_tf32": "19", "linear_gelu_aux": "43", KERNEL: "43"}
    assert {one["runs"] for one in found} == {runs[name]}


def test_faults_of_all_parts_at_once_are_found() -> None:
    """Parts that agree leave barriers as they should be; the numbers tell."""
    found = {
        one["name"]: one["said"] for one in ran("faults", KERNEL, json.dumps(FAULTS))
    }
    assert list(found) == list(FAULTS)
    assert all(said.startswith("failed: ") for said in found.values()), found


@pytest.mark.parametrize("most", all_but({1}, [1, len(OF_TURNED)]))
def test_faults_of_a_side_that_is_transposed_are_found(most: int) -> None:
    planted = dict(islice(OF_TURNED.items(), most))
    found = ran("faults", TURNED, json.dumps({"none": [], **planted}))
    said = {one["name"]: one["said"] for one in found}
    assert not said.pop("none")
    assert list(said) == list(planted)
    assert all(said.values()), said


@pytest.mark.slow
def test_a_mutant_of_each_kind_dies() -> None:
    found = ran("kinds", KERNEL)
    assert len(found) > 50
    # Its one operand [m, n] cannot be taken for another, and its result lies there.
    alive = [one["name"] for one in found if not one["said"]]
    assert alive == ["tile written before the wait", "operand of another"]


def test_every_kind_of_fault_is_made_of_some_kernel() -> None:
    """A pattern that the template outgrew would make no mutants and kill none."""
    specialized = [plan for plan in trial_plans() if plan.specialized]
    texts = [shared_texts()[name] for name in ROLES]
    texts += [folders.rendered(one)[file_of(one, SPECIALIZED)] for one in specialized]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    never = [
        (number, family)
        for number, (family, edit) in enumerate(pipeline_families())
        if all(edit(node) is None for node in nodes)
    ]
    assert never == []
