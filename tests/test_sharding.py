"""What an epilogue is linear in, and kernels that two processes share by DTensor."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

from gemmgen.base.errors import Location
from gemmgen.epilogue.checked import Epilogue
from gemmgen.epilogue.expression import spell
from gemmgen.epilogue.linearity import linear_in
from gemmgen.epilogue.parser import compile_epilogue
from gemmgen.output import builder
from tests import forked
from tests.cases import names_in, said_by
from tests.once import asked, once
from tests.slow import all_but

SPEC = """gemmgen: 1
targets: [sm_80]
defaults: {op: linear, dtype: fp64, schedule: tiled, tiles: {m: 16, n: 16, k: 16},
           grad: true}
kernels:
  - {name: up, epilogue: "gelu(acc + bias[n])", module: true}
  - {name: down, epilogue: "acc + bias[n] + r[m, n]", module: true}
  - {name: plain, module: true}
  - {name: adding, epilogue: "gelu(acc + bias[n])", grad_accumulate: true}
  - {name: weighted, epilogue: "alpha[] * acc * s[m]", module: true}
  - {name: rowed, epilogue: "acc * s[m] + t[m]"}
  - name: both
    epilogue: |
      pre = acc + bias[n]
      out = gelu(pre)
    outputs: [out, pre]
  - {name: scaled, op: gemm, layout: NN, epilogue: "alpha[] * acc + beta[] * c[m, n]"}
  - {name: turned, op: gemm, layout: TT, epilogue: "acc * s[n]"}
"""


def checked(text: str) -> Epilogue:
    return compile_epilogue(text, ("acc",), "y", (), lambda _: Location("s", 1, 1))


def found(whole: Epilogue, *results: str) -> tuple[str, ...] | None:
    tensors = [one.name for one in whole.operands if one.axes]
    targets = results or (whole.statements[-1].target,)
    return linear_in(whole.statements, ("acc",), targets, tensors)


LINEAR = {
    "acc": "acc",
    "-acc / s[n]": "acc",
    "2 * acc * alpha[]": "acc",
    "acc + bias[n]": "acc bias",
    "acc - bias[n] * s[m]": "acc bias",
    "acc * s[m] + s[m] * bias[n]": "acc bias",
    "acc + s[m] * bias[n] + s[m] * r[m, n]": "acc s",
    "alpha[] * acc + beta[] * c[m, n]": "acc c",
    "gelu(s[n]) * (acc + bias[n])": "acc bias",
    "where(s[n] > 0, acc, 0)": "acc",
    "where(s[n] > 0, acc, -bias[n])": "acc bias",
    "pre = acc + bias[n]\ny = pre * s[m] - pre": "acc bias",
}


@pytest.mark.parametrize("text", LINEAR)
def test_what_is_linear(text: str) -> None:
    """It adds up: f(x + y, s) = f(x, s) + f(y, s), where x and y are what it names."""
    whole = checked(text)
    names = found(whole)
    assert names is not None and names == tuple(LINEAR[text].split())
    draw = random.Random(0)
    every = ["acc", *(one.name for one in whole.operands)]
    parts = [{name: draw.uniform(-2, 2) for name in every} for _ in range(2)]
    for name in set(every) - set(names):
        parts[1][name] = parts[0][name]
    both = parts[0] | {name: parts[0][name] + parts[1][name] for name in names}
    of_parts = sum(computed(whole, values) for values in parts)
    assert computed(whole, both) == pytest.approx(of_parts, rel=1e-12)


def computed(whole: Epilogue, values: dict[str, float]) -> float:
    """The last statement for such numbers."""
    known: dict[str, object] = {
        "where": lambda condition, x, y: x if condition else y,
        "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
        **values,
    }
    for one in whole.statements:
        known[one.target] = last = eval(spell(one.value), known)
    return float(last)


@pytest.mark.parametrize(
    "text",
    [
        "gelu(acc)",
        "relu(acc + bias[n])",
        "acc + 1",
        "acc + alpha[]",
        "acc * acc",
        "s[n] / acc",
        "acc * s[n] + s[n]",
        "acc * r[m, n] + r[m, n]",
        "abs(bias[n]) + acc",
        "where(acc > 0, acc, 0)",
        "where(s[n] > 0, acc, 1)",
        "maximum(acc, 0)",
    ],
)
def test_what_is_not(text: str) -> None:
    assert found(checked(text)) is None


def test_all_results_have_to_be() -> None:
    whole = checked("pre = acc + bias[n]\nout = gelu(pre)")
    assert found(whole, "out", "pre") is None
    assert found(whole, "pre") == ("acc", "bias")
    whole = checked("pre = acc + bias[n]\nout = pre - r[m, n]")
    assert found(whole, "out", "pre") == ("acc", "bias", "r")


def test_a_result_of_operands_alone_is_linear_in_one() -> None:
    whole = checked("out = acc\nother = bias[n] * s[m]")
    assert found(whole, "out", "other") == ("acc", "bias")


# -- what verify holds parts to -------------------------------------------------------


def added(x: Any, w: Any, bias: Any) -> list[Any]:
    return [x @ w.T + bias]


@pytest.mark.parametrize("linear_in", [("acc", "bias"), None])
def test_parts_that_make_up_the_whole_pass(linear_in: Any) -> None:
    assert ways_held(linear_in) == 4 - (linear_in is None)


def test_parts_that_do_not_are_told() -> None:
    """The bias of each part of K counts, or the epilogue is not linear."""
    told = r"make no \[Partial\(\)\] of the result"
    with pytest.raises(Exception, match=told):
        ways_held(("acc",))
    with pytest.raises(Exception, match=told):
        ways_held(("acc", "bias"), lambda *given: [added(*given)[0].square()])
    with pytest.raises(Exception, match=r"make no \[Shard\(dim=0\)\] of the result"):
        ways_held(None, lambda x, w, bias: [added(x, w, bias)[0] + len(x)])


def ways_held(linear_in: Any, call: Any = added) -> int:
    """How many ways to cut a call are told, all of which are right."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from gemmgen.runtime.operators import sharding
    from gemmgen.verification.example.cut import check_cut

    axes = sharding.Axes({"x": "mk", "w": "nk", "bias": "n"}, ["mn"], linear_in)
    inputs = [torch.arange(1.0, 13).view(3, 4), torch.ones(5, 4), torch.ones(5)]
    return check_cut(sharding, axes, call, inputs)


# -- two processes -------------------------------------------------------------------


def built(folder: Path) -> None:
    (folder / "spec.yaml").write_text(SPEC)
    builder.build([folder / "spec.yaml"], folder / "made")


def found_by(folder: Path, *words: str) -> dict[str, str]:
    """What the script says, which sees whether kernels import DTensor."""
    return said_by("sharding_script", folder, *words, modules=forked.TORCH)


NAMES = names_in("sharding_script")
# Rows, parts of K and styles are laid out alike; compiling takes long.
FAST = set(NAMES) - {
    "columns_of_b_are_columns_of_the_result",
    "gradients_are_added_to_those_there_are",
    "what_is_whole_stays_whole",
    "whatever_does_not_go_together_is_laid_out_anew",
    "gradients_are_those_that_are_asked_for",
    "parameters_are_cut_by_fsdp",
    "a_model_that_is_cut_is_compiled",
    "torch_s_own_styles_do_for_one_tensor",
}


@pytest.fixture(scope="module")
def said(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What went wrong in each case whose test runs."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")

    def run(folder: Path) -> dict[str, str]:
        built(folder)
        return found_by(folder, *asked(request))

    return once(tmp_path_factory, "sharding", run)


@pytest.mark.parametrize("name", all_but(FAST, NAMES))
def test_what_two_processes_compute(said: dict[str, str], name: str) -> None:
    assert said[name] == "", said[name]


@pytest.mark.slow
def test_every_placement_and_a_compiled_model(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    built(tmp_path)
    for name, wrong in found_by(tmp_path, "all").items():
        assert wrong == "", f"{name}: {wrong}"
