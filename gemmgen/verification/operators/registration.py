"""How a package's operators get their names: each is defined once, and stays.

The registry is asked for slots of functions of its own, in a namespace of its own.
"""

import itertools
import sys
from collections.abc import Callable
from threading import Thread
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

from gemmgen.verification.example.one_example import Wrong
from gemmgen.verification.operators.entered import Entered

_NUMBERS = itertools.count()
_SCHEMA, _OTHER_SCHEMA = "(Tensor a) -> Tensor", "(Tensor b) -> Tensor"
_AXES, _OTHER_AXES = ("mk",), ("km",)
_PACKAGES = {
    "made.kernel": "made",
    "made.inner.kernel": "made_inner",
    "kernel": "kernel",
    "2nd.kernel": "_2nd",
    "größe.kernel": "gr__e",  # torch reads plain letters alone
    "class.kernel": "class_",  # a keyword to torch too
    "aten.kernel": "aten_2",  # torch's own operators
    "import_module.kernel": "import_module_2",  # no namespace: a method of torch.ops
}
"""By the name of a module, the first namespace of its operators."""
_MOMENT = 0.05
"""Seconds, in which a registry that does not wait is done."""


def check_registration(one: Entered) -> None:
    """Raise `Wrong` unless an operator is declared, named and kept as it must be."""
    _declared(one)
    _registered_again(one)
    registry = sys.modules[type(one.launcher.operator.slot).__module__]
    for module, wanted in _PACKAGES.items():
        found = next(registry.namespaces(module))
        if found != wanted:
            raise Wrong(f"the namespace of {module} is {found}")
    for check in (_named, _reloaded, _of_others, _left_alone, _in_turns):
        check(_Registry(registry))


def _declared(one: Entered) -> None:
    """Torch knows its arguments, its results, and that it may be compiled."""
    arguments = ", ".join(
        f"{'Tensor' if isinstance(given, torch.Tensor) else 'Scalar'} {name}"
        for name, given in zip(one.names, one.inputs, strict=True)
    )
    results = ", ".join(["Tensor"] * len(one.wanted))
    if len(one.wanted) > 1:
        results = f"({results})"
    declared = str(one.overload._schema)
    if not declared.endswith(f"({arguments}) -> {results}"):
        raise Wrong(f"the operator is declared as {declared}")
    if torch.Tag.pt2_compliant_tag not in one.overload.tags:
        raise Wrong("the operator is not tagged as one for torch.compile")


def _registered_again(one: Entered) -> None:
    """A launcher that is registered again has the operator that is there."""
    operator, overload, cache = one.launcher.operator, one.overload, one.launcher.cache
    module: Any = sys.modules[type(operator).__module__]
    anew = Wrong("a launcher that is registered again is defined again")
    with (
        patch.object(cache, "as_operator"),
        patch.object(one.launcher, "operator"),
        patch.object(module, "define_launcher", side_effect=anew),
    ):
        module.torch_operator(operator.launches, one.linear_in)(one.launcher)
        if one.overload is not overload:
            raise Wrong("a launcher that is registered again has another operator")
        one.same("the operator, registered again", overload(*one.inputs))
    operator.slot.keep(operator)


class _Operator:
    """What a slot calls, which may be gone."""


class _Registry:
    """A package's registry, asked by functions of files of a package of its own."""

    def __init__(self, registry: ModuleType) -> None:
        self.registry = registry
        self.package = f"gemmgen_registration_{next(_NUMBERS)}"
        self.alive: list[Any] = []

    def slot(
        self,
        file: str = "first",
        name: str = "kernel",
        schema: str = _SCHEMA,
        axes: object = _AXES,
    ) -> tuple[Any, bool]:
        """The slot of a function of a file, and whether it is new."""
        made: dict[str, Any] = {"__name__": f"{self.package}.{name}"}
        exec(compile("def function(): ...", file, "exec"), made)
        found, new = self.registry.slot_of(made["function"], name, schema, axes)
        return found, bool(new)

    def kept(self, slot: Any) -> Any:
        """An operator that a slot calls from now on, and that stays."""
        operator = _Operator()
        slot.keep(operator)
        self.alive.append(operator)
        return operator

    def expect(self, what: str, slot: Any, number: int, name: str = "kernel") -> None:
        """Raise `Wrong` unless a slot is in a namespace; the first has no number."""
        namespace = self.package + (f"_{number}" if number > 1 else "")
        if slot.name != f"{namespace}::{name}":
            raise Wrong(f"{what} is {slot.name}, not {namespace}::{name}")


def _named(asked: _Registry) -> None:
    """A kernel called as torch calls a namespace's own name is called otherwise."""
    slot, _ = asked.slot(name="name")
    asked.expect("the operator of a kernel called name", slot, 1, "name_")


def _reloaded(asked: _Registry) -> None:
    """A module that is imported again has the operator that is there."""
    slot, new = asked.slot()
    asked.expect("the first operator", slot, 1)
    operator = asked.kept(slot)
    again, renewed = asked.slot()
    if (new, renewed) != (True, False) or again is not slot:
        raise Wrong("a module that is imported again has an operator of its own")
    if slot.operator is not operator:
        raise Wrong("an operator's slot does not call what it was given")


def _of_others(asked: _Registry) -> None:
    """Another file, schema or cut is another operator's, unless the first is gone."""
    slot, _ = asked.slot()
    asked.kept(slot)
    second, _ = asked.slot("second")
    asked.expect("another file's operator", second, 2)
    asked.kept(second)
    third, _ = asked.slot("third")
    asked.expect("a third file's operator", third, 3)
    fourth, _ = asked.slot(schema=_OTHER_SCHEMA)
    asked.expect("an operator of another schema", fourth, 4)
    slot.sharded = _AXES
    if asked.slot()[0] is not slot:
        raise Wrong("an operator that DTensor knows is not found again")
    for other in (third, fourth):
        asked.kept(other)
    fifth, _ = asked.slot(axes=_OTHER_AXES)
    asked.expect("an operator that is cut otherwise", fifth, 5)
    asked.alive.clear()
    if asked.slot("second")[0] is not slot:
        raise Wrong("an operator whose module is gone is not taken over")
    _refused(lambda: slot.operator)


def _left_alone(asked: _Registry) -> None:
    """What somebody else has registered under the name stays theirs."""
    library = torch.library.Library(asked.package, "FRAGMENT")
    library.define(f"kernel{_SCHEMA}")
    slot, new = asked.slot()
    asked.expect("an operator beside somebody's own", slot, 2)
    if not new:
        raise Wrong("somebody's own operator was taken over")
    library._destroy()


def _in_turns(asked: _Registry) -> None:
    """Two threads do not look for an operator at the same time."""
    other = Thread(target=asked.slot, daemon=True)
    with asked.registry.LOCK:
        other.start()
        other.join(_MOMENT)
        waits = other.is_alive()
    other.join()
    if not waits:
        raise Wrong("a thread looked for an operator while another did")


def _refused(call: Callable[[], object]) -> None:
    try:
        call()
    except RuntimeError:
        return
    raise Wrong("an operator whose module is gone can be called")
