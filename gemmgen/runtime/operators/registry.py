"""The names of operators, each defined once in a process and never undone.

torch keeps no count of who holds an operator: one whose definition was taken back takes
the process down when a compiled graph calls it. So a name that comes again, as when a
module is reloaded, gets another launcher and stays as it is defined. Output folders of
one name, of which each has its own copy of this module, find each other's operators
in torch.
"""

import inspect
import itertools
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, get_args

import torch

MARK = "_gemmgen_slot_1"  # what an operator's slot is called; other slots, another name
RESERVED = ("aten", "classes", "loaded_libraries", "prim")  # names that torch has
LOCK = threading.Lock()


class Slot:
    """An operator of torch, and what it calls: the launcher that had its name last.

    `file` is the launcher's. A launcher that nobody holds any more is not kept alive.
    """

    def __init__(self, namespace: str, name: str, schema: str, file: str) -> None:
        """Define the operator."""
        self.schema, self.file = schema, file
        self.sharded: Any = None  # the axes that DTensor was told of, for good
        self.library = torch.library.Library(namespace, "FRAGMENT")
        self.name = f"{namespace}::{name}"
        self.library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        self.packet = getattr(getattr(torch.ops, namespace), name)
        self.overload = self.packet.default
        self.found: Callable[[], Any] = lambda: None
        setattr(self.overload, MARK, self)

    def keep(self, operator: Any) -> None:
        """Call this one from now on."""
        self.found = weakref.ref(operator)

    @property
    def operator(self) -> Any:
        """What is called; RuntimeError if its module is gone."""
        found = self.found()
        if found is None:
            raise RuntimeError(f"{self.name}: its module is gone; import it again")
        return found


def slot_of(function: Any, name: str, schema: str, axes: Any) -> tuple[Slot, bool]:
    """Return the slot of a function's operator, and whether it was defined just now.

    The namespace is the package that the kernel's folder lies in, `a_b` for a.b. Where
    a file elsewhere has the name already, or the kernel had another schema before, or
    other `axes` that DTensor remembers, it is the next one of `a_b_2`, `a_b_3`, ….
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
    """Return the names that the namespace of a kernel's module may have, in order."""
    package = re.sub(r"\W|^(?=\d)", "_", module.rpartition(".")[0] or module)
    numbered = (f"{package}_{number}" for number in itertools.count(2))
    for one in itertools.chain([package], numbered):
        if one not in RESERVED and not hasattr(type(torch.ops), one):
            yield one


def schema_of(launcher: Callable[..., Any]) -> str:
    """Return `(Tensor a, Scalar alpha) -> Tensor`, which leaves out `out`.

    A number is no `float`, for of that torch compiles each value by itself.
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
    """Return what a schema says of so many results."""
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"
