"""What a module says of itself: its header entry, formulas and docstrings.

Everything is spelled from the plan; nothing here is kernel or launcher code.
"""

import json
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from gemmgen.base.names import WIDTH
from gemmgen.epilogue.checked import AXES, default_target
from gemmgen.epilogue.expression import (
    Binary,
    Name,
    Node,
    names,
    short_number,
    spell,
    substituted,
)
from gemmgen.render.kernel_text import KernelText
from gemmgen.render.launcher_text import LauncherText
from gemmgen.schedules import SCHEDULES
from gemmgen.select.plan import SWITCHES, Plan
from gemmgen.tables.layouts import AXIS_SIZES, Matrix
from gemmgen.tables.operations import OPERATIONS


@dataclass(frozen=True)
class Description:
    """The prose of one module. Parts of several lines carry no indentation."""

    plan: Plan

    @property
    def entry(self) -> list[str]:
        """The resolved spec entry, a line a key, long ones wrapped."""
        lines = (f"{key}: {value}" for key, value in self._pairs.items())
        return [part for line in lines for part in _wrapped(line, WIDTH - 4)]

    @property
    def entry_in_header(self) -> list[str]:
        """The same as one mapping of YAML in few lines, broken after keys' values."""
        pairs = dict(self._pairs)
        pairs["epilogue"] = json.dumps(pairs["epilogue"], ensure_ascii=False)
        inner = [_unbroken(f"{key}: {value}") for key, value in pairs.items()]
        lines = _wrapped(f"{{{', '.join(inner)}}}", WIDTH - 4, indent=" ")
        return [line.replace("\0", " ") for line in lines]

    @property
    def _pairs(self) -> dict[str, str]:
        """The keys of the resolved entry that say something, with their values."""
        plan = self.plan
        pairs = {
            "name": plan.folder,
            "op": plan.op,
            "dtype": self.dtype_in_spec,
            "precision": plan.precision,
            "layout": plan.layout,
            "epilogue": self.epilogue_in_spec,
            "operands": _mapping(
                {one.name: one.dtype for one in plan.operands if not one.is_number}
            ),
            "outputs": _mapping({one.name: one.dtype for one in plan.results}),
            "tiles": plan.tiles_text,
            "schedule": plan.schedule,
            "autotune": "runtime" if plan.configs else None,
            **{key: "true" for key in SWITCHES if getattr(plan, key)},
            "targets": f"[{', '.join(plan.targets)}]",
        }
        return {key: value for key, value in pairs.items() if value}

    @property
    def dtype_in_spec(self) -> str:
        """One name, or the map if the result has another type than the inputs."""
        plan = self.plan
        if plan.out == plan.dtype:
            return plan.dtype
        parts = {"a": plan.dtype, "b": plan.dtype, "acc": plan.accumulator}
        return _mapping(parts | {"out": plan.out})

    @property
    def epilogue_in_spec(self) -> str:
        """The bare expression where that says it all, else every statement."""
        statements = self.statements_in_spec
        if len(statements) == 1:
            operands = [one.name for one in self.plan.epilogue.operands]
            default = default_target(self.plan.default_result, operands)
            return statements[0].removeprefix(f"{default} = ")
        return "; ".join(statements)

    @property
    def statements_in_spec(self) -> list[str]:
        """The epilogue as the language writes it, a statement each."""
        return self._statements(
            {one.name: AXES[one.axes].text for one in self.plan.epilogue.operands}
        )

    @property
    def statements_in_torch(self) -> list[str]:
        """The same of whole tensors, as torch broadcasts them."""
        return self._statements(self._in_torch)

    def _statements(self, after: Mapping[str, str]) -> list[str]:
        return [
            f"{one.target} = {_spelled(one.value, after)}"
            for one in self.plan.epilogue.statements
        ]

    @property
    def _in_torch(self) -> dict[str, str]:
        """What follows an operand there: an [m] would meet the results' columns."""
        return {
            one.name: AXES[one.axes].in_torch for one in self.plan.epilogue.operands
        }

    @property
    def formula(self) -> list[str]:
        """What is computed: one line when it is short, else a line a statement."""
        plan = self.plan
        lhs = Name(plan.contraction.lhs.product_text)
        products: dict[str, Node] = {
            name: Binary("@", lhs, Name(one.product_text))
            for name, one in plan.contraction.products.items()
        }
        first, *more = plan.epilogue.statements
        uses = list(names(first.value))
        if not more and all(uses.count(name) == 1 for name in products):
            value = substituted(first.value, products)
            return [f"{first.target} = {_spelled(value, self._in_torch)}"]
        sums = [f"{name} = {spell(product)}" for name, product in products.items()]
        return [*sums, *self.statements_in_torch]

    @property
    def types(self) -> str:
        """`bf16`, `fp16 → fp32`, `fp32 (tf32x3)`."""
        outs = list(dict.fromkeys(result.dtype for result in self.plan.results))
        arrow = "" if outs == [self.plan.dtype] else f" → {', '.join(outs)}"
        return self._input_type + arrow

    @property
    def _input_type(self) -> str:
        precision = f" ({self.plan.precision})" if self.plan.precision else ""
        return self.plan.dtype + precision

    @property
    def _results_and_types(self) -> str:
        """`c in bf16`, `c in fp32 (tf32)`, `c in fp32, of inputs in fp16`."""
        results = self.plan.results
        if all(one.dtype == self.plan.dtype for one in results):
            return f"{' and '.join(one.name for one in results)} in {self._input_type}"
        said = " and ".join(f"{one.name} in {one.dtype}" for one in results)
        return f"{said}, of inputs in {self._input_type}"

    @property
    def module_doc(self) -> str:
        """The module's docstring: what the kernel computes, if that takes a line."""
        types = self._results_and_types
        line = f"{self.formula[0]}, {types.partition(' ')[2]}."
        fits = len(self.formula) == 1 and len(line) <= WIDTH - 6
        return f'"""{line}"""' if fits else f'"""{types}."""'

    def schedule_doc(self, file: str) -> str:
        """The docstring of the file of a schedule, or of several with one kernel."""
        row = SCHEDULES[file]
        splits = KernelText(self.plan, row).splits
        title = row.title_of_splits if splits else row.title
        return f'"""{title[0].upper()}{title[1:]}."""'

    @property
    def epilogue_doc(self) -> str:
        """The docstring of the epilogue: each statement, of whole tensors."""
        lines = self.statements_in_torch
        if len(lines) == 1 and len(lines[0]) <= WIDTH - 7:
            return f'"""{lines[0]}."""'
        return f'"""The epilogue of a tile:\n\n{_indented(lines)}\n"""'

    @property
    def kernel_doc(self) -> str:
        """The kernel's docstring: its tensors as they are stored, the accumulator."""
        plan = self.plan
        inputs = [
            f"{matrix.name} [{', '.join(matrix.stored_sizes)}]"
            for matrix in plan.contraction.inputs
        ]
        inputs += [f"{one.name} {one.shape}" for one in plan.tensors]
        outputs = ", ".join(f"{one.name} [M, N]" for one in plan.results)
        text = f"{', '.join(inputs)} → {outputs}; {plan.accumulator} accumulator."
        return "\n".join(_wrapped(f'"""{text}"""', WIDTH - 4, indent=""))

    @property
    def launcher_doc(self) -> str:
        """The launcher's docstring: meaning, shapes, dtypes, errors."""
        plan = self.plan
        first, *more = self.formula
        line = f"Return {first.partition(' = ')[2]}."
        if more or len(line) > WIDTH - 7:
            returned = ", ".join(result.name for result in plan.results)
            line = f"Return {returned}, where\n\n{_indented(self.formula)}"
        rest = " ".join([self.shapes, *self.numbers, self.written, _COMMON])
        return f'"""{line}\n\n{filled(rest, WIDTH - 4)}\n"""'

    @property
    def numbers(self) -> list[str]:
        """What is passed as a number, if anything, and how it is used."""
        found = [one for one in self.plan.operands if one.is_number]
        if not found:
            return []
        said = " and ".join(one.name for one in found)
        kind = "are numbers" if found[1:] else "is a number"
        return [f"{said} {kind}, used as {found[0].arithmetic}; 0 times NaN is NaN."]

    @property
    def written(self) -> str:
        """What `out` may be: its memory, and whose that must not be."""
        in_place = [one.name for one in LauncherText(self.plan).read_in_place]
        is_one = f"is {' or '.join(in_place)} or " if in_place else ""
        memory = f"{is_one}shares no memory with inputs"
        names_ = [one.name for one in self.plan.results]
        if not names_[1:]:
            received = "the result" if names_[0] == "out" else names_[0]
            return f"`out` receives {received} if given, and {memory}."
        other = "others" if names_[2:] else "other"
        given = f"({', '.join(names_)}) if given"
        return f"`out` is {given}; each {memory} and the {other}."

    @property
    def shapes(self) -> str:
        """`a [M, K], b [K, N] → c [M, N], all fp16, any strides.`, as passed."""
        plan = self.plan
        inputs = plan.contraction.inputs
        dtypes = [plan.dtype for _ in inputs]
        dtypes += [one.dtype for one in plan.tensors]
        dtypes += [one.dtype for one in plan.results]
        alike = len(set(dtypes)) == 1
        kinds = [""] * len(dtypes) if alike else [f" {dtype}" for dtype in dtypes]
        tensors = [
            self.matrix_shape(one) + kind
            for one, kind in zip(inputs, kinds, strict=False)
        ]
        for one, kind in zip(plan.tensors, kinds[len(inputs) :], strict=False):
            sizes = ", ".join(AXIS_SIZES[axis] for axis in one.axes)
            tensors.append(f"{one.name} [{self.leading(sizes)}]{kind}")
        results = [
            f"{one.name} [{self.leading('M, N')}]{kind}"
            for one, kind in zip(reversed(plan.results), reversed(kinds), strict=False)
        ][::-1]
        ending = f", all {plan.dtype}, any strides." if alike else ", any strides."
        return f"{', '.join(tensors)} → {', '.join(results)}{ending}"

    def matrix_shape(self, matrix: Matrix) -> str:
        """`w [N, K]`, as it is passed."""
        sizes = ", ".join(matrix.stored_sizes)
        return f"{matrix.name} [{self.leading(sizes)}]"

    def leading(self, sizes: str) -> str:
        """Sizes with `...` for M where the operation flattens leading axes."""
        if not OPERATIONS[self.plan.op].leading:
            return sizes
        return sizes.replace("M", "...")


_COMMON = "Rules: `_runtime/__init__.py`."


def _spelled(node: Node, after: Mapping[str, str]) -> str:
    """An expression as people read it, with what follows some of its names."""
    return spell(node, lambda name: name + after.get(name, ""), number=short_number)


def _mapping(values: dict[str, str]) -> str:
    pairs = ", ".join(f"{key}: {value}" for key, value in values.items())
    return f"{{{pairs}}}" if pairs else ""


def _unbroken(pair: str) -> str:
    """A pair that wrapping leaves whole, or, if it is long, the mappings in it."""
    if len(pair) < WIDTH - 6:
        return pair.replace(" ", "\0")
    return re.sub(r"\{[^{}]*\}", lambda match: match[0].replace(" ", "\0"), pair)


def _indented(lines: list[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")


def filled(text: str, width: int) -> str:
    """A paragraph that is never broken inside a shape's brackets."""
    kept = re.sub(r"\[[^]]*\]", lambda shape: shape[0].replace(" ", "\0"), text)
    return textwrap.fill(kept, width).replace("\0", " ")


def _wrapped(line: str, width: int, indent: str = "    ") -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
