"""GPU names: each means the architecture that serves it, and no other is suggested."""

import re

import pytest

from gemmgen.base.errors import SpecErrors
from gemmgen.hardware.gpus import GPUS, NAMES, target_named, unknown_target
from gemmgen.hardware.targets import TARGETS
from gemmgen.spec.parse import parse


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_means_a_target_of_its_family_that_is_not_newer(name: str) -> None:
    target = target_named(name)
    family = GPUS[name] // 10
    served = [one for one in TARGETS.values() if one.architecture // 10 == family]
    if target is None:
        assert not any(one.architecture <= GPUS[name] for one in served)
        return
    own = TARGETS[target].architecture
    assert own // 10 == family and own <= GPUS[name]
    assert not any(own < one.architecture <= GPUS[name] for one in served)


@pytest.mark.parametrize(
    ("name", "target"),
    [("a100", "sm_80"), ("rtx3090", "sm_86"), ("l40s", "sm_89"), ("h100", "sm_90"),
     ("h200", "sm_90"), ("b200", "sm_100"), ("b300", "sm_100"), ("rtx5090", "sm_120"),
     ("gb10", "sm_120"), ("sm_89", "sm_89")],
)  # fmt: skip
def test_names_that_people_know(name: str, target: str) -> None:
    assert target_named(name) == target
    targets = ", ".join(dict.fromkeys([name, target, "sm_80"]))
    text = f"gemmgen: 1\ntargets: [{targets}]\nkernels:\n"
    spec = parse(f"{text}  - {{name: one, op: linear, dtype: bf16}}", "s")
    assert spec.targets == tuple(dict.fromkeys([target, "sm_80"]))


@pytest.mark.parametrize(
    "name",
    [*map(str.upper, GPUS), "v100", "t4", "h1000", "h10", "sm90", "SM_100", "sm_91"],
)
def test_no_hint_leads_to_another_architecture(name: str) -> None:
    said = unknown_target(name)
    meant = re.search("did you mean '(.*?)'", said)
    if meant:
        digits = re.sub("[^0-9]", "", name)
        assert re.sub("[^0-9]", "", meant[1]) == digits
        assert NAMES[meant[1]]


def test_h100_is_no_word_for_sm_100() -> None:
    with pytest.raises(SpecErrors, match="did you mean 'h100'"):
        parse("gemmgen: 1\ntargets: [H100]\nkernels: []\n", "s")
