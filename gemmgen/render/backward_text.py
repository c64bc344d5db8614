"""The text of a backward, and what it has in common with that of its pass.

Every choice between two spellings is made here, so that a template has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gemmgen.epilogue.algebra import ZERO
from gemmgen.epilogue.expression import names
from gemmgen.epilogue.gradient import gradient_name
from gemmgen.problem.backward import Backward
from gemmgen.problem.derived import (
    FORWARD,
    MAIN_GRAD,
    added_part,
    derived_parts,
    multiplied_name,
    part_name,
)
from gemmgen.problem.tensors import Operand
from gemmgen.render.names.parts import GRAD_EPILOGUE, shared
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.layouts import Matrix
from gemmgen.tables.operations import OPERATIONS

_HELPERS = ("leaf_of", f"{MAIN_GRAD}_of", "matrix", "shaped", "unflattened")


@dataclass(frozen=True)
class GradientText:
    """What the texts of a backward have in common."""

    plan: Plan

    @cached_property
    def backward(self) -> Backward:
        """What is computed."""
        assert self.plan.backward is not None
        return self.plan.backward

    @cached_property
    def values(self) -> dict[str, Operand]:
        """Each operand, and each value or gradient that lies in memory, as one."""
        plan, own = self.plan, {one.name: one for one in self.plan.operands}
        kinds = {one.name: one.dtype for one in plan.results} | self.backward.incoming
        if self.backward.kept:
            kinds[self.backward.kept] = self.backward.kept_dtype
        return own | {
            name: Operand(name, ("m", "n"), dtype, plan.accumulator)
            for name, dtype in kinds.items()
        }

    def dtype_of(self, name: str) -> str:
        """That of the gradient of an operand, or of the sum."""
        return self.values[name].dtype if name in self.values else self.plan.dtype

    def axes_of(self, name: str) -> tuple[str, ...]:
        """The axes of an operand, or of the sum."""
        return self.values[name].axes if name in self.values else ("m", "n")


class BackwardText(GradientText):
    """The fragments of a kernel's `backward.py`."""

    @property
    def doc(self) -> str:
        """The file's docstring."""
        targets = " and ".join(one.name for one in self.plan.results)
        return f'"""The backward: gradients of tensors from those of {targets}."""'

    @property
    def inputs(self) -> list[str]:
        """The launcher's arguments."""
        return self.plan.argument_names

    @property
    def everything(self) -> list[str]:
        """Those, and all that the forward returns."""
        results = [one.name for one in self.plan.results]
        kept = self.backward.kept
        return [*self.inputs, *results, *([kept] if kept else [])]

    @cached_property
    def used(self) -> list[str]:
        """What of them is saved: tensors, then numbers."""
        back = self.backward
        used = {*back.needed, *filter(self._reshaped, back.operands)}
        found = [name for name in self.everything if name in used]
        return sorted(found, key=back.numbers.__contains__)

    @property
    def saved(self) -> str:
        """As a tuple."""
        return _tuple([*self.used, *self._leaf])

    @property
    def kept(self) -> Iterator[str]:
        """What drops A and B unless the other one needs a gradient."""
        if not self.backward.multiplied:
            return
        lhs, first = self._multiplied
        yield f"needs_{lhs}, needs_{first} = needs[:2]"
        for name in self._leaf:
            yield f"{name} = leaf_of({first})"
        for name, other in ((lhs, first), (first, lhs)):
            yield f"if not needs_{other}:  # read for {gradient_name(other)} alone"
            yield f"    {name} = None"

    @property
    def _multiplied(self) -> list[str]:
        """A and B, in the launcher's order."""
        return [one.name for one in self.plan.contraction.inputs]

    @property
    def _leaf(self) -> list[str]:
        """B itself, whose attribute its gradient may be added to."""
        first = self.plan.contraction.first.name
        return [f"{first}_leaf"] * self.backward.accumulates

    @property
    def grads(self) -> str:
        """The gradients that are given, as a tuple."""
        return _tuple(list(self.backward.incoming))

    @property
    def needs(self) -> str:
        """What `needs` is taken apart into."""
        made = zip(self.inputs, self.returned, strict=True)
        return _tuple(["_" if one == "None" else f"needs_{name}" for name, one in made])

    @property
    def returned(self) -> list[str]:
        """The gradients, None for numbers."""
        tensors = {one.name for one in self.plan.inputs}
        return [gradient_name(one) if one in tensors else "None" for one in self.inputs]

    @property
    def nothing(self) -> str:
        """What makes every gradient None at first."""
        return " = ".join([*(one for one in self.returned if one != "None"), "None"])

    @property
    def inputs_said(self) -> str:
        """The inputs that have gradients, in words."""
        made = [one for one in self.returned if one != "None"]
        *more, last = [one.removeprefix("grad_") for one in made]
        return f"{', '.join(more)} and {last}"

    @property
    def leading(self) -> bool:
        """Whether rows may be spread over several axes."""
        return OPERATIONS[self.plan.op].leading

    def _reshaped(self, name: str) -> bool:
        """Whether an operand's gradient has to be brought into its shape."""
        given = self.backward.given(name) and name not in self.backward.passed
        own = self.values[name]
        return self.leading and own.by_rows and not (given and own.is_matrix)

    def _flat(self, name: str) -> str:
        """A tensor as a matrix or vector, where it may have more axes."""
        axes = self.axes_of(name)
        if not self.leading or "m" not in axes:
            return name
        return f"matrix({name})" if len(axes) == 2 else f"{name}.flatten()"

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What the file takes from those beside it and from what kernels share."""
        text = "\n".join([*self.kept, *self.statements])
        plan, parts = self.plan, {*derived_parts(self.backward)} - {FORWARD}
        helpers = [name for name in _HELPERS if f"{name}(" in text]
        found = [(shared(plan, "gradients.function"), helpers)]
        beside = {part: [part_name(plan.name, part)] for part in parts}
        if self.backward.passed:
            beside[GRAD_EPILOGUE] = [GRAD_EPILOGUE.upper()]
        found += [(f".{file}", taken) for file, taken in sorted(beside.items())]
        return [(file, taken) for file, taken in found if taken]

    @property
    def libraries(self) -> list[str]:
        """What it imports as a whole."""
        return ["torch"] * ("torch." in "\n".join(self.statements))

    @property
    def statements(self) -> list[str]:
        """What computes the gradients that are needed."""
        return [
            *self._without(),
            *self._pass(),
            *self._products(),
            *self._given(),
            *self._shapes(),
        ]

    def _without(self) -> Iterator[str]:
        """No gradient of what is in no result that has one."""
        back, needs = self.backward, dict[tuple[str, ...], list[str]]()
        for name, made in zip(self.inputs, self.returned, strict=True):
            sources = back.sources(name) if made != "None" else ()
            if 0 < len(sources) < len(back.incoming):
                needs.setdefault(sources, []).append(f"needs_{name}")
        for sources, found in needs.items():
            yield f"if {' and '.join(f'{one} is None' for one in sources)}:"
            yield f"    {' = '.join(found)} = False"

    def _pass(self) -> Iterator[str]:
        back = self.backward
        if not back.passed:
            return
        made = [gradient_name(name) for name in back.passed]
        wanted = [
            (
                " or ".join(f"needs_{name}" for name in self._multiplied)
                if name == back.sum
                else f"needs_{name}"
            )
            for name in back.passed
        ]
        read = _tuple([self._flat(name) for name in back.read])
        call = f"{GRAD_EPILOGUE.upper()}.run({read}, {_tuple(wanted)})"
        yield f"{_tuple(made)} = {call}"
        if back.saved and back.multiplied:  # or a step takes more memory than eager's
            yield f"{' = '.join(back.saved)} = None  # frees memory for the products"

    def _products(self) -> Iterator[str]:
        """The gradients of A and B."""
        back, both = self.backward, self.plan.contraction
        if not back.multiplied:
            return
        grad = multiplied_name(back)
        grad = self._flat(grad) if back.direct else grad
        numbers = dict.fromkeys(names(back.factor or ZERO))
        for one, other in ((both.lhs, both.first), (both.first, both.lhs)):
            name = gradient_name(one.name)
            first, second = self._sides(one, other, grad)
            passed = ", ".join([first, second, *numbers])
            call = f"{part_name(self.plan.name, name)}({passed})"
            if self.leading and "m" in one.axes:
                call = f"unflattened({', '.join([call, *back.incoming])})"
            yield f"if needs_{one.name}:"
            if one is not both.first or not back.accumulates:
                yield f"    {name} = {call}"
                continue
            adding = part_name(self.plan.name, added_part(back))
            yield f"    {MAIN_GRAD} = {MAIN_GRAD}_of({self._leaf[0]}, {grad})"
            yield f"    if {MAIN_GRAD} is None:"
            yield f"        {name} = {call}"
            yield "    else:"
            yield f"        {adding}({passed}, {MAIN_GRAD}, out={MAIN_GRAD})"

    def _sides(self, of: Matrix, other: Matrix, grad: str) -> tuple[str, str]:
        """The gradient of the sum and the other matrix, in the order of the product."""
        flat = other.name
        if self.leading and "m" in other.axes:
            flat = f"matrix({other.name})"
        grad_first = ("m" in of.axes) != of.transposed
        return (grad, flat) if grad_first else (flat, grad)

    def _given(self) -> Iterator[str]:
        """The gradients that are given as they stand, or but for a sum."""
        back = self.backward
        for name in back.operands:
            if name in back.passed:
                continue
            given = str(back.given(name))
            yield f"if needs_{name}:"
            yield f"    {gradient_name(name)} = {self._summed(given, name)}"

    def _summed(self, given: str, name: str) -> str:
        axes = self.axes_of(name)
        if len(axes) == 2:
            return given
        before, after = (DTYPES[self.values[one].dtype] for one in (given, name))
        flat = self._flat(given)
        total = f"{flat}.sum({0 if axes == ('n',) else 1}"
        if before.bytes < after.bytes:
            return f"{total}, dtype=torch.{after.torch})"
        return f"{total})" if before == after else f"{total}).to(torch.{after.torch})"

    def _shapes(self) -> Iterator[str]:
        for name in self.backward.operands:
            if self._reshaped(name):
                made = gradient_name(name)
                yield f"{made} = shaped({made}, {name})"


def _tuple(items: list[str]) -> str:
    return f"({', '.join(items)}{',' * (len(items) == 1)})"
