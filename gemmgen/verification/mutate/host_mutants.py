"""Mutants of Python around kernels, and of functions that all kernels share."""

import ast
from collections.abc import Iterator

from gemmgen.select.plan import Plan
from gemmgen.verification.faults.families import families
from gemmgen.verification.faults.host import host_families, on_the_host
from gemmgen.verification.mutate.host_excuses import excuse
from gemmgen.verification.mutate.mutants import EQUIVALENT, Mutant, mutated
from gemmgen.verification.mutate.reach import place_of


def host_mutants(name: str, source: str) -> Iterator[Mutant]:
    """Every mutant of what Python itself runs of a module, each once."""
    for one in mutated(source, host_families(), on_the_host):
        place = place_of(source, one.node)
        what, same = f"{one.name} of {name}", excuse(name, one)
        yield Mutant(what, one.family, one.source, same, place=place)


def device_mutants(plan: Plan, name: str, source: str) -> Iterator[tuple[str, Mutant]]:
    """Every mutant of a module's functions of the device, with the function's name.

    They have the faults that kernels have, of which `plan` decides a few.
    """
    for one in mutated(source, families(plan), on_the_device):
        assert isinstance(one.statement, ast.FunctionDef)
        what = f"{one.name} of {name}"
        same = EQUIVALENT.get(one.family) or excuse(name, one)
        made = Mutant(what, one.family, one.source, same)
        yield one.statement.name, made


def on_the_device(statement: ast.stmt) -> bool:
    """Whether a statement of a module is a function that kernels call."""
    return isinstance(statement, ast.FunctionDef) and not on_the_host(statement)
