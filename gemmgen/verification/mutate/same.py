"""Mutants that nothing can tell from what they were made of: how they are described."""

import ast
from dataclasses import dataclass

from gemmgen.verification.mutate.mutants import Mutated

ANEW = "what is not found is made anew, as it was"
SLOWER = "the same is found in more time"
INFERENCE = "torch 2.13 passes over tensors of inference mode, older ones refuse them"
EITHER = "at the very bound either tile will do"
TYPES = "a bound of types is nobody's at run time"
DICT = "a dict is made without it"


@dataclass(frozen=True)
class Same:
    """A family of faults, of the node's first line and of the new module some text."""

    family: str
    node: str
    reason: str
    becomes: str = ""

    def covers(self, mutated: Mutated) -> bool:
        """Whether a mutant is one of these."""
        node = ast.unparse(mutated.node).partition("\n")[0]
        alike = self.family == mutated.family and self.node in node
        return alike and self.becomes in mutated.source
