"""Mutants of Python around kernels: launchers' modules, and those that they share."""

from collections.abc import Iterator

from gemmgen.verification.mutate.host_excuses import excuse
from gemmgen.verification.mutate.host_faults import host_families, on_the_host
from gemmgen.verification.mutate.mutants import Mutant, mutated


def host_mutants(name: str, source: str) -> Iterator[Mutant]:
    """Every mutant of what Python itself runs of a module, each once."""
    for one in mutated(source, host_families(), on_the_host):
        yield Mutant(f"{one.name} of {name}", one.family, one.source, excuse(name, one))
