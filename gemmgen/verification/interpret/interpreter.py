"""Mends Triton's interpreter from outside, for a process that does nothing else.

What differs from a GPU and would hide or invent faults is put right; every access is
checked; what the interpreter repeats in each launch is done once.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmgen.tables.dtypes import DTYPES
from gemmgen.verification.interpret import hardware, known_operators, orders
from gemmgen.verification.interpret.memory import Memory, addressed
from gemmgen.verification.interpret.workspace import Workspace

_Builder = interpreter.InterpreterBuilder
_SHORT_FLOATS = {
    getattr(tl, row.triton): getattr(torch, row.torch)
    for row in DTYPES.values()
    if getattr(tl, row.triton).is_fp8()
}
_TF32_BITS = np.uint32(0xFFFFE000)
_PATCHED = "_patched"
"""The mark of functions whose language is patched: they are called again and again."""


class _State:
    """What the builder's methods need to know of the launch."""

    memory = Memory(())
    workspace: Workspace | None = None
    patched: set[frozenset[int]] = set()  # noqa: RUF012 (one per process is meant)


def mend() -> None:
    """Mend the interpreter of this process; kernels are imported after this."""
    np.seterr(all="ignore")
    known_operators.remember()
    interpreter._patch_lang = _patch_once(interpreter._patch_lang)
    interpreter.GridExecutor.__call__ = _launch
    _Builder.create_masked_load = _checked_load(_Builder.create_masked_load)
    _Builder.create_masked_store = _checked_store(_Builder.create_masked_store)
    _Builder.create_atomic_rmw = _checked_atomic(_Builder.create_atomic_rmw)
    _Builder.create_barrier = _barrier
    stores = _Builder.create_descriptor_store
    _Builder.create_descriptor_store = _checked_descriptor_store(stores)
    _Builder.cast_impl = _cast
    _Builder.create_fp_to_fp = lambda self, x, target, _rounding: _cast(self, x, target)
    _Builder.create_dot = _dot
    _Builder.create_erf = _erf
    # As on a GPU, these drop a NaN; the interpreter keeps it and so hides a fault.
    _Builder.create_maxnumf = lambda self, x, y: self.binary_op(x, y, np.fmax)
    _Builder.create_minnumf = lambda self, x, y: self.binary_op(x, y, np.fmin)
    triton.autotune = _autotune
    # Without `debug` an overflow that was found is not reported: half of all time.
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter.interpreter_builder.options = options


class Autotuned:
    """Stands for an autotuned kernel, which cannot be timed here: no driver."""

    def __init__(self, fn: Any, configs: list[Any]) -> None:
        self.fn = fn
        self.configs = configs

    def __getitem__(self, grid: Any) -> Any:
        """The kernel under its first configuration."""
        meta = self.configs[0].all_kwargs()
        return lambda *arguments, **more: self.fn[grid](*arguments, **more, **meta)


def _autotune(configs: list[Any], **_options: Any) -> Any:
    return lambda fn: Autotuned(fn, configs)


def _patch_once(patch: Any) -> Any:
    """Patch `triton.language` for good: undoing it takes longer than most launches."""
    nothing = contextlib.ExitStack()  # what leaving undoes

    def once(fn: Any) -> Any:
        if _PATCHED in vars(fn):
            return nothing
        seen = [one for one in fn.__globals__.values() if one in (tl, tl.core)]
        languages = frozenset(map(id, seen))
        if languages not in _State.patched:
            _State.patched.add(languages)
            patch(fn)
            for language in seen:
                language.range = _checked_range(language.range)
            # NumPy 2.4 refuses int() of an array that has an axis.
            tl.core.tensor.__index__ = lambda self: int(self.handle.data.item())
        vars(fn)[_PATCHED] = True
        return nothing

    return once


def _launch(self: Any, *arguments: Any, **given: Any) -> None:
    """Run a grid on tensors that are on the CPU already, without copying them."""
    known = {name: value for name, value in given.items() if name in self.arg_names}
    bound = inspect.getcallargs(self.fn, *arguments, **known)
    inside = {
        name: value if name in self.constexprs else converted(self.fn, name, value)
        for name, value in bound.items()
    }
    grid = self.grid(inside) if callable(self.grid) else self.grid
    _check_described(bound.values())
    for _ in programs(self.fn, grid, bound):
        self.fn(**inside)


def programs(
    fn: Any,
    grid: Any,
    passed: Mapping[str, Any],
    partition: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Every program of a grid in turn, which `tl` and the memory check then know of.

    Those that meet in a workspace come in an order of which results must not depend;
    `partition` tells which of a program's warps run.
    """
    interpreter._patch_lang(fn)
    _State.memory = Memory(_tensors(passed.values()))
    grid = (*grid, 1, 1)[:3]
    hardware.check_grid(grid)
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*grid)
    order = list(np.ndindex(*grid))
    _State.workspace = None
    if passed.get("counters_ptr") is not None:
        _State.workspace = Workspace(
            passed["partials_ptr"],
            passed["counters_ptr"],
            lambda: (builder.grid_idx, partition()),
        )
        order = orders.next_order(order)
    for position in order:
        builder.set_grid_idx(*position)
        yield
    if _State.workspace is not None:
        _State.workspace.finish()


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among a launch's arguments, those inside of descriptors too."""
    for value in values:
        tensor = value.base if isinstance(value, TensorDescriptor) else value
        if isinstance(tensor, torch.Tensor):
            yield tensor


def _check_described(arguments: Iterable[Any]) -> None:
    """Refuse a descriptor that CUDA would."""
    for one in arguments:
        if isinstance(one, TensorDescriptor):
            hardware.check_described(one.base, one.block_shape)


def converted(fn: Any, name: str, value: Any) -> Any:
    """An argument as the kernel sees it: a float is fp32 unless annotated."""
    if not isinstance(value, float):
        return interpreter._implicit_cvt(value)
    told = str(fn.__annotations__.get(name))  # Triton's own repr, or source text
    wide = any(word in told for word in ("float64", "fp64"))
    dtype, kind = (tl.float64, np.float64) if wide else (tl.float32, np.float32)
    return tl.tensor(TensorHandle(np.array([value], dtype=kind), dtype), dtype)


def _checked_range(ranged: Any) -> Any:
    def checked(*bounds: Any, loop_unroll_factor: Any = None, **options: Any) -> Any:
        found = ranged(*bounds, **options)
        if loop_unroll_factor is not None:
            hardware.check_unrolled(found.start, found.stop)
        return found

    return checked


def _checked_load(load: Any) -> Any:
    def checked(self: Any, pointers: Any, mask: Any, *rest: Any, **more: Any) -> Any:
        _check("load", pointers, mask)
        if _State.workspace is not None:
            _State.workspace.loads(addressed(pointers.data, mask.data))
        return load(self, pointers, mask, *rest, **more)

    return checked


def _checked_store(store: Any) -> Any:
    def checked(
        self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **more: Any
    ) -> Any:
        _check("store", pointers, mask)
        if _State.workspace is not None:
            _State.workspace.stores(addressed(pointers.data, mask.data))
        return store(self, pointers, value, mask, *rest, **more)

    return checked


def _checked_descriptor_store(store: Any) -> Any:
    def checked(self: Any, descriptor: Any, *rest: Any) -> Any:
        element = descriptor.base.dtype.element_ty
        columns = int(descriptor.shape[-1].data.item())
        hardware.check_stored(columns * element.primitive_bitwidth // 8)
        return store(self, descriptor, *rest)

    return checked


def _checked_atomic(update: Any) -> Any:
    def checked(
        self: Any, kind: Any, pointers: Any, value: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        _check("atomic", pointers, mask)
        if _State.workspace is not None:
            _State.workspace.counts_with(sem.name, scope.name)
        return update(self, kind, pointers, value, mask, sem, scope)

    return checked


def _barrier(self: Any) -> None:
    """A barrier of the warps that run; one thread stands for all of them."""
    if _State.workspace is not None:
        _State.workspace.waits()


def _check(action: str, pointers: Any, mask: Any) -> None:
    width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    _State.memory.check(action, pointers.data, mask.data, width)


def _cast(self: Any, source: Any, target: Any) -> Any:
    """A cast that rounds to nearest even; bf16 is kept as the upper half of an fp32."""
    data, scalar = _values(source), target.scalar
    if scalar == tl.bfloat16:
        data = _to_bf16(data.astype(np.float32))
    elif scalar in _SHORT_FLOATS:
        numbers = torch.from_numpy(np.ascontiguousarray(data, np.float32))
        data = numbers.to(_SHORT_FLOATS[scalar]).view(torch.uint8).numpy()
    else:
        data = data.astype(interpreter._get_np_dtype(target))
    return TensorHandle(data, target.scalar)


def _values(handle: Any) -> Any:
    """The numbers of a handle, those of bf16 and of 8-bit floats as fp32."""
    scalar = handle.dtype.scalar
    if scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << 16).view(np.float32)
    if scalar in _SHORT_FLOATS:
        bits = torch.from_numpy(np.ascontiguousarray(handle.data))
        return bits.view(_SHORT_FLOATS[scalar]).float().numpy()
    return handle.data


def _to_bf16(data: Any) -> Any:
    bits = data.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), 0x7FC0, rounded).astype(np.uint16)


def _erf(self: Any, handle: Any) -> Any:
    """The error function; the interpreter calls Python's for each element."""
    values = torch.from_numpy(np.ascontiguousarray(handle.data, dtype=np.float64))
    result = torch.erf(values).numpy().astype(handle.data.dtype)
    return TensorHandle(result, handle.dtype.scalar)


def _dot(self: Any, a: Any, b: Any, acc: Any, precision: Any, _imprecise: Any) -> Any:
    """A product of values, in the accumulator's type; tf32 cuts its operands."""
    kind = acc.data.dtype
    left, right = (factor(one, precision).astype(kind) for one in (a, b))
    return TensorHandle(np.matmul(left, right) + acc.data, acc.dtype.scalar)


def factor(handle: Any, precision: Any) -> Any:
    """The numbers of one side of a product; those of fp32 cut where it is in tf32."""
    scalar = handle.dtype.scalar
    values = _values(handle)
    if scalar == tl.float32 and precision == interpreter._ir.INPUT_PRECISION.TF32:
        return (np.ascontiguousarray(values).view(np.uint32) & _TF32_BITS).view(
            np.float32
        )
    return values
