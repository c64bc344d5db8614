"""Which statements of a module were run, as the module's noted copy tells."""

import ast
import importlib.util
from functools import partial
from pathlib import Path

import pytest

from gemmgen.output.alone import shared_texts
from gemmgen.verification.basics.part import WHOLE, Part
from gemmgen.verification.faults.host import host_families, on_the_host
from gemmgen.verification.mutate.mutants import mutated
from gemmgen.verification.mutate.reach import (
    ALWAYS,
    coming_to,
    lines_reached,
    most_first,
    noted,
    place_of,
)

SOURCE = '''"""A module."""

import functools

LIMIT = 3


def judged(x: int) -> str:
    """Say something."""
    if x > (
        LIMIT
    ):
        return "many"
    elif x == 2:
        return "two"
    for _ in range(x):
        x += 1
    return "few"


class Kept:
    """Something kept."""

    def __init__(self) -> None:
        """Keep."""
        self.made = []

    @functools.cached_property
    def never(self) -> int:
        return len(self.made)


@triton.jit
def compiled(x):
    return x
'''
MADE = SOURCE.replace("@triton.jit", "@functools.cache")


def line(text: str) -> int:
    """The line of a text that the source has once."""
    assert SOURCE.count(text) == 1
    return SOURCE[: SOURCE.index(text)].count("\n") + 1


def node(text: str) -> ast.AST:
    """The first node of such a text."""
    return next(one for one in ast.walk(ast.parse(SOURCE)) if ast.unparse(one) == text)


def test_a_module_notes_what_it_runs(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(noted(MADE))
    spec = importlib.util.spec_from_file_location("made", tmp_path / "made.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.__doc__ == "A module." and module.judged.__doc__ == "Say something."
    imported = lines_reached(tmp_path, "made.py")
    assert line("def __init__") in imported and line("self.made = ") not in imported
    calls = (partial(module.judged, 2), module.Kept, partial(module.judged, 1))
    for call in Part().of(calls):
        call()
    reached = lines_reached(tmp_path, "made.py")
    steps = {text: reached.get(line(text), frozenset()) for text in (
        "if x > (", "elif x == 2", '"two"', "self.made = ", "for _", '"few"', '"many"',
    )}  # fmt: skip
    assert [sorted(own) for own in steps.values()] == [
        [0, 2], [0, 2], [0], [1], [2], [2], [],
    ]  # fmt: skip
    assert line("return len(") not in reached
    assert lines_reached(tmp_path, "other.py") == {}


def test_what_triton_compiles_takes_no_notes() -> None:
    text = noted(SOURCE)
    assert "@triton.jit\ndef compiled(x):\n    return x" in text
    assert f"_reached({line('return x')})" not in text


def test_a_fault_is_where_its_statement_is() -> None:
    for text, where in (
        ("x > LIMIT", "if x > ("),
        ("x == 2", "elif x == 2"),
        ("x += 1", "x += 1"),
        ("range(x)", "for _"),
        ("len(self.made)", "return len("),
    ):
        assert place_of(SOURCE, node(text)) == line(where), text
    many = next(one for one in ast.walk(ast.parse(SOURCE)) if isinstance(one, ast.If))
    assert place_of(SOURCE, many) == line("if x > (")


def test_what_is_run_at_import_is_reached_wherever_that_is() -> None:
    for text in ("LIMIT = 3", "functools.cached_property"):
        assert place_of(SOURCE, node(text)) == ALWAYS, text
    kept = next(
        one for one in ast.walk(ast.parse(SOURCE)) if isinstance(one, ast.ClassDef)
    )
    assert place_of(SOURCE, kept) == ALWAYS


def test_another_function_is_reached_with_its_first_statement() -> None:
    """Faults that replace what a function does are made of the whole."""
    function = ast.parse(SOURCE).body[3]
    assert isinstance(function, ast.FunctionDef)
    assert place_of(SOURCE, function) == line("if x > (")


@pytest.mark.slow
def test_every_fault_has_a_place_that_is_noted() -> None:
    """Else no check would be tried, as if none came there."""
    for name, text in shared_texts().items():
        notes = noted(text)
        for one in mutated(text, host_families(), on_the_host):
            place = place_of(text, one.node)
            assert place == ALWAYS or f"_reached({place})" in notes, (name, one.name)


def test_the_most_different_is_tried_first() -> None:
    first, like_first, other = ("a", "x"), ("b", "x"), ("a", "y")
    once = frozenset({4})
    reached = {
        like_first: dict.fromkeys((1, 2, 3), once),
        first: dict.fromkeys((1, 2, 3, 4), once),
        other: {1: once, 9: frozenset({7, 2})},
    }
    found = most_first(reached)
    assert list(found) == [first, other, like_first] and found == reached
    part = Part(only=(4,))
    assert coming_to(1, found) == [
        (first, part), (other, part), (like_first, part),
        (first, WHOLE), (other, WHOLE), (like_first, WHOLE),
    ]  # fmt: skip
    assert coming_to(9, found) == [(other, Part(only=(2, 7))), (other, WHOLE)]
    assert coming_to(8, found) == []


def test_what_is_done_before_any_step_may_matter_in_all() -> None:
    one = ("a", "x")
    found = {one: {3: frozenset({-1, 5})}}
    for place in (3, ALWAYS):
        assert coming_to(place, found) == [(one, WHOLE)]
