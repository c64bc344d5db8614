"""Mutants of Python around kernels that nothing can tell from it, with the reasons."""

import ast
from dataclasses import dataclass
from importlib.metadata import version

from gemmgen.verification.mutate.mutants import Mutated

_OLDEST = version("triton").startswith("3.6.")

_ONE_DTYPE = "a kernel has its dtypes for good, sides of blocks among constants"
_NOTED = "Triton notes every kernel's descriptors, none in an empty list"
_FINER = "kernels are told apart by more than Triton tells them by, and compiled again"
_ANEW = "what is not found is made anew, as it was"
_TYPES = "a bound of types is nobody's at run time"
_OTHER_ENTRY = "torch without the allocator's entry of compiled graphs comes here alone"
_SLOWER = "the same is found in more time"
_EITHER = "at the very bound either tile will do"
_BOTH_RIGHT = "at the very bound either formula will do"
_STAYS_NAN = "what it is added to, or multiplied by, is NaN too"
_WORDS = "it is refused all the same, in other words"
_MENDED = "the verifier's interpreter is mended, and multiplies bf16"
_INFERENCE = "torch 2.13 passes over tensors of inference mode, older ones refuse them"
_EMPTY = "what is empty has the address 0, from which everything is apart"
_MORE_ROOM = "there is more room than is needed"
_DICT = "a dict is made without it"
_NOT_ALIKE = "with `out` its own shape stays in the key, so that no other call is alike"
_TRIAL = "the trial tells as much, or fails, and signatures are compared in Python"
_ONE_BOX = "what lies in lines of 128 bytes is one box, of at most 256"
_OTHER_PIECES = "the same in pieces, or in boxes, of other sizes"
_RACED = "a kernel that is autotuned takes no descriptors"
_ALONE = "what has more columns than are stored at a time is a tile's only sum"
_NOT_YET = "Triton 3.6 launches and rounds in the one way that is left"


@dataclass(frozen=True)
class _Same:
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


_SAME: dict[str, tuple[_Same, ...]] = {
    "_runtime/blocks.py": (
        _Same(
            "box cut from the piece's first",
            "cut(piece, i * SIDE, SIDE, AXIS)",
            _ONE_BOX,
            "[other, at], bar, cut(piece, 0, SIDE, AXIS)",
        ),
    ),
    "_runtime/pipeline.py": (
        _Same("half in another layout", "", "the same values in other registers"),
        _Same("piece of another", "sums[i]", _ALONE, "if sums[0].shape[1] >"),
        _Same("piece of another", "sums[i]", _ALONE, "halves(sums[0])"),
    ),
    "_runtime/functions.py": (
        _Same("< became <=", "tl.abs(x) < 0.5", _BOTH_RIGHT),
        _Same("NaN dropped", "tl.maximum(x, 0.0", _STAYS_NAN, "0.0) + log1p_t"),
        _Same("NaN dropped", "tl.maximum(x + 3.0", _STAYS_NAN),
        _Same("NaN dropped", "tl.minimum(gate, 6.0", _STAYS_NAN),
    ),
    "_runtime/support.py": (
        _Same("argument by name dropped", "torch.empty_strided(", _OTHER_ENTRY),
        _Same(
            "condition dropped",
            "torch.cuda.current_device()",
            _SLOWER,
            "if device.type != 'cuda':",
        ),
        _Same("never taken", "if len(leading) == 1:", _SLOWER),
        _Same("never taken", "if tensor.is_contiguous() and", _SLOWER),
        _Same("bound moved by one", "tensor.numel() <= 2 ** 31", _SLOWER),
        _Same("always taken", "if last >= 2 ** 31:", _SLOWER),
        _Same(
            "alignment or width changed",
            "math.gcd(16",
            "what is a multiple of 32 is one of 16",
        ),
    ),
    "_runtime/table.py": (
        _Same("always taken", "MOST_ROWS", _ANEW),
        _Same("statement dropped", "super().__init__()", _DICT),
        _Same("condition dropped", "not tile.waves or", _SLOWER, "and tile.fills("),
        _Same(
            "condition dropped",
            "matrix.shape[0] == 1",
            "a single row whose step is short is served by another tile",
            "and (rows >= matrix.shape[1]) and",
        ),
        _Same("always taken", "if name not in able:", _SLOWER),
        _Same("always taken", "if key not in RUNNING:", _ANEW),
    ),
    "_runtime/tile.py": (
        _Same("never taken", "256 if warpgroups < 3", _OTHER_PIECES),
        _Same("always taken", "256 if warpgroups < 3", _OTHER_PIECES),
        _Same("bound moved by one", "warpgroups < 3", _OTHER_PIECES),
        _Same("always taken", "MOST_STORED if stored", _OTHER_PIECES),
        _Same("condition dropped", "beside and", _OTHER_PIECES, "stored = shared =="),
        _Same("never taken", "larger[-1] if larger", _OTHER_PIECES),
        _Same("box of another piece", "larger[-1]", _OTHER_PIECES),
        _Same("boxes exchanged", "tuple(first)", _OTHER_PIECES),
        _Same("bound moved by one", "tiles >= self.waves", _EITHER),
        _Same("bound moved by one", "needed <= room", _EITHER),
        _Same("bound moved by one", "self.split_k > 0", "no tile has 0 parts of K"),
    ),
    "_runtime/checks.py": (
        _Same(
            "condition dropped",
            "__torch_dispatch__",
            _SLOWER,
            "if type(tensor).__torch_dispatch__ is not",
        ),
        _Same("condition dropped", "tensor.is_nested", _WORDS, "if tensor.is_nested:"),
        _Same("never taken", "'nested' if tensor.is_nested", _WORDS),
        _Same("always taken", "'nested' if tensor.is_nested", _WORDS),
        _Same(
            "condition dropped",
            "tensor.is_conj()",
            "what is conjugated is complex, which no kernel takes",
            "if tensor.is_neg():",
        ),
        _Same(
            "condition dropped",
            "interprets_bf16()",
            _MENDED,
            "if INTERPRETED and (not interprets_bf16()):",
        ),
        _Same(
            "condition dropped",
            "interprets_bf16()",
            _MENDED,
            "tensor.dtype == torch.bfloat16:",
        ),
        _Same("never taken", "interprets_bf16()", _MENDED),
        _Same("accumulator narrowed", "tl.dot(a, a)", _MENDED),
        _Same("always true", "@functools.cache", _MENDED),
        _Same(
            "condition dropped",
            "wanted[0] is ...",
            "no tensor has no axes",
            "if wanted[0] is ...:",
        ),
        _Same("never taken", "if found == wanted:", _SLOWER),
        _Same(
            "condition dropped",
            "isinstance(out, (tuple, list))",
            _WORDS,
            "if len(out) != count:",
        ),
        _Same(
            "sum became largest",
            "if step % pitch",
            "of a matrix' axes one alone has no multiple of another's steps",
        ),
        _Same("never taken", "'...' if size is ...", _WORDS),
        _Same("always taken", "'...' if size is ...", _WORDS),
        _Same("always taken", "out.is_inference()", _INFERENCE),
        _Same(
            "bound moved by one",
            "step <= reached",
            "steps are whole elements, what is reached ends a byte before one",
        ),
        _Same(
            "bound of min or max dropped",
            "max(0, len(found)",
            "after ... comes one size in each shape",
        ),
        _Same("condition dropped", "not one.numel()", _EMPTY, "if distance >="),
        _Same("never taken", "if not tensor.numel():", _EMPTY),
    ),
    "_runtime/dispatch.py": (
        _Same("always taken", "if tile else ()", _RACED),
        _Same("bound moved by one", "at > 1", "B has no side that is cut into pieces"),
    ),
    "_runtime/launch.py": (
        _Same("always taken", "if parts > 1 else 1", _MORE_ROOM),
        _Same("bound moved by one", "parts > 1", _MORE_ROOM),
        _Same("bound moved by one", "found[1].numel() < counts", _ANEW),
    ),
    "_runtime/packed.py": (
        _Same("statement dropped", "super().__init__()", _DICT),
        _Same("always taken", "MOST_MAPS", _ANEW),
        _Same("first of several left out", "*one[1:]", _ONE_DTYPE),
        _Same("last of several left out", "*one[1:]", _ONE_DTYPE),
        _Same("part of a key dropped", "one.matrix.dtype", _ONE_DTYPE),
        _Same("statement dropped", "one.matrix.dtype", _ONE_DTYPE),
        _Same(
            "part of a key dropped",
            "one.dtype, one.data_ptr()",
            _ONE_DTYPE,
            "key += (one.data_ptr() & 15 == 0,)",
        ),
        _Same("never taken", "parameter.do_not_specialize", _FINER),
        _Same("always taken", "parameter.is_constexpr", _FINER),
        _Same(
            "condition dropped",
            "tensordesc_meta or ()",
            _NOTED,
            "tuple(made.metadata.tensordesc_meta)",
        ),
    ),
    "_runtime/replay.py": (
        _Same("always taken", "MOST_ARGUMENTS", _ANEW),
        _Same("statement dropped", "super().__init__()", _DICT),
    ),
    "_runtime/families.py": (
        _Same(
            "condition dropped",
            "family.learning and torch.is_grad_enabled()",
            _SLOWER,
            "if bits % ALIGNED or torch.is_grad_enabled():",
        ),
        _Same(
            "condition dropped",
            "family.learning and torch.is_grad_enabled()",
            _SLOWER,
            "if bits % ALIGNED or family.learning:",
        ),
        _Same("always taken", "if bits % ALIGNED", _SLOWER),
        _Same("condition dropped", "family not in", _SLOWER, "if family.alike:"),
        _Same("never taken", "family not in", _SLOWER),
        _Same("never taken", "if family.alike(", _SLOWER),
        _Same("bound moved by one", "launch.sizes[0] > self.most", _SLOWER),
        _Same("bound moved by one", "self.most < M", _SLOWER),
    ),
    "_runtime/repeats.py": (
        _Same("argument by name dropped", "dynamic_dims_", "it is torch's default"),
        _Same("always taken", "if not discerning()", _SLOWER),
        _Same("always taken", "if any((one.data_ptr() % ALIGNED", _SLOWER),
        _Same("always false", "@functools.cache", _SLOWER),
        _Same("part of a key dropped", "torch.zeros(4, 4", _TRIAL),
        _Same("part of a key dropped", "torch.ones(4, 4)", _TRIAL),
        _Same("argument by name dropped", "torch.zeros(4, 4", _TRIAL),
        _Same("argument by name dropped", "torch.nn.Parameter(plain", _TRIAL),
        _Same(
            "bound moved by one",
            "before < distance < behind",
            "tensors that touch are looked at once more",
        ),
    ),
    "_runtime/launch_cache.py": (
        _Same("never taken", "if family and family.device", _SLOWER),
        _Same("statement dropped", "latest.keep(", _SLOWER),
        _Same("argument by name dropped", "covariant=True", _TYPES),
        _Same(
            "argument by name dropped", "**named", "it raises for the other arguments"
        ),
        _Same(
            "never taken",
            "if INTERPRETED",
            "what is interpreted is never launched directly, so nothing is remembered",
        ),
        _Same(
            "always taken",
            "if named or len(inputs) != count:",
            "what is in order stays so",
        ),
        _Same("always taken", "one.is_inference()", _INFERENCE),
    ),
}
"""By module."""

_SAME_ON_OLDEST: dict[str, tuple[_Same, ...]] = {
    "_runtime/launch.py": (
        _Same("condition dropped", "self.to_tf32 and", _NOT_YET, "if ROUNDS else {}"),
        _Same("never taken", "self.to_tf32 and ROUNDS", _NOT_YET),
        _Same("condition dropped", "not ROUNDS and", _NOT_YET, "if any("),
    ),
    "_runtime/packed.py": (
        _Same("never taken", "kernel_signature", _NOT_YET),
        _Same("never taken", "found.nested", _NOT_YET),
        _Same("never taken", "TF32 if block.to_tf32", "it has been noted as it rounds"),
        _Same(
            "argument by name dropped",
            "round_f32_to_tf32=",
            _NOT_YET,
            "padding='zero')",
        ),
    ),
}
"""The same where the first of the Tritons that are served is installed."""


def excuse(module: str, mutated: Mutated) -> str | None:
    """Why a mutant of a module does what the module does; None if it should not."""
    rows = _SAME.get(module, ())
    if _OLDEST:
        rows += _SAME_ON_OLDEST.get(module, ())
    return next((row.reason for row in rows if row.covers(mutated)), None)
