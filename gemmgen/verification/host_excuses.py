"""Mutants of Python around kernels that nothing can tell from it, with the reasons."""

import ast
from dataclasses import dataclass
from importlib.metadata import version

from gemmgen.verification.mutants import Mutated

_OLDEST = version("triton").startswith("3.6.")

_ONE_DTYPE = (
    "a kernel has its tensors' dtypes for good, sides of blocks among constants"
)
_NOTED = (
    "Triton notes every kernel's descriptors, and an empty list where there are none"
)
_FINER = "kernels are told apart by more than Triton tells them by, and compiled again"
_ANEW = "what is not found is made anew, as it was"
_TYPES = "a bound of types is nobody's at run time"
_OTHER_ENTRY = "torch without the allocator's entry of compiled graphs comes here alone"
_MORE_ROOM = "there is more room than is needed"
_NOT_YET = "Triton 3.6 launches and rounds in the one way that is left"


@dataclass(frozen=True)
class _Same:
    """A family of faults, of the node's first line and of the new module some text."""

    family: str
    node: str
    becomes: str
    reason: str


_SAME: dict[str, tuple[_Same, ...]] = {
    "_replay.py": (
        _Same("part of a key dropped", "one.matrix.dtype", "", _ONE_DTYPE),
        _Same("statement dropped", "one.matrix.dtype", "", _ONE_DTYPE),
        _Same(
            "part of a key dropped",
            "one.dtype, one.data_ptr()",
            "key += (one.data_ptr() & 15 == 0,)",
            _ONE_DTYPE,
        ),
        _Same("never taken", "parameter.do_not_specialize", "", _FINER),
        _Same("always taken", "parameter.is_constexpr", "", _FINER),
        _Same("always taken", "MOST_ARGUMENTS", "", _ANEW),
        _Same(
            "statement dropped", "super().__init__()", "", "a dict is made without it"
        ),
        _Same(
            "condition dropped",
            "tensordesc_meta or ()",
            "tuple(made.metadata.tensordesc_meta)",
            _NOTED,
        ),
    ),
    "_launch.py": (
        _Same("always taken", "if parts > 1 else 1", "", _MORE_ROOM),
        _Same("bound moved by one", "parts > 1", "", _MORE_ROOM),
        _Same("bound moved by one", "found[1].numel() < tiles", "", _ANEW),
    ),
    "_remember.py": (
        _Same("argument by name dropped", "bound=Callable", "", _TYPES),
        _Same(
            "argument by name dropped",
            "**named",
            "",
            "it raises for the other arguments",
        ),
        _Same("argument by name dropped", "torch.empty_strided(", "", _OTHER_ENTRY),
        _Same(
            "condition dropped",
            "harmless(repeat.overlaps",
            "if not harmless(",
            "without `out` there are no overlaps",
        ),
        _Same(
            "always taken",
            "if given else ()",
            "",
            "overlaps are looked at with `out` alone",
        ),
        _Same(
            "condition dropped",
            "MOST_CALLS and (not seen)",
            "if len(calls) >= MOST_CALLS:",
            _ANEW,
        ),
        _Same(
            "never taken",
            "if INTERPRETED",
            "",
            "what is interpreted is never launched directly, so nothing is remembered",
        ),
        _Same("always taken", "if named:", "", "without names nothing is put in order"),
        _Same(
            "bound moved by one",
            "before < distance < behind",
            "",
            "tensors that touch are looked at once more",
        ),
        _Same(
            "always taken",
            "one.is_inference()",
            "",
            "torch 2.13 passes tensors of inference mode over, older ones refuse them",
        ),
    ),
}
"""By module."""

_SAME_ON_OLDEST: dict[str, tuple[_Same, ...]] = {
    "_replay.py": (
        _Same("never taken", "kernel_signature", "", _NOT_YET),
        _Same("never taken", "found.nested", "", _NOT_YET),
        _Same(
            "argument by name dropped",
            "round_f32_to_tf32=",
            "padding='zero')",
            _NOT_YET,
        ),
    ),
    "_launch.py": (
        _Same(
            "condition dropped",
            "self.to_tf32 and ROUNDS",
            "if ROUNDS else {}",
            _NOT_YET,
        ),
        _Same("never taken", "self.to_tf32 and ROUNDS", "", _NOT_YET),
    ),
}
"""The same where the first of the Tritons that are served is installed."""


def excuse(module: str, mutated: Mutated) -> str | None:
    """Why a mutant of a module does what the module does; None if it should not."""
    rows = _SAME.get(module, ())
    if _OLDEST:
        rows += _SAME_ON_OLDEST.get(module, ())
    text = ast.unparse(mutated.node).partition("\n")[0]
    for row in rows:
        same = row.family == mutated.family and row.node in text
        if same and row.becomes in mutated.source:
            return row.reason
    return None
