"""The interpreter of Gluon finds each kind of misuse, in every order, and no other."""

import json
from pathlib import Path

import pytest

from gemmgen.verification.gluon.policies import POLICIES, Choices, First, Policy, When
from gemmgen.verification.memory.barriers import Barrier
from gemmgen.verification.memory.clocks import Clock, Moment
from gemmgen.verification.memory.misuse import Misuse
from tests import forked, gluon_faults, gluon_pieces

FAULTS = gluon_faults.FAULTS | gluon_pieces.FAULTS
HARMLESS = gluon_faults.HARMLESS | gluon_pieces.HARMLESS

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = Path(__file__).with_name("gluon_script.py")


@pytest.fixture(scope="module")
def said() -> dict[str, list[str]]:
    """By variant, what is said of it in every order."""
    done = forked.python(ROOT, SCRIPT)
    assert done.returncode == 0, done.stderr
    found = map(json.loads, done.stdout.splitlines())
    return {one["name"]: one["said"] for one in found}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_every_order(name: str, said: dict[str, list[str]]) -> None:
    assert len(said[name]) == 2 * len(POLICIES)
    for told in said[name]:
        assert told
        for part in FAULTS[name][2]:
            assert part in told


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_right_passes_in_every_order(
    name: str, said: dict[str, list[str]]
) -> None:
    assert said[name] == [""] * (2 * len(POLICIES))


def barrier(count: int) -> Barrier:
    made = Barrier(0, lambda: "full[0]")
    made.init(count)
    return made


def test_a_wait_passes_for_the_phase_before_the_first() -> None:
    """As a fresh mbarrier does for parity 1, which is how free stages begin."""
    fresh = barrier(1)
    assert fresh.passes(1)
    assert not fresh.passes(0)
    fresh.arrive(Clock())
    assert fresh.passes(0)
    assert not fresh.passes(1)


def test_a_phase_needs_all_arrivals_and_all_bytes() -> None:
    made = barrier(2)
    made.expect(Clock(), 96)
    made.land(64, 0)
    made.arrive(Clock())
    assert made.phase == 0
    made.land(32, 0)
    assert made.phase == 1
    assert (made.missing, made.bytes) == (2, 0)


def test_bytes_may_come_before_they_are_expected() -> None:
    made = barrier(1)
    made.land(64, 0)
    made.expect(Clock(), 64)
    assert made.phase == 1


def test_whoever_waits_knows_what_those_who_arrived_did() -> None:
    made, mine, theirs = barrier(1), Clock(), Clock()
    write = Moment(("accesses", 1), 0)
    theirs.learn(write)
    made.arrive(theirs)
    assert not mine.knows(write)
    made.passed(0, mine, 0)
    assert mine.knows(write)
    assert mine.knows(Moment(("barrier", 0), 0))
    assert not mine.knows(Moment(("barrier", 0), 1))


def test_an_arrival_is_not_known_before_its_phase_ends() -> None:
    made, mine, theirs = barrier(2), Clock(), Clock()
    first = Moment(("accesses", 1), 0)
    for _ in range(2):
        made.arrive(Clock())
    theirs.learn(first)
    made.arrive(theirs)
    made.passed(0, mine, 0)
    assert not mine.knows(first)


@pytest.mark.parametrize("count", [0, -1])
def test_a_barrier_has_arrivals(count: int) -> None:
    with pytest.raises(Misuse, match="is initialized for"):
        barrier(count)


def test_a_barrier_tells_arrivals_that_are_too_many() -> None:
    made = barrier(1)
    made.expect(Clock(), 16)
    with pytest.raises(Misuse, match="more than its 1 arrivals in phase 0"):
        made.arrive(Clock())


def test_a_barrier_tells_bytes_that_are_too_many() -> None:
    made = barrier(1)
    made.expect(Clock(), 16)
    with pytest.raises(Misuse, match="gets 16 bytes more than it expects"):
        made.land(32, 0)


def test_a_barrier_tells_a_phase_that_was_missed() -> None:
    made = barrier(1)
    for _ in range(3):
        made.arrive(Clock())
    with pytest.raises(Misuse, match="since phase 0 goes on after phase 2"):
        made.passed(0, Clock(), 0)


def test_a_barrier_tells_what_is_left_over() -> None:
    made = barrier(2)
    made.finish()
    made.arrive(Clock())
    with pytest.raises(Misuse, match=r"left over: phase 0 has 1 of 2 arrivals"):
        made.finish()


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_choices_follow_from_the_seed(policy: Policy) -> None:
    """And starve nobody who alone can go on."""

    def chosen(seed: int) -> list[object]:
        choices = Choices(policy, seed)
        found: list[object] = [choices.next([0, 1, 2], 1) for _ in range(20)]
        found += [choices.landing(3) for _ in range(20)]
        return [*found, choices.lands_at_once(), choices.reads_at_once()]

    assert chosen(7) == chosen(7)
    assert Choices(policy, 7).next([2], 1) == 2


def test_policies_hold_the_corners() -> None:
    for first in First:
        assert any(one.first is first for one in POLICIES)
    for when in (When.EARLY, When.LATE):
        assert any(one.loads is when for one in POLICIES)
        assert any(one.reads is when for one in POLICIES)
