"""Which statements of shared modules a check of a kernel comes to, and in which steps.

A step that does not come to a statement cannot tell what is wrong there. Modules note
it themselves, in a copy with a note before each statement, wherever they are run.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gemmgen.verification.basics.part import STEP, WHOLE, Part
from gemmgen.verification.faults.host import on_the_host

ALWAYS = 0
"""The place of what may matter wherever its module is imported."""
Attempt = tuple[str, str]
"""A check, and the kernel that is checked."""
Lines = Mapping[int, frozenset[int]]
"""By the line of a statement the steps that come to it."""
Reached = Mapping[Attempt, Lines]
"""What each attempt comes to of a module."""
BEFORE = -1
"""In place of a step: what is done before the first, which may matter in any."""
_SUFFIX = ".reached"
_NOTE = f"""
from os import environ as _environ
def _reached(line, known=set()):
    note = f"{{line}} {{_environ.get({STEP!r}, {BEFORE})}}\\n"
    if note not in known:
        known.add(note)
        with open(__file__ + {_SUFFIX!r}, "a", encoding="utf-8") as file:
            file.write(note)
    return line
_reached._dynamo_marked_constant = True
"""
"""The function that notes: torch.compile calls it and traces nothing of it."""


def noted(source: str) -> str:
    """A module that notes its statements beside its file, by line, as it runs them.

    Functions that Triton compiles stay as they are.
    """
    module = ast.parse(source)
    first = 1 + max(
        (at for at, one in enumerate(module.body) if _leads(one)), default=-1
    )
    for one in filter(on_the_host, module.body):
        for body in _bodies(one):
            at = _described(body)
            body[at:] = [new for old in body[at:] for new in (_note(old.lineno), old)]
    module.body[first:first] = ast.parse(_NOTE).body
    return ast.unparse(ast.fix_missing_locations(module))


def lines_reached(folder: Path, name: str) -> Lines:
    """What a module of an output folder has noted."""
    notes = folder / (name + _SUFFIX)
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    found: dict[int, set[int]] = defaultdict(set)
    for line, step in (map(int, note.split()) for note in text.splitlines()):
        found[line].add(step)
    return {line: frozenset(steps) for line, steps in found.items()}


def most_first(reached: Reached) -> Reached:
    """First what comes to most, then each time to most that none before came to."""
    left, seen = dict(reached), frozenset[int]()
    found: dict[Attempt, Lines] = {}
    while left:
        one = max(left, key=lambda one: len(left[one].keys() - seen))
        found[one] = left.pop(one)
        seen |= found[one].keys()
    return found


def coming_to(place: int, reached: Reached) -> list[tuple[Attempt, Part]]:
    """What of which attempts comes to a place: first these steps, then all.

    What one step finds out once may be wrong for those after it.
    """
    able = [one for one, lines in reached.items() if place in (ALWAYS, *lines)]
    whole = [(one, WHOLE) for one in able]
    found = {one: reached[one].get(place, frozenset({BEFORE})) for one in able}
    return [
        (one, Part(only=tuple(sorted(steps))))
        for one, steps in found.items()
        if BEFORE not in steps
    ] + whole


def place_of(source: str, node: ast.AST) -> int:
    """The line by which a module notes the statement that a node is in.

    Of what is done as the module is imported, and what nothing notes, it is `ALWAYS`.
    """
    line: int = getattr(node, "lineno", 0)
    if isinstance(node, ast.FunctionDef):  # what it does is another
        line = node.body[_described(node.body)].lineno
    return _places(source).get(line, ALWAYS)


@cache
def _places(source: str) -> Mapping[int, int]:
    """The line of the innermost statement that is noted, for each line."""
    found: dict[int, int] = {}
    for top in filter(on_the_host, ast.parse(source).body):
        for body in _bodies(top):
            for one in body:
                lines = range(one.lineno, (one.end_lineno or one.lineno) + 1)
                found |= dict.fromkeys(lines, one.lineno)
    return found


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements within one, the outer ones first."""
    for field in ("body", "orelse", "handlers", "finalbody"):
        body = getattr(tree, field, None)
        if not isinstance(body, list) or not body:
            continue
        if field != "handlers":
            yield body
        for one in list(body):
            yield from _bodies(one)


def _note(line: int) -> ast.stmt:
    return ast.parse(f"_reached({line})").body[0]


def _described(body: list[ast.stmt]) -> int:
    """How many statements a body begins with that only say what it is for."""
    return int(_is_text(body[0]))


def _is_text(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _leads(statement: ast.stmt) -> bool:
    """Whether a module's statement must stay ahead of all others."""
    return _is_text(statement) or ast.unparse(statement).startswith("from __future__")
