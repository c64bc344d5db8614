"""Types of values, worked out once and not in every operation of the interpreter.

Triton's frontend makes a block's type and shape anew for every value, which takes
longer than computing a small block. Compiling does so once, interpreting for each.
"""

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

_blocks: dict[tuple[Any, ...], dict[str, Any]] = {}
"""The attributes of block types, by the names of their elements' types and sizes."""
_OF_TENSORS = "_of_tensors"
"""The attribute of a type for those that all tensors of it have."""


def remember() -> None:
    """Make `triton.language` and its interpreter look up what they have worked out."""
    tl.block_type.__init__ = _block_type(tl.block_type.__init__)
    tl.tensor.__init__ = _tensor(tl.tensor.__init__)
    tl.core._unwrap_if_constexpr = _unwrapped(tl.core._unwrap_if_constexpr)
    interpreter._get_np_dtype = _by_scalar(interpreter._get_np_dtype)


def _block_type(init: Callable[..., None]) -> Callable[..., None]:
    """Blocks of the same elements and sizes have the same attributes.

    A type of Gluon has a layout of its own too.
    """

    def known(self: Any, element_ty: Any, shape: Any) -> None:
        sizes = (one.value if isinstance(one, tl.constexpr) else one for one in shape)
        key = (element_ty.name, *sizes)
        found = _blocks.get(key)
        if found is None:
            init(self, element_ty, shape)
            found = _blocks[key] = {**vars(self), _OF_TENSORS: {}}
        vars(self).update(found)

    return known


def _tensor(init: Callable[..., None]) -> Callable[..., None]:
    """Tensors of types that are alike have the same shape."""

    def known(self: Any, handle: Any, type: Any) -> None:
        found = vars(type).setdefault(_OF_TENSORS, {})
        if not found:
            init(self, handle, type)
            found.update(vars(self))
        own = vars(self)
        own.update(found)
        own["handle"], own["type"] = handle, type

    return known


def _unwrapped(unwrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Most values are tensors or numbers, which nothing is wrapped around."""
    plain = frozenset((tl.tensor, int, str, bool))

    def of(value: Any) -> Any:
        return value if type(value) in plain else unwrap(value)

    return of


def _by_scalar(found: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """NumPy's type depends on that of the elements alone."""
    known: dict[str, Any] = {}

    def of(one: Any) -> Any:
        name = one.scalar.name
        if name not in known:
            known[name] = found(one)
        return known[name]

    return of
