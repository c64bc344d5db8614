"""Mutants of Python around kernels that nothing can tell from it, with the reasons."""

import ast

from gemmgen.verification.mutants import Mutated

_SAME: dict[str, tuple[tuple[str, str, str], ...]] = {}
"""By module: a family, a text of the node that was edited, and the reason."""


def excuse(module: str, mutated: Mutated) -> str | None:
    """Why a mutant of a module does what the module does; None if it should not."""
    text = ast.unparse(mutated.node)
    for family, part, reason in _SAME.get(module, ()):
        if family in ("", mutated.family) and part in text:
            return reason
    return None
