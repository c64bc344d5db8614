"""`gemmgen verify --sanitize` without a GPU: commands, findings, whose they are.

A script stands for compute-sanitizer; under it kernels run in the interpreter.
"""

import json
import os
import re
import subprocess
import sys
import time
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gemmgen.base.errors import EnvironmentMissing
from gemmgen.cli.main import main
from gemmgen.hardware.targets import TARGETS
from gemmgen.output import builder
from gemmgen.output.alone import shared_texts
from gemmgen.render.names.parts import ROLES, file_of
from gemmgen.schedules.parts.tile import Tile
from gemmgen.select import plan
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.example import subject
from gemmgen.verification.example.aligned import compile_aligned, jit_function
from gemmgen.verification.example.edge_cases import plain
from gemmgen.verification.machine.machine_code import dump
from gemmgen.verification.oracle.comparison import Block
from gemmgen.verification.run.process import Subject
from gemmgen.verification.sanitize import consan, fpsan, sanitizer, tools
from gemmgen.verification.sanitize.child import MARK, cases
from gemmgen.verification.sanitize.findings import FOUND, Files, of_dispatch, read
from gemmgen.verification.sanitize.instrumented import OWN
from gemmgen.verification.sanitize.sanitizer import Session, judged
from gemmgen.verification.sanitize.tools import command, environment
from tests import folders
from tests.slow import all_but

SPECS = folders.ROOT / "spec.yaml"
SPEC = """\
gemmgen: 1
targets: [sm_80]
kernels:
  - {name: one, op: gemm, layout: NN, dtype: fp16, tiles: {m: 16, n: 32, k: 32}}
  - {name: one_more, op: gemm, layout: NN, dtype: fp16, tiles: {m: 16, n: 16, k: 16}}
"""
READ = """\
========= Invalid __global__ read of size 2 bytes
=========     at one_more_kernel+0x1a0 in one_more.py:42
=========     by thread (3,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernelEx [0x1] in libcuda.so.1
=========
"""
RACE = """\
========= Error: Race reported between Write access at one_kernel+0x10 in one.py:9
=========     and Read access at one_kernel+0x20 in one.py:12 [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SOURCES: dict[str, Files] = {"one": {}, "one_more": {}}
SPECIALIZED = """\
@gluon.jit
def one_kernel(a):
    ring = gl.allocate_shared_memory(gl.float16, [128], a.layout)
    gl.warp_specialize([(consume, (ring,)), (produce, (ring,))])


def consume(ring):
    return ring.load()
"""
DISPATCH = """\
========= Error: Race reported between Read access at one_kernel+0xd0 in one.py:2
=========     and Write access at one_kernel+0x24a0 in one.py:2 [13 hazards]
=========     and Write access at one_kernel+0x3770 in one.py:4 [24 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def mark(event: str, kernel: str, **values: object) -> str:
    return MARK + json.dumps({"event": event, "kernel": kernel, **values}) + "\n"


def ran(kernel: str, between: str = "") -> str:
    case = mark("case", kernel, case="M=17 N=33 K=33")
    return mark("start", kernel) + case + between + mark("end", kernel, calls=9)


def statuses(text: str, code: int | None = 0) -> dict[str, str]:
    found = judged("memcheck", "cuda", Session(text, code, 2.0), SOURCES)
    return {one.kernel: one.status for one in found}


def test_clean_kernels_pass() -> None:
    text = "========= COMPUTE-SANITIZER\n" + ran("one") + ran("one_more")
    text += "========= ERROR SUMMARY: 0 errors\n"
    found = judged("memcheck", "cuda", Session(text, 0, 2.0), SOURCES)
    assert [(one.kernel, one.check, one.status, one.examples) for one in found] == [
        (name, "memcheck", "passed", 9) for name in SOURCES
    ]


def test_a_finding_is_the_kernel_s_that_it_names_wherever_it_stands() -> None:
    text = ran("one", READ) + ran("one_more") + "========= ERROR SUMMARY: 1 error\n"
    assert statuses(text, FOUND) == {"one": "passed", "one_more": "failed"}
    (finding,) = read(text, SOURCES).records["one_more"].findings
    assert finding.splitlines()[:2] == [
        "Invalid __global__ read of size 2 bytes",
        "at one_more_kernel+0x1a0 in one_more.py:42",
    ]
    assert "Host Frame" not in finding and "backtrace" not in finding


def test_a_finding_that_names_no_kernel_is_that_of_the_one_that_runs() -> None:
    nameless = READ.replace("one_more_kernel", "void at::fill_kernel")
    text = ran("one") + ran("one_more", nameless)
    assert statuses(text, FOUND) == {"one": "passed", "one_more": "failed"}
    (record,) = [r for r in read(text, SOURCES).records.values() if r.findings]
    assert record.findings[0].endswith("M=17 N=33 K=33")


def test_races_are_read_and_counted() -> None:
    reading = read(ran("one") + RACE, SOURCES)
    assert reading.count == 1
    assert "and Read access" in reading.records["one"].findings[0]
    assert statuses(ran("one") + RACE, FOUND) == {"one": "failed"}


def raced(text: str, source: str = SPECIALIZED) -> Outcome:
    session = Session(ran("one") + text, FOUND, 1.0)
    (outcome,) = judged(
        "racecheck", "cuda", session, {"one": {"one.py": source.splitlines()}}
    )
    return outcome


def test_what_racecheck_says_of_triton_s_dispatch_is_set_aside_and_counted() -> None:
    assert (raced(DISPATCH).status, raced(DISPATCH).detail) == ("passed", "1 set aside")


@pytest.mark.parametrize(
    "other",
    [
        DISPATCH.replace("one.py:4", "one.py:8"),  # an access of the kernel's own
        DISPATCH.replace("one.py:4", "one.py:80"),
        DISPATCH.replace(" in one.py:4", ""),
        DISPATCH.replace("SUMMARY: 1 hazard", "SUMMARY: 2 hazards"),
        DISPATCH + READ,
        RACE.replace("one.py:9", "one.py:2").replace("one.py:12", "one.py:3"),
    ],
)
def test_other_findings_are_not_set_aside(other: str) -> None:
    assert raced(other).status == "failed"


SHARED_TILES = [
    Tile(128, 128, 64, 8, 4, 4, "warp_specialized"),
    Tile(256, 128, 64, 8, 3, 8, "warp_specialized"),
    Tile(128, 192, 64, 8, 4, 12, "warp_specialized"),
]


@pytest.mark.skipif(
    not version("triton").startswith("3.6."), reason="as Triton 3.6 dispatches"
)
@pytest.mark.parametrize(
    "tile",
    all_but({SHARED_TILES[0]}, SHARED_TILES),
    ids=lambda tile: f"w{tile.warps}",
)
def test_the_dispatch_that_is_set_aside_is_ordered_by_a_barrier(tile: Tile) -> None:
    """Others meet, read, meet; the first warps write, meet thrice, write and meet.

    Of its accesses, the only plain ones to shared memory, all have the lines by which
    a finding is known.
    """
    (one,) = (p for p in plan.load(SPECS) if p.name == "study_linear")
    module = subject.load(folders.GENERATED / file_of(one))
    kernel = jit_function(module, one, tile.schedule)
    made = compile_aligned(one, kernel, TARGETS["sm_90"], tile)
    code = dump(made.asm["cubin"], "-sass")
    events = {"BAR.SYNC.DEFER_BLOCKING 0x1 ;": "B", "LDS.U8 ": "R", "STS.64 ": "W",
              "STS ": "W"}  # fmt: skip
    pattern = "|".join(map(re.escape, events))
    order = "".join(events[found] for found in re.findall(pattern, code))
    writes = "WW" if tile.warpgroups == 3 else "W"  # a byte a warp, 12 or 8 of them
    assert re.fullmatch(f"BRB+{writes}BBB{writes}B", order), order
    ptx = made.asm["ptx"]
    named = dict(re.findall(r"\.file\s+(\d+) \"(?:.*/)?(.*?)\"", ptx))
    accesses = re.findall(r"\.loc\s+(\d+ \d+)|\b[ls][dt]\.shared", ptx)
    places = {place for place, after in pairwise(accesses) if place and not after}
    finding = "".join(
        f"and Write access at k+0x10 in {named[file]}:{line}\n"
        for file, line in (place.split() for place in places)
    )
    files = {
        f"{tile.schedule}.py": folders.text_of(one.name, tile.schedule).splitlines(),
        **{Path(name).name: shared_texts()[name].splitlines() for name in ROLES},
    }
    assert of_dispatch(finding, files)


def test_only_kernels_that_were_begun_are_settled() -> None:
    first = mark("start", "one") + mark("case", "one", case="M=1")
    assert statuses(first, 139) == {"one": "crashed"}
    assert statuses(first, None) == {"one": "timed out"}
    assert statuses(first + mark("error", "one", story="CUDA error"), 1) == {
        "one": "error"
    }
    assert statuses("Segmentation fault", 139) == {"one": "crashed"}


def test_errors_that_are_counted_but_not_shown_fail_all() -> None:
    text = ran("one") + ran("one_more") + "========= ERROR SUMMARY: 2 errors\n"
    assert set(statuses(text, FOUND).values()) == {"failed"}
    assert set(statuses(READ.replace("one_more_", "x_") + text, FOUND).values()) == {
        "failed"
    }


def test_an_error_after_a_finding_is_the_finding() -> None:
    text = mark("start", "one_more") + READ
    text += mark("error", "one_more", story="AcceleratorError: launch failure")
    text += "========= Target application returned an error\n"
    (outcome,) = judged("memcheck", "cuda", Session(text, FOUND, 1.0), {"one_more": []})
    assert outcome.status == "failed"
    assert outcome.detail.startswith("Invalid __global__ read")


def test_the_command_and_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    line = command("memcheck", Path("job.json"))
    assert line[:3] == ["compute-sanitizer", "--tool", "memcheck"]
    assert line[line.index("--error-exitcode") + 1] == str(FOUND)
    assert line[-1] == "job.json"
    variables = environment("memcheck", "cuda")
    assert variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert variables["TRITON_INTERPRET"] == "0"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in variables
    assert "TRITON_INSTRUMENTATION_MODE" not in variables


def test_triton_s_own_sanitizer_needs_no_program() -> None:
    line = command("consan", Path("job.json"))
    assert (line[0], line[-1]) == (sys.executable, "job.json")
    variables = environment("consan", "cuda")
    assert variables["TRITON_INSTRUMENTATION_MODE"] == "consan"
    assert variables["CUDA_LAUNCH_BLOCKING"] == "1"


def test_an_assertion_on_the_gpu_is_the_finding() -> None:
    said = "one.py:9: one_kernel: block: [0,0,0], thread: [3,0,0] Assertion `Buffer b"
    text = mark("start", "one") + mark("case", "one", case="M=16") + f"{said}\n"
    text += mark("error", "one", story="AcceleratorError: device-side assert triggered")
    (outcome,) = judged("consan", "cuda", Session(text, 1, 1.0), {"one": []})
    assert (outcome.status, outcome.detail) == ("failed", f"{said}\nM=16")


def test_its_cases_end_and_begin_rings_and_turns() -> None:
    """Few programs, so that one has another tile to go on with."""
    (one,) = (p for p in plan.load(SPECS) if p.name == "linear_bias")
    module = subject.load(folders.GENERATED / file_of(one))
    table = subject.runtime(module, "table")
    tiles = {row[5:]: row for row in module.TILES if row.schedule == "warp_specialized"}
    assert consan.concerns(one) and len(tiles) > 2
    for row in tiles.values():
        block = Block(row.m, row.n, row.k)
        variant = subject.Variant(block, (row,), row.schedule)
        made = list(cases(one, variant, "consan"))
        assert {-(-case.k // row.k) for case in made} == {
            1, 2, row.stages, row.stages + 1
        }  # fmt: skip
        assert {-(-case.m // row.m) for case in made} == {1, 3, 5}
        assert all(case.n % 16 == case.k % 16 == 0 and plain(case) for case in made)
        with consan.few_programs(module):
            sizes = (made[-1].m, made[-1].n, made[-1].k)
            programs, _ = table.one_an_sm(row, sizes, None)
            assert row.tiles(*sizes[:2]) > programs
    other = subject.Variant(Block(16, 64, 128), (), "tma")
    assert not list(cases(one, other, "consan"))


def test_tiles_must_agree_in_every_bit() -> None:
    """Those of a kernel that rounds to tf32, each with those that round as it does."""
    by_name = {one.name: one for one in plan.load(SPECS)}
    small = subject.Variant(Block(16, 16, 32), (), "tiled")
    large = subject.Variant(Block(64, 64, 64), (), "tma")
    value = torch.tensor([[1.0, torch.nan], [-0.0, 3.0]])
    other = torch.tensor([[1.0, torch.nan], [0.0, 3.0]])
    for name, rounds in (("gemm_nn_fp32", False), ("gemm_nn_tf32", True)):
        agreement = fpsan.Agreement(by_name[name])
        case, *_ = fpsan.cases(by_name[name], small)
        assert not agreement.differs(case, small, [value])
        assert not agreement.differs(case, small, [value.clone()])
        told = agreement.differs(case, large, [other])
        assert bool(told) is not rounds
        assert not told or told.startswith("1 of 4 elements of c differ under FPSan")
        assert agreement.differs(case, small, [other])


def test_its_cases_are_the_same_for_all_tiles_and_have_parts_of_each() -> None:
    for one in plan.load(SPECS):
        every = set()
        for tile in (tile for table in one.tables for tile in table.tiles):
            variant = subject.Variant(Block(tile.m, tile.n, tile.k), (), tile.schedule)
            made = list(fpsan.cases(one, variant)) if fpsan.concerns(one) else []
            every.update(made)
            for axis in "mnk" if made else "":
                side, sizes = getattr(tile, axis), [
                    getattr(case, axis) for case in made
                ]
                assert min(sizes) > side
                assert side == 1 or any(size % side for size in sizes)
        assert len(every) <= 2


def test_what_a_tile_does_otherwise_is_a_finding() -> None:
    text = mark("start", "one") + mark("case", "one", case="M=272, tma tile 64x64x64")
    text += mark("finding", "one", finding="1 of 4 elements of c differ")
    text += mark("end", "one", calls=7)
    (outcome,) = judged("fpsan", "cuda", Session(text, 0, 1.0), {"one": {}})
    assert outcome.status == "failed"
    assert outcome.detail == "1 of 4 elements of c differ\nM=272, tma tile 64x64x64"


def test_a_tool_that_triton_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen import verification

    monkeypatch.setattr(verification, "_device", lambda *_: "cuda")
    monkeypatch.setattr(verification, "environment", lambda device: {"device": device})
    monkeypatch.setattr(sanitizer, "sanitize", lambda *_: [])
    for lacking in ({}, {"fpsan": "Triton has it from 3.8 on"}):
        monkeypatch.setattr(tools, "lacking", lambda found=lacking: found)
        told = verification.verify([SPECS], only="study_matmul", sanitize=True)
        assert ("not run fpsan: Triton has it" in told.as_text()) is bool(lacking)
        one = Subject(plan.load(SPECS)[0], folders.GENERATED, "")
        assert bool(tools.concerned("fpsan", [one])) is not lacking


@pytest.fixture
def subjects(tmp_path: Path) -> list[Subject]:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    builder.build([path])
    folder = tmp_path / "generated"
    return [Subject(one, folder / file_of(one), str(path)) for one in plan.load(path)]


def test_slow_tools_and_further_tiles_get_part_tiles_alone(
    subjects: list[Subject],
) -> None:
    from gemmgen.verification.example.subject import Variant
    from gemmgen.verification.oracle.comparison import Block

    of_plan, block = partial(cases, subjects[0].plan), Block(16, 32, 32)
    plain, tma = Variant(block, ()), Variant(block, (), "tma")
    many, few = list(of_plan(plain, "memcheck")), list(of_plan(plain, "racecheck"))
    assert len(few) == 2 < len(many)
    assert few == list(of_plan(plain, "memcheck", whole=False))
    assert all(one.m % 16 and one.n % 32 and one.k % 32 for one in few)
    (described,) = of_plan(tma, "racecheck")
    assert described.n % 16 == described.k % 16 == 0
    assert all(one.m % 16 and one.n % 32 and one.k % 32 for one in (described, *few))


def fake(folder: Path, then: str) -> None:
    """A compute-sanitizer that runs what it is given, then does something."""
    folder.mkdir()
    program = folder / "compute-sanitizer"
    program.write_text(
        '#!/bin/sh\necho "========= COMPUTE-SANITIZER"\ntool=$2\n'
        'while [ "$1" != application-only ]; do shift; done; shift\n'
        f'"$@"\n{then}'
    )
    program.chmod(0o755)


@pytest.mark.slow
def test_from_end_to_end_with_one_tool_that_finds(
    subjects: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = f"cat <<'END'\n{READ}END\nexit {FOUND}"
    fake(tmp_path / "bin", f"if [ $tool = initcheck ]; then {finding}\nfi\nexit 0\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    told: list[str] = []
    programs = set(tools.TOOLS) - set(OWN)
    monkeypatch.setattr(sanitizer, "TOOLS", dict.fromkeys(sorted(programs)))
    found = sanitizer.sanitize(subjects, "cpu", lambda one: told.append(one.kernel))
    assert {(one.check, one.kernel): one.status for one in found} == {
        (tool, name): "passed" for tool in programs for name in SOURCES
    } | {("initcheck", "one_more"): "failed"}
    assert len(told) == len(found)
    assert all(one.examples > 1 for one in found if one.ok)
    (failure,) = [one for one in found if not one.ok]
    assert failure.detail.splitlines()[-1].endswith("--sanitize --only one_more")


@pytest.mark.slow
def test_after_a_crash_the_rest_is_run(
    subjects: list[Subject], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = subjects[0].path
    broken.write_text("import os\nos.abort()\n")
    fake(tmp_path / "bin", "exit $?\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = sanitizer._checked("memcheck", subjects, "cpu", sanitizer._Running(), None)
    assert [one.status for one in found] == ["crashed", "passed"]
    assert "before its first call" in found[0].detail


def test_a_hang_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit is over as soon as it hangs, however long it took until then."""
    hangs = tmp_path / "hangs"

    class Popen(subprocess.Popen):
        def communicate(self, input=None, timeout=None):
            while timeout and not hangs.exists():
                time.sleep(0.01)
            return super().communicate(input, timeout and 0)

    monkeypatch.setattr(sanitizer.subprocess, "Popen", Popen)
    command = f"echo on; touch '{hangs}'; while :; do sleep 60; done"
    session = sanitizer._Running().run(["sh", "-c", command], dict(os.environ), 600)
    assert (session.text, session.code) == ("on\n", None)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with pytest.raises(EnvironmentMissing, match="needs a GPU"):
        tools.require("cpu")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentMissing, match="compute-sanitizer on PATH"):
        tools.require("cuda")
    assert main(["verify", "--sanitize", "--cpu", "none.yaml"]) == 3
    assert "--sanitize needs a GPU" in capsys.readouterr().err
