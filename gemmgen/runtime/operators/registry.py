"""Operators by name: each is defined once in a process and never removed.

A compiled graph that calls a removed operator crashes the process. So the operator of a
module that is reloaded stays as it is, and calls the new launcher. Output folders of
one name, each with its own copy of this module, find each other's operators in torch.
"""

import inspect
import itertools
import keyword
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, get_args

import torch

MARK = "_gemmgen_slot_1"  # the attribute of a slot; renamed if `Slot` changes
RESERVED = ("aten", "classes", "loaded_libraries", "prim")  # torch's namespaces
LOCK = threading.Lock()


class Slot:
    """An operator of torch, and the `Entry` that it calls, by a weak reference.

    `file` is the launcher's.
    """

    def __init__(self, namespace: str, name: str, schema: str, file: str) -> None:
        """Define the operator."""
        self.schema, self.file = schema, file
        self.sharded: Any = None  # the axes that are registered with DTensor
        self.library = torch.library.Library(namespace, "FRAGMENT")
        self.name = f"{namespace}::{name}"
        self.library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.packet = getattr(getattr(torch.ops, namespace), name)
        self.overload = self.packet.default
        self.found: Callable[[], Any] = lambda: None
        setattr(self.overload, MARK, self)

    def keep(self, operator: Any) -> None:
        """Call this `Entry` from now on."""
        self.found = weakref.ref(operator)

    @property
    def operator(self) -> Any:
        """The `Entry`; RuntimeError if its module is gone."""
        found = self.found()
        if found is None:
            raise RuntimeError(f"{self.name}: its module is gone; import it again")
        return found


def slot_of(function: Any, name: str, schema: str, axes: Any) -> tuple[Slot, bool]:
    """Return the slot of a function's operator, and whether it is new.

    The namespace is the package of the kernel's folder, `a_b` for a.b. If another file
    has that operator, or if it has another schema or other `axes` in DTensor, it is the
    next one of `a_b_2`, `a_b_3`, ….
    """
    file = function.__code__.co_filename
    name += "_" * (name == "name")  # which torch calls a namespace's own
    with LOCK:
        for namespace in namespaces(function.__module__):
            packet = getattr(getattr(torch.ops, namespace), name, None)
            if packet is None:
                return Slot(namespace, name, schema, file), True
            found = getattr(getattr(packet, "default", None), MARK, None)
            if found is None or found.schema != schema:
                continue
            if found.sharded not in (None, axes):
                continue
            if found.file == file or found.found() is None:
                found.file = file
                return found, False
    raise AssertionError  # there is always a next name


def namespaces(module: str) -> Iterator[str]:
    """Yield the namespaces that a kernel's module may have, in order.

    Torch reads a schema byte by byte, and keywords of Python as keywords of its own.
    """
    package = module.rpartition(".")[0] or module
    package = re.sub(r"\W|^(?=\d)", "_", package, flags=re.ASCII)
    package += "_" * keyword.iskeyword(package)
    numbered = (f"{package}_{number}" for number in itertools.count(2))
    for one in itertools.chain([package], numbered):
        if one not in RESERVED and not hasattr(type(torch.ops), one):
            yield one


def schema_of(launcher: Callable[..., Any]) -> str:
    """Return `(Tensor a, Scalar alpha) -> Tensor`, without `out`.

    Numbers are no `float`, since torch.compile would specialize on each value.
    """
    signature = inspect.signature(launcher)
    arguments = [
        f"{'Scalar' if one.annotation is float else 'Tensor'} {one.name}"
        for one in signature.parameters.values()
        if one.kind is not one.KEYWORD_ONLY
    ]
    count = len(get_args(signature.return_annotation)) or 1
    return f"({', '.join(arguments)}) -> {returned(count)}"


def returned(count: int) -> str:
    """Return a schema's type of so many results."""
    return f"({', '.join(['Tensor'] * count)})"
