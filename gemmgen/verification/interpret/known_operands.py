"""What an operation does to its operands before it computes, worked out once.

Triton's frontend promotes and broadcasts for every value anew what depends on types
alone, and looks at each keyword of each call. An error is never remembered.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic as _Semantic
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

_operands: dict[tuple[Any, ...], tuple[Any, Any]] = {}
"""The types of both operands of an operation, by those that they come with."""
_CONSTANTS: dict[str, Any] = {
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
}
"""What the numbers of a kernel's text become; any that such a key stands for fits."""
_constants: dict[tuple[Any, ...], Any] = {}
"""Numbers of kernels' texts as values, by their types."""
_MOST_CONSTANTS = 2000
"""More than texts have; loops count further."""
_LEAST, _MOST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""Of numbers that are fp32, unless they are 0 or no finite number."""


def remember() -> None:
    """Make the interpreter of this process look up what it has worked out."""
    checking = _Semantic.binary_op_type_checking_impl
    _Semantic.binary_op_type_checking_impl = _promoted(checking)
    _Semantic.broadcast_impl_value = _broadcast(_Semantic.broadcast_impl_value)
    _Semantic.cast = _cast(_Semantic.cast)
    interpreter.InterpreterBuilder.create_expand_dims = _expand_dims
    interpreter._patch_attr = _directly(interpreter._patch_attr)


def _promoted(promote: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """Operands in the type and shape of the operation, found as Triton did before."""

    def known(self: Any, lhs: Any, rhs: Any, *flags: Any, **named: Any) -> Any:
        key = key_of(lhs), key_of(rhs), flags, *named.items()
        found = _operands.get(key)
        if found is not None:
            left, right = found
            return as_type(self, lhs, left), as_type(self, rhs, right)
        one, other = promote(self, lhs, rhs, *flags, **named)
        if is_settled(lhs, one.type) and is_settled(rhs, other.type):
            _operands[key] = one.type, other.type
        return one, other

    return known


def _broadcast(broadcast: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    """Two values in a shape that both have."""

    def known(self: Any, lhs: Any, rhs: Any) -> Any:
        key = lhs.type.name, rhs.type.name
        found = _operands.get(key)
        if found is None:
            one, other = broadcast(self, lhs, rhs)
            _operands[key] = one.type, other.type
            return one, other
        left, right = found
        return as_type(self, lhs, left), as_type(self, rhs, right)

    return known


def _cast(cast: Callable[..., Any]) -> Callable[..., Any]:
    """Most casts are to the type that a value has."""

    def known(self: Any, value: Any, type_: Any, *rounding: Any) -> Any:
        same = value.type.scalar is type_.scalar
        return value if same else cast(self, value, type_, *rounding)

    return known


def key_of(value: Any) -> Any:
    """What the type of an operation depends on: a type's name, or a kind of number."""
    if isinstance(value, tl.tensor):
        return value.type.name
    kind = type(value)
    if kind is int:
        return -(2**31) <= value < 2**31, value < 0
    if kind is float:
        if not value and np.signbit(value):  # 0.0 before Triton 3.9
            return kind
        size = abs(value)
        return size == 0 or not size < np.inf or _LEAST <= size <= _MOST
    return kind


def is_settled(value: Any, type_: Any) -> bool:
    """Whether all values of a key become of this type."""
    if isinstance(value, tl.tensor):
        return True
    key = key_of(value)
    fits = key is not float if type(value) is float else type(value) is int and key[0]
    return fits and type_.scalar.name in _CONSTANTS


def as_type(semantic: Any, value: Any, type_: Any) -> Any:
    """A value, or the number of a kernel's text, in a type that was found for it."""
    if not isinstance(value, tl.tensor):
        return _constant(value, type_)
    if value.type.name == type_.name:
        return value
    value = semantic.cast(value, type_.scalar)
    if value.type.name == type_.name:
        return value
    spread = semantic.builder.create_broadcast
    if not value.type.is_block():
        spread = semantic.builder.create_splat
        return tl.tensor(spread(type_, value.handle), type_)
    return tl.tensor(spread(value.handle, type_.shape), type_)


def _constant(value: Any, type_: Any) -> Any:
    """A number of a kernel's text as a value, which most have been before."""
    key = value, type_.name
    found = _constants.get(key)
    if found is None:
        scalar = type_.scalar
        shape = type_.shape if type_.is_block() else (1,)
        data = np.full(shape, value, _CONSTANTS[scalar.name])
        data.flags.writeable = False  # many values share it
        found = tl.tensor(TensorHandle(data, scalar), type_)
        if len(_constants) < _MOST_CONSTANTS:
            _constants[key] = found
    return found


def _expand_dims(_builder: Any, handle: Any, axis: int) -> Any:
    """A new axis of 1, counted from the first; NumPy's own function takes longer."""
    place = (*(slice(None),) * axis, None)
    return TensorHandle(handle.data[place], handle.dtype.scalar)


def _directly(patch: Callable[..., None]) -> Callable[..., None]:
    """Functions of the language called without a look at each of their keywords."""
    checks = tl.core.builtin(_directly).__code__

    def patched(obj: Any, name: str, member: Any, builder: Any, *rest: Any) -> None:
        patch(obj, name, member, builder, *rest)
        semantic = _Semantic(builder)
        code = getattr(member, "__code__", None)  # 3.8 has a class among them
        plain = member.__wrapped__ if code is checks else member

        def called(*arguments: Any, **named: Any) -> Any:
            named["_semantic"] = semantic
            return plain(*arguments, **named)

        setattr(obj, name, called)

    return patched
