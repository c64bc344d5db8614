"""Mutants of a generated module: one small fault each, made on its syntax tree.

A verifier is trusted as far as it kills them. Nothing here runs a kernel.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.plan import Plan
from gemmgen.verification.edits import Edit
from gemmgen.verification.faults import families


@dataclass(frozen=True)
class Mutant:
    """A faulty module; `equivalent` says why no test could tell it, if none can."""

    name: str
    family: str
    source: str
    equivalent: str | None = None


_EQUIVALENT = {
    "other is one": "the other operand is 0 where K has ended, so the product is 0",
}
"""Families that compute the same as the kernel, with the reason."""


def mutants(plan: Plan, source: str) -> Iterator[Mutant]:
    """Every mutant of a module, each once, in the order in which the kernel reads."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for family, edit in families(plan):
        for place in range(_places(tree, edit)):
            mutated, line = _edited(tree, edit, place)
            text = ast.unparse(ast.fix_missing_locations(mutated))
            if text not in seen:
                seen.add(text)
                name = f"{family}, line {line}"
                yield Mutant(name, family, text, _EQUIVALENT.get(family))


def _places(tree: ast.Module, edit: Edit) -> int:
    return sum(edit(node) is not None for node in _nodes(tree))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node in reading order."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from _nodes(child)


class _Replace(ast.NodeTransformer):
    """Replaces the node at one place of those that an edit applies to."""

    def __init__(self, edit: Edit, place: int) -> None:
        self.edit = edit
        self.left = place
        self.line = 0

    def visit(self, node: ast.AST) -> ast.AST:
        new = self.edit(node)
        if new is not None:
            self.left -= 1
            if self.left == -1:
                self.line = getattr(node, "lineno", 0)
                return ast.copy_location(new, node)
        return self.generic_visit(node)


def _edited(tree: ast.Module, edit: Edit, place: int) -> tuple[ast.Module, int]:
    """A copy of the tree with the edit made at its `place`-th opportunity."""
    replace = _Replace(edit, place)
    mutated = replace.visit(copy.deepcopy(tree))
    assert isinstance(mutated, ast.Module)
    return mutated, replace.line
