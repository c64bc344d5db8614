"""What the self-test makes of its mutants, with checks that are played."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from gemmgen.output import alone
from gemmgen.output.folder import SHARED
from gemmgen.render import render
from gemmgen.render.names.parts import LAUNCHER, file_of
from gemmgen.runtime.table import best
from gemmgen.runtime.tile import Tile
from gemmgen.select.plan import load
from gemmgen.verification.basics.outcome import Outcome
from gemmgen.verification.example.subject import ANYWHERE
from gemmgen.verification.faults.expressions import box_families
from gemmgen.verification.faults.families import families
from gemmgen.verification.faults.host import host_families, on_the_host
from gemmgen.verification.mutate import host_excuses, selftest
from gemmgen.verification.mutate.host_mutants import host_mutants, on_the_device
from gemmgen.verification.mutate.mutants import Mutant, mutants, mutated
from gemmgen.verification.mutate.reach import BEFORE, noted
from gemmgen.verification.mutate.selftest import Kill, kill_table, self_test
from gemmgen.verification.mutate.shared_trial import callers_of, trial_plans, written
from gemmgen.verification.run.pool import run_launches, run_properties
from gemmgen.verification.run.process import Subject
from tests import folders

TRIED = trial_plans()[-5:-3]
ROW_DOT = ("_runtime/device.py", "row_dot")
EVERY = dict.fromkeys(range(1000), frozenset({BEFORE}))
"""The lines of any module, to which a process comes before its steps."""
Check = Callable[[str, Subject], bool]


def play(
    monkeypatch: pytest.MonkeyPatch, passes: Check, files: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Let `passes` say what passes, and only some shared files have mutants.

    Returns the checks with the text of the kernel's module.
    """
    asked: list[tuple[str, str]] = []

    def run(name: str) -> Callable[..., list[Outcome]]:
        def outcomes(subjects: Sequence[Subject], **_: Any) -> list[Outcome]:
            asked.extend((name, text_of(one)) for one in subjects)
            return [
                Outcome(
                    one.plan.name, name, "cpu",
                    "passed" if passes(name, one) else "failed", seconds=1.0,
                )
                for one in subjects
            ]  # fmt: skip

        return outcomes

    monkeypatch.setattr(selftest, "run_properties", run("properties"))
    monkeypatch.setattr(selftest, "run_launches", run("launches"))
    few = {name: text for name, text in alone.shared_texts().items() if name in files}
    monkeypatch.setattr(selftest, "shared_texts", lambda: few)
    monkeypatch.setattr(selftest, "trial_plans", lambda: TRIED)
    monkeypatch.setattr(selftest, "lines_reached", lambda *_: EVERY)
    monkeypatch.setattr(selftest, "host_mutants", some_mutants)
    return asked


def some_mutants(file: str, source: str) -> Iterator[Mutant]:
    """One in six mutants of a module: each is a folder for each of its checks."""
    return islice(host_mutants(file, source), 0, None, 6)


def text_of(subject: Subject, file: str = "") -> str:
    """A file that launchers share, or all of a kernel's own."""
    if file:
        return (subject.folder / file).read_text(encoding="utf-8")
    files = sorted(subject.path.parent.glob("*.py"))
    return "".join(path.read_text(encoding="utf-8") for path in files)


def faulty(subject: Subject, file: str) -> bool:
    """Whether a shared file is a mutant: healthy kernels have one that takes notes."""
    changed = text_of(subject, file) != alone.shared_texts()[file]
    return changed and subject.folder.parent.parent.name != "healthy"


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    """A kernel that uses little, as it should be."""
    return written(tmp_path / "own", TRIED[-1], {})


def test_a_kernel_whose_mutants_all_fail_passes(
    monkeypatch: pytest.MonkeyPatch, subject: Subject
) -> None:
    asked = play(monkeypatch, lambda name, one: False)
    (outcome,), kills = self_test([subject], "cpu", "quick", 0, None, [])
    assert (outcome.kernel, outcome.status) == (subject.plan.name, "passed")
    assert outcome.examples == len(kills) > 50
    tried = [one for one in kills if not one.equivalent]
    assert {one.found for one in tried} == {"failed"}
    # What fails its first check is not checked again.
    assert outcome.seconds == len(asked) == len(tried)
    assert len({text for _, text in asked}) == len(asked)


def test_a_mutant_that_passes_everything_survives(
    monkeypatch: pytest.MonkeyPatch, subject: Subject
) -> None:
    asked = play(monkeypatch, lambda name, one: True)
    (outcome,), kills = self_test([subject], "cpu", "quick", 0, None, [])
    survivors = [one for one in kills if one.survived]
    assert outcome.status == "failed" and len(survivors) > 40
    lines = [f"survived: {one.mutant}" for one in survivors]
    assert outcome.detail.splitlines() == lines
    # Launchers' mutants are also launched.
    launched = {text for name, text in asked if name == "launches"}
    assert 0 < len(launched) < len(survivors)


@pytest.mark.slow
def test_what_launchers_share_is_tried_by_kernels_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, last = "_runtime/launch.py", TRIED[-1].name

    def passes(name: str, one: Subject) -> bool:
        return not faulty(one, file) or (name, one.plan.name) != ("properties", last)

    asked = play(monkeypatch, passes, [file])
    (outcome,), kills = self_test([], "cpu", "quick", 0, None, SHARED)
    assert (outcome.kernel, outcome.status) == (file, "passed")
    made = list(some_mutants(file, alone.shared_texts()[file]))
    assert [one.mutant for one in kills] == [one.name for one in made]
    tried = sum(not one.equivalent for one in made)
    each = 2 * len(TRIED)  # of the healthy kernels too
    assert len(asked) == each * (tried + 1)


@pytest.mark.slow
def test_what_no_check_comes_to_survives_untried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, last = "_runtime/launch.py", TRIED[-1].name
    asked = play(monkeypatch, lambda name, one: True, [file])
    line = next(
        one.place for one in some_mutants(file, alone.shared_texts()[file])
        if not one.equivalent and f"line {one.place} " in one.name
    )  # fmt: skip

    others = {one: steps for one, steps in EVERY.items() if one != line}

    def reached(folder: Path, name: str) -> Mapping[int, frozenset[int]]:
        one = folder.parent.name == "launches" and folder.name == last
        return EVERY if one else others

    monkeypatch.setattr(selftest, "lines_reached", reached)
    _, some = self_test([], "cpu", "quick", 0, None, SHARED)
    monkeypatch.setattr(selftest, "lines_reached", lambda *_: others)
    before = len(asked)
    (outcome,), none = self_test([], "cpu", "quick", 0, None, SHARED)
    away = [one for one in none if not one.reached]
    tried = [one for one in none if one.survived and one.reached]
    assert away and tried and all(f"line {line} " in one.mutant for one in away)
    assert all(one.reached for one in some)
    assert f"survived: {away[0].mutant}, where no check comes" in outcome.detail
    # Once each for the only check that comes to them.
    assert len(asked) - before == before - len(away)


def test_what_ended_before_an_interruption_is_told(
    monkeypatch: pytest.MonkeyPatch, subject: Subject
) -> None:
    file = "_runtime/launch.py"

    def passes(name: str, one: Subject) -> bool:
        if faulty(one, file) and one.plan.name == TRIED[1].name:
            raise KeyboardInterrupt
        return faulty(one, file) or one.folder.parent.parent.name == "healthy"

    play(monkeypatch, passes, [file])
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        self_test(
            [subject], "cpu", "quick", 0, None, SHARED,
            lambda outcome, kills: told.append(f"{outcome.kernel} {len(kills) > 50}"),
        )  # fmt: skip
    assert told == [f"{subject.plan.name} True"]


def test_kernels_that_fail_unchanged_show_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play(monkeypatch, lambda name, one: False, SHARED)
    outcomes, kills = self_test([], "cpu", "quick", 0, None, SHARED)
    assert kills == ()
    assert len(outcomes) == 2 * len(TRIED)
    assert not any(one.ok for one in outcomes)


def test_every_kind_of_fault_is_a_row() -> None:
    kills = [
        Kill("a", "x, line 1", "x", "failed", ""),
        Kill("a", "x, line 2", "x", "", ""),
        Kill("b", "y, line 1", "y", "", "the same"),
    ]
    rows = kill_table(kills)
    assert [tuple(row.values()) for row in rows] == [
        ("x", "2", "1", "1", ""),
        ("y", "1", "0", "0", "the same"),
    ]


def test_every_fault_of_boxes_is_made_of_a_shared_module() -> None:
    """A pattern that the text outgrew would make no mutants."""
    texts = alone.shared_texts().values()
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    for name, edit in box_families():
        assert any(edit(node) is not None for node in nodes), name


def test_several_results_have_the_faults_of_one() -> None:
    of_results = ("result ", "input not held")
    made: dict[str, list[str]] = {}
    for plan in load(folders.ROOT / "spec.yaml"):
        if plan.name in ("linear_bias_gelu", "linear_gelu_aux"):
            source = folders.text_of(plan.name, LAUNCHER)
            found = [one.family for one in mutants(plan, LAUNCHER, source)]
            made[plan.name] = [one for one in found if one.startswith(of_results)]
    one, several = made.values()
    assert sorted(several) == sorted([*one, "result of another type"])


def test_what_is_only_rounded_has_no_fault_of_rounding_early() -> None:
    """Nothing could tell one rounding from two to the same type."""
    found = {}
    for plan in load(folders.ROOT / "spec.yaml"):
        if plan.name in ("gemm_nt_bf16", "linear_bias"):
            edits = [one for one in families(plan) if one[0].startswith("rounded")]
            texts = [folders.text_of(plan.name, stem) for stem in plan.files]
            found[plan.name] = [[*mutated(text, edits)] for text in texts]
    assert not any(found["gemm_nt_bf16"])
    assert all(found["linear_bias"])


@pytest.mark.slow
def test_kernels_by_which_shared_modules_are_tried_are_healthy(tmp_path: Path) -> None:
    """Also with modules that note which statements are reached."""
    plans = [*trial_plans(), *(one for one, _ in callers_of(*ROW_DOT))]
    notes = {name: noted(text) for name, text in alone.shared_texts().items()}
    healthy = [written(tmp_path / one.name, one, notes) for one in plans]
    outcomes = [
        *run_launches(healthy, "quick", 0),
        *run_properties(healthy, "cpu", "quick", 0),
    ]
    assert [(one.status, one.detail) for one in outcomes] == [("passed", "")] * len(
        outcomes
    )


def test_products_of_rows_are_tried_by_tiles_of_several_columns() -> None:
    """Those of one column need no mask of columns."""
    for plan, file in callers_of(*ROW_DOT):
        assert file is not None
        assert "row_dot(" in render.files(plan, "spec.yaml")[file_of(plan, file)]
        assert max(tile.n for _, tile in plan.tiles if tile.schedule == file) > 1


@pytest.mark.slow
def test_every_excuse_is_of_a_mutant() -> None:
    """One that excuses nothing is of a text that is no more."""
    for name, rows in host_excuses._SAME.items():
        source = alone.shared_texts()[name]
        made = list(mutated(source, host_families(), on_the_host))
        made += mutated(source, families(trial_plans()[0]), on_the_device)
        for row in rows:
            assert any(row.covers(one) for one in made), row


def test_a_forced_row_serves_any_sizes_though_it_was_a_layer_s() -> None:
    """Else another row serves them, and its kernel is never interpreted."""
    row = Tile("tma", 90, 200, 512, 1024, 64, 64, 64, 1, 6, 4, from_rows=65)
    assert not row.fits(3, 5)
    forced = row._replace(**ANYWHERE)
    assert forced.fits(3, 5) and best([forced], (1, 3, 5), 2) == forced
