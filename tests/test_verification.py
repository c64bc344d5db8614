"""`gemmgen verify` as a whole: what is checked, what is told, what it returns."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gemmgen import builder
from gemmgen.cli import main
from gemmgen.verification.mutants import mutants
from gemmgen.verification.report import Verification

SPEC = """\
gemmgen: 1
targets: [sm_80, sm_90]
kernels:
  - {name: first, op: gemm, layout: NN, dtype: fp16, tiles: {m: 16, n: 32, k: 32}}
  - {name: second, op: linear, dtype: bf16, epilogue: [bias, relu],
     tiles: {m: 32, n: 32, k: 32}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    builder.build([path])
    return path


def verify(spec: Path, *options: str) -> int:
    return main(["verify", str(spec), "--cpu", "--seed", "1", *options])


def test_healthy_kernels_pass_every_check(spec: Path, capsys) -> None:
    report = spec.with_name("report.xml")
    assert verify(spec, "--format", "json", "--report", str(report)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and told["environment"]["device"] == "cpu"
    found = [(one["kernel"], one["check"], one["status"]) for one in told["outcomes"]]
    assert found == [
        (kernel, check, "passed")
        for kernel in ("first", "second")
        for check in ("drift", "compiled", "properties")
    ]
    suite = ElementTree.parse(report).getroot()
    assert [case.get("classname") for case in suite] == ["first"] * 3 + ["second"] * 3
    assert not list(suite.iter("failure"))


def test_drifted_kernel_fails_and_is_not_run(spec: Path, capsys) -> None:
    module = spec.with_name("generated") / "first.py"
    module.write_text(module.read_text().replace("offs_m < M", "offs_m <= M"))
    assert verify(spec, "--only", "first", "--format", "json") == 1
    told = json.loads(capsys.readouterr().out)
    assert [(one["check"], one["status"]) for one in told["outcomes"]] == [
        ("drift", "failed")
    ]


def test_only_names_that_exist(spec: Path, capsys) -> None:
    assert verify(spec, "--only", "third") == 2
    assert "no kernel has a name like 'third'" in capsys.readouterr().err


def test_report_of_an_unknown_kind_is_refused_before_any_work(
    spec: Path, capsys
) -> None:
    assert verify(spec, "--report", "report.txt") == 2
    assert ".json, .md, .xml" in capsys.readouterr().err


def test_text_has_a_row_a_kernel_and_failures_in_full() -> None:
    from gemmgen.verification.outcome import Outcome

    outcomes = (
        Outcome("first", "properties", "cpu", "passed", examples=12, worst=0.5),
        Outcome("second", "properties", "cpu", "crashed", "killed by SIGSEGV"),
    )
    result = Verification(outcomes, {"torch": "2"}, 3.0)
    text = result.as_text()
    assert "12 examples, worst 0.50 of the bound" in text
    assert "second: properties on cpu crashed\nkilled by SIGSEGV" in text
    assert "1 of 2 kernels failed" in text
    assert 'message="crashed"' in result.as_junit()
    assert "| second | properties | cpu | crashed |" in result.as_markdown()


def test_mutants_differ_from_the_kernel_and_from_each_other(spec: Path) -> None:
    from gemmgen.plan import load

    plan = load(spec)[1]
    source = (spec.with_name("generated") / "second.py").read_text()
    made = list(mutants(plan, source))
    assert len({mutant.source for mutant in made}) == len(made) > 40
    assert len({mutant.family for mutant in made}) > 20
