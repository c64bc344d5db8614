"""Mutants of a generated module: one small fault each, made on its syntax tree.

A verifier is trusted as far as it kills them. Nothing here runs a kernel.
"""

import ast
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmgen.base.ast_edits import Edit
from gemmgen.render.names.parts import GRAD_EPILOGUE
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import Plan
from gemmgen.verification.faults.families import families


@dataclass(frozen=True)
class Mutant:
    """A faulty module; `equivalent` says why no test could tell it, if none can.

    `file` is that of the schedules whose kernel has the fault; None if every launch may
    have it. In a module that launchers share, `place` is where it is, as `reach` has
    it.
    """

    name: str
    family: str
    source: str
    equivalent: str | None = None
    file: str | None = None
    place: int = 0


EQUIVALENT = {
    "other is one": "the other operand is 0 where K has ended, so the product is 0",
    "part runs past the end of K": "blocks beyond K are loaded as 0",
}
"""Families that compute the same as the kernel, with the reason."""

_WHOLE_LINES = "rows that descriptors describe end at 16 bytes, so no K block is 1 long"
_ONE_LINE = "every gemv of the table has a program for each {}, so none is beyond"
_LINES = {"m": "row", "n": "column"}
_EITHER_WAY = "strides find each element, whichever way blocks lie, in more time"
_FEW_SUMS = "sums beyond 2^31 elements are those of a matrix of 2^37"
_OWN_RESULTS = "results that are saved are made by the launcher, row by row"
_ALONG = {
    "left mask term dropped": "mask=mask_{}[:, None]",
    "right mask term dropped": "& mask_{}[None, :]",
    "mask dropped": "mask=mask_{})",
    "cdiv became floor": "tl.cdiv({1}, BLOCK_{1})",
}
_WHOLE_MASK = "mask=mask_m[:, None] & mask_n[None, :]"
"""What of a gemv looks for rows, or columns, beyond the last."""


def mutants(plan: Plan, stem: str, source: str) -> Iterator[Mutant]:
    """Every mutant of one of a kernel's files, each once, in the order of reading."""
    file = stem if stem in plan.files else None
    for one in mutated(source, families(plan)):
        yield Mutant(
            f"{one.name} of {stem}.py",
            one.family,
            one.source,
            EQUIVALENT.get(one.family)
            or _same_in_gemv(plan, one.family, file, one.node)
            or _same_in_whole_lines(one.family, file)
            or _same_by_pointers(one.family, file)
            or _same_in_gradients(plan, stem, one.family, one.node),
            file,
        )


@dataclass(frozen=True)
class Mutated:
    """A module with one edit: of which statement, of which node in it, at what line."""

    family: str
    line: int
    source: str
    statement: ast.stmt
    node: ast.AST

    @property
    def name(self) -> str:
        """The kind of fault and its place."""
        return f"{self.family}, line {self.line}"


def mutated(
    source: str,
    edits: Iterable[tuple[str, Edit]],
    wanted: Callable[[ast.stmt], bool] = lambda statement: True,
) -> Iterator[Mutated]:
    """A module with each edit made once wherever it applies in `wanted` statements."""
    body = ast.parse(source).body
    texts = [ast.unparse(statement) for statement in body]
    slots = [
        list(_slots(body, at)) if wanted(one) else [] for at, one in enumerate(body)
    ]
    seen = {_joined(texts)}
    for family, edit in edits:
        for at, statement in enumerate(body):
            for holder, key in slots[at]:
                node = holder[key]
                new = edit(node)
                if new is None:
                    continue
                line = getattr(node, "lineno", 0)
                # A copy, for it may be a part of the node, which keeps its place.
                new = ast.copy_location(copy.copy(new), node)
                holder[key] = ast.fix_missing_locations(new)
                text = _joined([*texts[:at], ast.unparse(body[at]), *texts[at + 1 :]])
                holder[key] = node
                if text not in seen:
                    seen.add(text)
                    yield Mutated(family, line, text, statement, node)


def _joined(texts: Sequence[str]) -> str:
    return "\n\n\n".join(texts)


def _same_in_gradients(plan: Plan, stem: str, family: str, node: ast.AST) -> str | None:
    """Why a fault of the gradients' kernel changes nothing there."""
    if stem != GRAD_EPILOGUE:
        return None
    if family == "offsets in 32 bits":
        return _FEW_SUMS
    steps = [one.matrix.stride("n") for one in plan.results]
    ours = isinstance(node, ast.Name) and node.id in steps
    return _OWN_RESULTS if ours and family == "stride taken as 1" else None


def _same_in_gemv(
    plan: Plan, family: str, schedule: str | None, node: ast.AST
) -> str | None:
    """Why masks of rows, or columns, may be missing where each program has one."""
    if schedule is None or not SCHEDULES[schedule].memory_bound:
        return None
    own = [tile for _, tile in plan.tiles if tile.schedule == schedule]
    lone = [axis for axis in _LINES if all(getattr(tile, axis) == 1 for tile in own)]
    form, text = _ALONG.get(family), ast.unparse(node)
    if len(lone) == 2 and family == "mask dropped" and _WHOLE_MASK in text:
        return _ONE_LINE.format("element")
    for axis in lone:
        if form and form.format(axis, axis.upper()) in text:
            return _ONE_LINE.format(_LINES[axis])
    return None


def _same_in_whole_lines(family: str, schedule: str | None) -> str | None:
    """Why a K loop may end an element early where rows are described."""
    described = schedule is not None and SCHEDULES[schedule].described
    return _WHOLE_LINES if described and family == "last of K lost" else None


def _same_by_pointers(family: str, schedule: str | None) -> str | None:
    """Why the blocks of multiply-adds may lie in shared memory either way."""
    by_fma = schedule is not None and SCHEDULES[schedule].by_fma
    return _EITHER_WAY if by_fma and family == "block turned the other way" else None


def _slots(holder: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Where a node and every one below it hang, in reading order.

    In a list, or among the attributes of another node, by `key`: so another one takes
    its place without a copy of all that is around it.
    """
    yield holder, key
    node = holder[key]
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for at, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _slots(value, at)
        elif isinstance(value, ast.AST):
            yield from _slots(vars(node), name)
