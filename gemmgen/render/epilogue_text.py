"""The text of an epilogue: what becomes of a tile's sum before it is stored.

One function of the device for all schedules of a kernel, each of which loads operands
in its own way. And the text of its derivative's kernel.
"""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from gemmgen.base.names import WIDTH, grouped
from gemmgen.epilogue.algebra import ZERO, total
from gemmgen.epilogue.checked import AXES
from gemmgen.epilogue.expression import (
    Call,
    Name,
    Negate,
    Node,
    short_number,
    spell,
    walk,
)
from gemmgen.epilogue.gradient import gradient_name
from gemmgen.problem.tensors import Operand, formula
from gemmgen.render.backward_text import GradientText
from gemmgen.render.names.parts import EPILOGUE, GRAD_EPILOGUE, shared
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES
from gemmgen.tables.functions import OPS


@dataclass(frozen=True)
class EpilogueText:
    """The fragments of one epilogue, and of its call."""

    plan: Plan

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """The functions that it calls and Triton lacks: whence, the names."""
        names = sorted(name for name in self.plan.epilogue.functions if name in OPS)
        own = [name for name in names if not OPS[name].in_place]
        return [(shared(self.plan, "functions"), own)] if own else []

    @property
    def arguments(self) -> str:
        """Its parameters, which kernels call their values by as well."""
        sums = self.plan.contraction.accumulators
        return ", ".join([*sums, *(one.name for one in self.plan.operands)])

    @property
    def call(self) -> str:
        """What a kernel does to have its results."""
        names = ", ".join(one.name for one in self.plan.results)
        return f"{names} = {EPILOGUE}({self.arguments})"

    @property
    def statements(self) -> list[str]:
        """What is computed."""
        plan, stated = self.plan, self.plan.epilogue.statements
        return [
            f"{one.target} = "
            + formula(one.value, plan.operands, stated, plan.accumulator)
            for one in stated
        ]

    @property
    def meaning(self) -> str:
        """What it returns, with types."""
        said = [f"{one.name} in {one.dtype}" for one in self.plan.results]
        return f"{' and '.join(said)} from a tile's accumulator"

    @property
    def returned(self) -> str:
        """The results, each in its type."""
        return ", ".join(
            f"{one.name}.to(tl.{DTYPES[one.dtype].triton})" for one in self.plan.results
        )


class GradEpilogueText(GradientText):
    """The fragments of the kernel that goes over matrices once."""

    @property
    def name(self) -> str:
        """The kernel's."""
        return f"{self.plan.name}_{GRAD_EPILOGUE}_kernel"

    @property
    def doc(self) -> str:
        """The file's docstring."""
        lines = [
            part
            for line in self._formulas()
            for part in textwrap.wrap(
                line, WIDTH, initial_indent="    ", subsequent_indent=" " * 8
            )
        ]
        if self.backward.optional:
            lines += ["", "Terms of results that have no gradient are left out."]
        title = "Gradients of the sum and of operands, elementwise"
        return "\n".join([f'"""{title}:', "", *lines, '"""'])

    def _formulas(self) -> Iterator[str]:
        stated = [*self.backward.again, *self.backward.derivative.statements]
        for one in stated:
            yield f"{one.target} = {spell(one.value, number=short_number)}"
        for name in self.backward.passed:
            value = spell(self.backward.gradient(name), number=short_number)
            axes = self.axes_of(name)
            along: dict[tuple[str, ...], str]
            along = {("n",): ", summed along m", ("m",): ", summed along n"}
            said = f"{gradient_name(name)} = {value}{along.get(axes, '')}"
            if said != f"{value} = {value}":
                yield said

    @property
    def kernel_doc(self) -> str:
        """The kernel's docstring."""
        made = [
            f"{gradient_name(name)} {shape}"
            for name in self.backward.passed
            for shape in (_STORED[self.axes_of(name)],)
        ]
        text = f"A range of BLOCK_N columns → {', '.join(made)}."
        return "\n    ".join(textwrap.wrap(text, WIDTH - 10))

    @property
    def read(self) -> list[Operand]:
        """What it reads."""
        return [self.values[name] for name in self.backward.read]

    @property
    def signature(self) -> str:
        """Its parameters: tensors and numbers, sizes, strides, constants."""
        tensors = [one.parameter for one in self.read]
        made = [f"{gradient_name(name)}_ptr" for name in self.backward.passed]
        strides = [", ".join(one.strides) for one in self.read if one.axes]
        types = [f"{one}: tl.constexpr" for one in ("INDEX", "BLOCK_M", "BLOCK_N")]
        return grouped([tensors + made, ["M, N", *strides], types])

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What it takes of what kernels share."""
        parts = [part for node in self._nodes() for part in walk(node)]
        called = {part.function for part in parts if isinstance(part, Call)} & set(OPS)
        taken = {
            "device": ["span"],
            "functions": sorted(one for one in called if not OPS[one].in_place),
            "gradients.elementwise": ["Elementwise"],
        }
        return [
            (shared(self.plan, file), found) for file, found in taken.items() if found
        ]

    def _nodes(self) -> Iterator[Node]:
        back = self.backward
        yield from (one.value for one in (*back.again, *back.derivative.statements))
        yield from (back.gradient(name) for name in back.passed)

    @property
    def loads(self) -> list[str]:
        """The statements that load a tile of what it reads."""
        return [
            line for one in self.read if "m" in one.axes for line in self._load(one)
        ]

    def _load(self, one: Operand) -> list[str]:
        whole = AXES["m", "n"].mask
        lines = [line.replace(f"mask={whole}", "mask=mask") for line in one.loads]
        if one.name not in self.backward.optional:
            return lines
        return [f"{one.name} = {self._zeros}", *_if_given([one.name], lines)]

    @property
    def _zeros(self) -> str:
        dtype = DTYPES[self.plan.accumulator].triton
        return f"tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.{dtype})"

    @property
    def statements(self) -> list[str]:
        """What is computed; gradients that have no name get one."""
        back = self.backward
        stated = [(one.target, one.value) for one in back.again]
        stated += [(one.target, one.value) for one in back.derivative.statements]
        stated += [
            (gradient_name(name), back.gradient(name))
            for name in back.passed
            if not isinstance(back.gradient(name), Name)
        ]
        return [line for one in stated for line in self._stated(*one)]

    def _stated(self, target: str, value: Node) -> Iterator[str]:
        """A statement, and one more for each term that may have to be left out."""
        terms = self.backward.derivative.terms(value)
        optional = [(one, needed) for one, needed in terms if needed]
        if optional:
            value = total(one for one, needed in terms if not needed)
        start = self._zeros if value == ZERO else self._spelled(value)
        yield f"{target} = {start}"
        for needed, alike in groupby(optional, lambda term: term[1]):
            added = [f"{target} {self._added(one)}" for one, _ in alike]
            yield from _if_given(needed, added)

    def _added(self, term: Node) -> str:
        if isinstance(term, Negate):
            return f"-= {self._spelled(term.value)}"
        return f"+= {self._spelled(term)}"

    def _spelled(self, node: Node) -> str:
        stated = *self.backward.again, *self.backward.derivative.statements
        return formula(node, self.read, stated, self.plan.accumulator)

    @property
    def stores(self) -> list[tuple[str, list[str]]]:
        """For each gradient its name, and what is done with a tile of it."""
        return [
            (gradient_name(name), self._store(name)) for name in self.backward.passed
        ]

    def _store(self, name: str) -> list[str]:
        """Store it; or add it to sums of columns; or store sums of its rows."""
        made, axes = gradient_name(name), self.axes_of(name)
        value = self._value(name)
        if axes == ("m", "n"):
            dtype = self.dtype_of(name)
            if dtype != self.plan.accumulator:
                value += f".to(tl.{DTYPES[dtype].triton})"
            place = "offs_m[:, None] * N + offs_n[None, :]"
            return [f"tl.store({made}_ptr + {place}, {value}, mask=mask)"]
        within = f"tl.where(mask, {value}, 0.0)"
        if axes == ("n",):
            return [f"{made}_sums += {within}"]
        return [
            f"row = {made}_ptr + tile_n.to(INDEX) * M",
            f"tl.store(row + offs_m, tl.sum({within}, 1), mask=mask_m)",
        ]

    def _value(self, name: str) -> str:
        node = self.backward.gradient(name)
        return node.name if isinstance(node, Name) else gradient_name(name)

    @property
    def _columns(self) -> list[str]:
        """The gradients that are sums of columns."""
        passed = self.backward.passed
        return [gradient_name(one) for one in passed if self.axes_of(one) == ("n",)]

    @property
    def before(self) -> list[str]:
        """What comes before all tiles: loads of columns, zeros for their sums."""
        loads = [line for one in self.read if one.axes == ("n",) for line in one.loads]
        return [*loads, *(f"{made}_sums = {self._zeros}" for made in self._columns)]

    @property
    def totals(self) -> list[tuple[str, list[str]]]:
        """For each gradient that is a sum of columns its name, and what stores one."""
        return [
            (
                made,
                [
                    f"row = {made}_ptr + tl.program_id(1).to(INDEX) * N",
                    f"tl.store(row + offs_n, tl.sum({made}_sums, 0), mask=mask_n)",
                ],
            )
            for made in self._columns
        ]

    @property
    def described(self) -> list[str]:
        """What `Elementwise` is told: the kernel, axes, results' dtypes."""
        axes = {one.name: "".join(one.axes) for one in self.read}
        made = {gradient_name(name): name for name in self.backward.passed}
        axes |= {one: "".join(self.axes_of(name)) for one, name in made.items()}
        dtypes = {one: DTYPES[self.dtype_of(name)].torch for one, name in made.items()}
        told = [self.name, _mapping(axes), _mapping(dtypes)]
        sums = DTYPES[self.plan.accumulator].torch
        told += [] if sums == "float32" else [f'sums="{sums}"']
        optional = len(self.backward.optional)
        return told + ([f"optional={optional}"] if optional else [])


_STORED = {
    ("m", "n"): "[M, N]",
    ("n",): "[programs along m, N]",
    ("m",): "[programs along n, M]",
}


def _if_given(gradients: Iterable[str], lines: list[str]) -> list[str]:
    """What a kernel does if it gets one of these gradients, known as it is compiled."""
    given = " or ".join(f"{one}_ptr is not None" for one in gradients)
    return [f"if {given}:", *(f"    {line}" for line in lines)]


def _mapping(values: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{key}": "{value}"' for key, value in values.items()) + "}"
