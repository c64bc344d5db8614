"""Mutants of Python around kernels that nothing can tell from it, with the reasons."""

from importlib.metadata import version

from gemmgen.verification.mutate.mutants import Mutated
from gemmgen.verification.mutate.path_excuses import PATH, PATH_ON_OLDEST
from gemmgen.verification.mutate.same import (
    ANEW,
    DICT,
    EITHER,
    INFERENCE,
    SLOWER,
    TYPES,
    Same,
)
from gemmgen.verification.mutate.tile_excuses import TILES, TILES_ON_OLDEST

_OLDEST = version("triton").startswith("3.6.")

_OTHER_ENTRY = "torch without the allocator's entry of compiled graphs comes here alone"
_BOTH_RIGHT = "at the very bound either formula will do"
_STAYS_NAN = "what it is added to, or multiplied by, is NaN too"
_WORDS = "it is refused all the same, in other words"
_MENDED = "the verifier's interpreter is mended, and multiplies bf16"
_EMPTY = "what is empty has the address 0, from which everything is apart"
_NO_PROGRAM = "a grid without programs launches nothing"
_OTHER_TORCH = "every torch that is served has it"
_FOR_GOOD = "an operator is there as long as its process"
_RACED = "a kernel that is autotuned takes no descriptors"

_SAME: dict[str, tuple[Same, ...]] = {
    **PATH,
    **TILES,
    "_runtime/packed.py": (
        *PATH["_runtime/packed.py"],
        Same(
            "first of several left out",
            "*launch.options.values()",
            "the first is whether product and sum are fused, which all are",
        ),
    ),
    "_runtime/device.py": (Same("< became <=", "x < 0", _BOTH_RIGHT),),
    "_runtime/functions.py": (
        Same("< became <=", "tl.abs(x) < 0.5", _BOTH_RIGHT),
        Same("NaN dropped", "tl.maximum(x, 0.0", _STAYS_NAN, "0.0) + log1p_t"),
        Same("NaN dropped", "tl.maximum(x + 3.0", _STAYS_NAN),
        Same("NaN dropped", "tl.minimum(gate, 6.0", _STAYS_NAN),
    ),
    "_runtime/support.py": (
        Same("statement dropped", "super().__init__()", DICT),
        Same("argument by name dropped", "_current_level=-1", _OTHER_TORCH),
        Same("never taken", "hasattr(DUAL, '_current_level')", _OTHER_TORCH),
        Same("always taken", "if kind is not torch.Tensor:", SLOWER),
        Same("always taken", "own is not torch.Tensor.__torch_dispatch__", SLOWER),
        Same("always taken", "len(self) >= self.most", ANEW),
        Same("accumulator narrowed", "tl.dot(a, a)", _MENDED),
        Same("always true", "@functools.cache", _MENDED),
        Same("argument by name dropped", "torch.empty_strided(", _OTHER_ENTRY),
        Same(
            "condition dropped",
            "torch.cuda.current_device()",
            SLOWER,
            "if device.type != 'cuda':",
        ),
        Same("never taken", "if len(leading) == 1:", SLOWER),
        Same("never taken", "if tensor.is_contiguous() and", SLOWER),
        Same("bound moved by one", "tensor.numel() <= 2 ** 31", SLOWER),
        Same("always taken", "if last >= 2 ** 31:", SLOWER),
        Same(
            "alignment or width changed",
            "math.gcd(16",
            "what is a multiple of 32 is one of 16",
        ),
    ),
    "_runtime/table.py": (
        Same("condition dropped", "not tile.waves or", SLOWER, "elif tile.fills("),
        Same(
            "condition dropped",
            "matrix.shape[0] == 1",
            "a single row whose step is short is served by another tile",
            "and (rows >= matrix.shape[1]) and",
        ),
        Same("condition dropped", "M * N > LONGEST_GRID", SLOWER, "if tile.tiles("),
        Same("bound moved by one", "M * N > LONGEST_GRID", SLOWER),
        Same("always taken", "tile.at_least(", SLOWER),
        Same("bound moved by one", "tile.at_least(", SLOWER),
        Same("bound moved by one", "time < least", EITHER),
        Same(
            "part of a key dropped",
            "sm, room, starts",
            "what room a block may have follows from the compute capability",
            "key = (id(tiles), sm, starts)",
        ),
        Same("always taken", "if name not in able:", SLOWER),
        Same("always taken", "if key not in RUNNING:", ANEW),
    ),
    "_runtime/checks.py": (
        Same("argument by name dropped", "frozen=True", "nobody sets anything of it"),
        Same(
            "condition dropped",
            "__torch_dispatch__",
            SLOWER,
            "if type(tensor).__torch_dispatch__ is not",
        ),
        Same("condition dropped", "tensor.is_nested", _WORDS, "if tensor.is_nested:"),
        Same("never taken", "'nested' if tensor.is_nested", _WORDS),
        Same("always taken", "'nested' if tensor.is_nested", _WORDS),
        Same(
            "condition dropped",
            "tensor.is_conj()",
            "what is conjugated is complex, which no kernel takes",
            "if tensor.is_neg():",
        ),
        Same(
            "condition dropped",
            "wanted[0] is ...",
            "no tensor has no axes",
            "if wanted[0] is ...:",
        ),
        Same("never taken", "if found == wanted:", SLOWER),
        Same(
            "condition dropped",
            "isinstance(out, (tuple, list))",
            _WORDS,
            "if len(out) != count:",
        ),
        Same(
            "sum became largest",
            "if step % pitch",
            "of a matrix' axes one alone has no multiple of another's steps",
        ),
        Same("never taken", "'...' if size is ...", _WORDS),
        Same("always taken", "'...' if size is ...", _WORDS),
        Same("always taken", "out.is_inference()", INFERENCE),
        Same(
            "bound moved by one",
            "step <= reached",
            "steps are whole elements, what is reached ends a byte before one",
        ),
        Same(
            "bound of min or max dropped",
            "max(0, len(found)",
            "after ... comes one size in each shape",
        ),
        Same("condition dropped", "not one.numel()", _EMPTY, "if distance >="),
        Same("never taken", "if not tensor.numel():", _EMPTY),
    ),
    "_runtime/operators/entry.py": (
        Same("argument by name dropped", "torch.library.register_fake(", _FOR_GOOD),
        Same("argument by name dropped", "torch.library.register_vmap(", _FOR_GOOD),
        Same("never taken", "if not (redirected or", SLOWER),
        Same("always taken", "DUAL._current_level >= 0", SLOWER),
        Same("with dropped", "torch._C._AutoDispatchBelowAutograd()", SLOWER),
    ),
    "_runtime/operators/operator.py": (
        Same("argument by name dropped", "bound=Callable", TYPES),
        Same(
            "condition dropped", "out is None and profiling()", SLOWER, "or profiling()"
        ),
        Same("condition dropped", "dim is None or name in self.by_row", SLOWER),
        Same("never taken", "if all((dim is None or name in", SLOWER),
        Same("always false", "@property", "the same rows, in other groups"),
        Same(
            "argument by name dropped",
            "torch.empty(0, device='meta')",
            "in a dry run the CPU does as well",
        ),
    ),
    "_runtime/gradients/function.py": (
        Same("never taken", "if not in_transform():", SLOWER),
    ),
    "_runtime/gradients/elementwise.py": (
        Same("condition dropped", "M and N", _NO_PROGRAM),
        Same("always taken", "if M and N:", _NO_PROGRAM),
        Same(
            "condition dropped",
            "replay and device == current_device()",
            "what was never launched has no device either",
            "if device == current_device()",
        ),
        Same("always taken", "if missing else given", SLOWER),
        Same(
            "first of several left out",
            "*key",
            "it is the type of results that are given, of which a pass has none",
        ),
    ),
    "_runtime/operators/launcher.py": (
        Same("argument by name dropped", "covariant=True", TYPES),
    ),
    "_runtime/operators/sharding.py": (
        Same(
            "condition dropped", "slot.sharded is not None or", SLOWER, "if 'torch.dis"
        ),
    ),
    "_runtime/layers/base.py": (
        Same("argument by name dropped", "cls(linear.in_features", SLOWER),
    ),
    "_runtime/dispatch.py": (
        Same("always taken", "if tile else ((), ())", _RACED),
        Same("bound moved by one", "at > 1", "B has no side that is cut into pieces"),
        Same("always taken", "tile is None or getattr(tile, axis) > 1", SLOWER),
        Same("bound moved by one", "getattr(tile, axis) > 1", SLOWER),
    ),
}
"""By module."""


def excuse(module: str, mutated: Mutated) -> str | None:
    """Why a mutant of a module does what the module does; None if it should not."""
    rows = _SAME.get(module, ())
    if _OLDEST:
        rows += {**PATH_ON_OLDEST, **TILES_ON_OLDEST}.get(module, ())
    return next((row.reason for row in rows if row.covers(mutated)), None)
