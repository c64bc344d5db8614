"""Of what launches and remembers calls, and layers: mutants that nothing can tell."""

from gemmgen.verification.mutate.same import ANEW, SLOWER, TYPES, Same

_ONE_DTYPE = "a kernel has its dtypes for good, sides of blocks among constants"
_NOTED = "Triton notes every kernel's descriptors, none in an empty list"
_FINER = "kernels are told apart by more than Triton tells them by, and compiled again"
_MORE_ROOM = "there is more room than is needed"
_NOTHING_KEPT = (
    "what is interpreted is never launched directly, so nothing is remembered"
)
_TRIAL = "the trial tells as much, or fails, and signatures are compared in Python"
_UNWATCHED = "when an operator launches nobody watches, and it has no gradient"
_WAITED = "what is sent is waited for at once, not where it is read"
_NO_START = "torch's styles have nothing to begin with"
_NOT_YET = "Triton 3.6 launches and rounds in the one way that is left"

PATH: dict[str, tuple[Same, ...]] = {
    "_runtime/launch.py": (
        Same("always taken", "if splits > 1 else 1", _MORE_ROOM),
        Same("bound moved by one", "splits > 1", _MORE_ROOM),
        Same("bound moved by one", "found[1].numel() < counts", ANEW),
    ),
    "_runtime/packed.py": (
        Same("first of several left out", "*one[1:]", _ONE_DTYPE),
        Same("last of several left out", "*one[1:]", _ONE_DTYPE),
        Same("part of a key dropped", "one.matrix.dtype", _ONE_DTYPE),
        Same("statement dropped", "one.matrix.dtype", _ONE_DTYPE),
        Same(
            "part of a key dropped",
            "one.dtype, one.data_ptr()",
            _ONE_DTYPE,
            "key += (one.data_ptr() & 15 == 0,)",
        ),
        Same("never taken", "parameter.do_not_specialize", _FINER),
        Same("always taken", "parameter.is_constexpr", _FINER),
        Same(
            "condition dropped",
            "tensordesc_meta or ()",
            _NOTED,
            "tuple(kernel.metadata.tensordesc_meta)",
        ),
    ),
    "_runtime/replay.py": (
        Same("always taken", "if template.launch.splits", SLOWER),
        Same("never taken", "if counts[1] == 1", SLOWER),
        Same("always taken", "if launch.tma_args:", SLOWER),
        Same("always taken", "if found.notes", "every Triton that is served has it"),
    ),
    "_runtime/families.py": (
        Same("condition dropped", "self.chosen.get(M)", SLOWER, "self.choose(M)\n"),
        Same("never taken", "if repeat is not None", SLOWER),
        Same("never taken", "if leading == self.last", SLOWER),
        Same("always taken", "if leading == self.last", SLOWER),
        Same("always taken", "if by_row else set()", SLOWER),
        Same(
            "bound moved by one",
            "math.prod(leading) > 1",
            "where several rows lie without gaps, so does a single one",
        ),
        Same("condition dropped", "family not in", SLOWER, "if family.matches:"),
        Same("bound moved by one", "launch.sizes[0] > self.most", SLOWER),
        Same("bound moved by one", "self.most < M", SLOWER),
    ),
    "_runtime/repeats.py": (
        Same(
            "condition dropped",
            "j >= len(inputs)",
            "inputs that share memory otherwise are looked at once more",
            "if isinstance(one, torch.Tensor)]",
        ),
        Same("bound moved by one", "-LARGEST <= number <= LARGEST", SLOWER),
        Same("part of a key dropped", "torch.zeros(4, 4", _TRIAL),
        Same("argument by name dropped", "torch.zeros(4, 4", _TRIAL),
        Same("argument by name dropped", "torch.nn.Parameter(usual", _TRIAL),
        Same(
            "bound moved by one",
            "before < distance < behind",
            "tensors that touch are looked at once more",
        ),
    ),
    "_runtime/launch_cache.py": (
        Same("never taken", "if repeat:", SLOWER),
        Same("argument by name dropped", "covariant=True", TYPES),
        Same(
            "argument by name dropped", "**named", "it raises for the other arguments"
        ),
        Same(
            "condition dropped", "out is None and profiling()", SLOWER, "or profiling()"
        ),
        Same(
            "condition dropped",
            "out is None and profiling()",
            SLOWER,
            "must_dispatch(every) or out is None",
        ),
        Same("condition dropped", "needs_gradient(inputs)", SLOWER, "if not inter"),
        Same(
            "condition dropped",
            "out is None and torch.is_grad_enabled()",
            SLOWER,
            "with_grad = out is None\n",
        ),
        Same("never taken", "if self.gradient and", SLOWER),
        Same(
            "argument by name dropped",
            "self.launcher(*inputs, out=out)",
            "an operator, whose call this is, is given no out",
            "tracked, inputs, out)\n            return self.launcher(*inputs)\n",
        ),
        Same("condition dropped", "tracked and call", _UNWATCHED, "out, call)"),
        Same(
            "condition dropped", "tracked and watching()", _UNWATCHED, "if watching()"
        ),
        Same("never taken", "if not (tracing() or must_dispatch(every)", SLOWER),
        Same("never taken", "if INTERPRETED", _NOTHING_KEPT),
        Same(
            "always taken",
            "if named or len(inputs) != count:",
            "what is in order stays so",
        ),
    ),
    "_runtime/layers/parallel.py": (
        *(
            Same("argument by name dropped", "one.redistribute(", _WAITED, becomes)
            for becomes in (
                "one.redistribute(placements=[wanted])\n",
                "one.redistribute(placements=[self.output_layouts]) for",
            )
        ),
        Same("statement dropped", "super().__init__()", _NO_START),
    ),
}
"""By module."""

PATH_ON_OLDEST: dict[str, tuple[Same, ...]] = {
    "_runtime/device.py": (
        Same("never taken", "hasattr(tma, 'async_load')", "Triton 3.6 has old names"),
    ),
    "_runtime/launch.py": (
        Same("condition dropped", "self.to_tf32 and", _NOT_YET, "if ROUNDS else {}"),
        Same("never taken", "self.to_tf32 and ROUNDS", _NOT_YET),
        Same("condition dropped", "not ROUNDS and", _NOT_YET, "if any("),
    ),
    "_runtime/packed.py": (
        *(
            Same(f"{which} of several left out", node, _NOT_YET, becomes)
            for which in ("first", "last")
            for node, becomes in (
                ("*5 * absent", ""),
                ("*types", ""),
                ("*settings", "], packed, *5 * absent"),
            )
        ),
        Same(
            "condition dropped",
            "tiled or utils.",
            _NOT_YET,
            "return (utils.fill_tma_descriptor,",
        ),
        Same("never taken", "kernel_signature", _NOT_YET),
        Same("never taken", "found.nested", _NOT_YET),
        Same("never taken", "TF32 if arg.to_tf32", "it has been noted as it rounds"),
        Same(
            "argument by name dropped",
            "round_f32_to_tf32=",
            _NOT_YET,
            "padding='zero')",
        ),
    ),
}
"""The same where the first of the Tritons that are served is installed."""
