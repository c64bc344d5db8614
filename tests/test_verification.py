"""`gemmgen verify` as a whole: what is checked, what is told, what it returns."""

import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis.errors import FlakyFailure

from gemmgen.cli.main import main
from gemmgen.output import builder
from gemmgen.render.names.parts import file_of, stems
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import load
from gemmgen.verification.basics.failure import fault_of
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.example import subject
from gemmgen.verification.mutate.mutants import mutants
from gemmgen.verification.report import Verification
from gemmgen.verification.run import pool
from tests import folders
from tests.own import OWN

SPEC = """\
gemmgen: 1
targets: [sm_80, sm_90]
kernels:
  - {name: first, op: gemm, layout: NN, dtype: fp16, tiles: {m: 16, n: 32, k: 32}}
  - {name: second, op: linear, dtype: bf16, epilogue: [bias, relu],
     tiles: {m: 32, n: 32, k: 32}}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the spec and its kernels, to be copied."""
    path = tmp_path_factory.mktemp("built") / "spec.yaml"
    path.write_text(SPEC)
    builder.build([path])
    return path.parent


@pytest.fixture
def spec(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path / "spec.yaml"


def verify(spec: Path, *options: str) -> int:
    return main(["verify", str(spec), "--cpu", "--seed", "1", *options])


@pytest.mark.slow  # CI verifies new kernels with every Triton
@pytest.mark.parametrize(
    ("only", "kernels"), [("first", ["first"]), ("*", ["first", "second"])]
)
def test_healthy_kernels_pass_every_check(
    only: str, kernels: list[str], spec: Path, capsys
) -> None:
    report = spec.with_name("report.xml")
    options = ("--only", only, "--format", "json", "--report", str(report))
    assert verify(spec, *options) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and told["environment"]["device"] == "cpu"
    found = [(one["kernel"], one["check"], one["status"]) for one in told["outcomes"]]
    assert found == [
        (kernel, check, "passed")
        for kernel in kernels
        for check in ("drift", "compiled", "launches", "properties")
    ]
    suite = ElementTree.parse(report).getroot()
    assert [case.get("classname") for case in suite] == [
        kernel for kernel in kernels for _ in range(4)
    ]
    assert not list(suite.iter("failure"))


def test_drifted_kernel_fails_and_is_not_run(spec: Path, capsys) -> None:
    module = spec.with_name("generated") / "first" / "tiled.py"
    module.write_text(module.read_text().replace("M, INDEX", "M + 1, INDEX"))
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
    outcomes = (
        Outcome("first", "properties", "cpu", "passed", examples=12, worst=0.5),
        Outcome("second", "properties", "cpu", "crashed", "killed by SIGSEGV"),
    )
    result = Verification(outcomes, {"torch": "2"}, 3.0)
    text = result.as_text()
    assert "12 examples, worst 0.50 of the bound" in text
    assert "second: properties on cpu crashed\nkilled by SIGSEGV" in text
    assert "1 of 2 kernels failed" in text
    shared = Outcome("_runtime", "self-test", "cpu", "failed", "ill")
    text = Verification((*outcomes, shared), {"torch": "2"}, 3.0).as_text()
    assert "2 kernels, 1 of 2 kernels failed, and _runtime," in text
    assert 'message="crashed"' in result.as_junit()
    assert "| second | properties | cpu | crashed |" in result.as_markdown()


def test_notes_are_told_and_fail_nothing() -> None:
    noted = Outcome("one", "compiled", "none", "passed", notes=("a", "b", "c", "d"))
    few = Outcome("two", "compiled", "none", "passed", notes=("e",))
    plain = Outcome("three", "compiled", "none", "passed")
    found = Verification((noted, few, plain), {}, 1.0)
    assert found.ok
    assert [one["notes"] for one in found.as_json()["outcomes"]] == [
        ("a", "b", "c", "d"), ("e",), ()
    ]  # fmt: skip
    *_, notes, verdict = found.as_text().split("\n\n")
    assert notes.splitlines() == [
        "no faults, but worth a note:", "one: a", "one: b", "one: c",
        "one: and 1 more such tiles, with --format json", "two: e",
    ]  # fmt: skip
    assert "all passed" in verdict
    assert "note" not in Verification((plain,), {}, 1.0).as_text()
    assert Outcome.read(json.loads(json.dumps(asdict(noted)))) == noted
    assert pool._joined([noted, few]).notes == ("a", "b", "c", "d", "e")


def test_text_says_what_did_not_run_and_what_to_run_next() -> None:
    ran = {"schedules": ("tiled", "tma"), "ran": ("tiled",), "largest": (5, 70, 9)}
    one = Outcome("first", "properties", "cpu", "passed", **ran)
    facts = {"torch": "2"}
    told = Verification((one,), facts, 3.0, more="to see more: run this").as_text()
    head, row, *_ = told.splitlines()
    assert head.split()[-5:] == ["sizes", "up", "to", "only", "compiled"]
    assert row.split()[-2:] == ["5x70x9", "tma"]
    assert told.splitlines()[-2].startswith("no GPU: kernels were interpreted")
    assert told.splitlines()[-1] == "to see more: run this"
    every = replace(one, ran=("tiled", "tma"), device="cuda")
    told = Verification((every,), facts, 3.0).as_text()
    assert told.splitlines()[1].split()[-1] == "none"
    assert "no GPU" not in told
    data = Verification((one,), facts, 3.0).as_json()["outcomes"][0]
    assert (data["compiled_only"], data["largest"]) == (["tma"], (5, 70, 9))


@pytest.mark.slow
def test_what_ran_is_known_of_a_run(spec: Path, capsys) -> None:
    assert verify(spec, "--only", "second") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-5:] == ["sizes", "up", "to", "only", "compiled"]
    assert lines[1].split()[-2:] == ["70016x70016x65584", "none"]
    assert lines[-1] == (
        f"to see more: gemmgen verify {spec} with --self-test (faults are planted and "
        "found), or --profile deep (more examples), or on a GPU without --cpu, "
        "--sanitize"
    )


def test_nothing_built_is_said_once_and_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    monkeypatch.setattr("gemmgen.verification.Ready", None)  # no process is started
    assert verify(path) == 2
    folder = tmp_path / "generated"
    assert capsys.readouterr().err == (
        f"gemmgen: {folder} has no kernels yet: run `gemmgen build {path}` first\n"
    )
    assert verify(path, "-o", str(tmp_path / "other")) == 2
    assert f"`gemmgen build {path} -o {tmp_path / 'other'}`" in capsys.readouterr().err


def test_what_had_ended_before_an_interrupt_is_reported(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def interrupted(subjects, device, profile, seed, tell, ready):
        tell(Outcome("first", "properties", "cpu", "passed", examples=7))
        raise KeyboardInterrupt

    monkeypatch.setattr("gemmgen.verification.run_checks", interrupted)
    path = tmp_path / "report.json"
    assert verify(spec, "--cpu", "--report", str(path)) == 130
    assert capsys.readouterr().err.endswith("gemmgen: interrupted\n")
    report = json.loads(path.read_text())
    assert report["environment"]["interrupted"] == "the checks that had ended"
    found = [(one["kernel"], one["check"]) for one in report["outcomes"]]
    assert found == [("first", "drift"), ("first", "properties"), ("second", "drift")]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (torch.AcceleratorError("CUDA error: out of memory"), "out of resources"),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"), "out of resources"),
        (torch.AcceleratorError("CUDA error: illegal memory access"), "crashed"),
        (RuntimeError("anything"), "error"),
    ],
    ids=str,
)
def test_a_full_gpu_is_told_from_a_fault(error: Exception, status: str) -> None:
    fault = fault_of(error)
    assert fault.status == status
    assert fault.story == f"{type(error).__name__}: {error}"


def test_what_failed_once_and_not_again_is_told_with_what_it_was() -> None:
    once = FlakyFailure("not again", [ValueError("bias has no row"), TypeError()])
    story = fault_of(once).story
    assert story.startswith("FlakyFailure: not again")
    assert story.endswith(", first ValueError: bias has no row")


def test_a_mutant_knows_the_file_that_has_the_fault() -> None:
    plan = OWN["linear_bf16"]
    for stem in stems(plan):
        made = list(mutants(plan, stem, folders.text_of("linear_bf16", stem)))
        file = stem if stem in plan.files else None
        assert {mutant.file for mutant in made} == {file}
        assert all(mutant.name.endswith(f" of {stem}.py") for mutant in made)


def test_a_table_without_a_row_of_tiled_has_its_last_row_behind() -> None:
    """For tensors that a forced tile's descriptors cannot describe."""
    plan = OWN["gemm_nn_tf32x3"]
    module = subject.load(folders.GENERATED / file_of(plan))
    other = {"tiled": "split_k"}
    table = [
        row._replace(schedule=other.get(row.schedule, row.schedule))
        for row in module.TILES
        if row.sm == 90
    ]
    found = subject._tabled(table, on_gpu=True)
    assert {one.schedule for one in found} == set(plan.schedules) - {"tiled"}
    for one in found:
        assert len(one.value) == 1 + bool(one.described(plan))
        assert not SCHEDULES[one.value[-1].schedule].described
        assert one.value[-1].M == one.value[-1].N == one.value[-1].K == math.inf


def test_mutants_differ_from_the_kernel_and_from_each_other(spec: Path) -> None:
    plan = load(spec)[1]
    folder = spec.with_name("generated")
    made = [
        mutant
        for stem in stems(plan)
        for mutant in mutants(plan, stem, (folder / file_of(plan, stem)).read_text())
    ]
    assert len({mutant.source for mutant in made}) == len(made) > 40
    assert len({mutant.family for mutant in made}) > 20


def test_masks_of_columns_are_for_those_with_several_in_a_program() -> None:
    """Of gemv: a table whose programs have one column each needs no mask of columns.

    Nor does it matter there how the last column of a program is counted.
    """
    excused = {}
    for plan in OWN.values():
        if plan.name in ("gemm_nn_bf16", "gemm_nt_bf16"):
            widths = {tile.n for _, tile in plan.tiles if tile.schedule == "gemv"}
            found = mutants(plan, "gemv", folders.text_of(plan.name, "gemv"))
            excused[widths == {1}] = [
                one.family for one in found if "each column" in (one.equivalent or "")
            ]
    alike = ["right mask term dropped", "cdiv became floor"]
    assert excused == {True: alike, False: []}
