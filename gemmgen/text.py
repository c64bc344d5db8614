"""Spells a `Plan`: the fragments of text that templates place.

Every choice between two spellings is made here, so that a template has none.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.arguments import Operand
from gemmgen.dispatch import Row
from gemmgen.dtypes import DTYPES
from gemmgen.epilogue import AXES
from gemmgen.expression import (
    Binary,
    Name,
    Node,
    mapped,
    names,
    short_number,
    spell,
    triton_function,
)
from gemmgen.functions import OPS
from gemmgen.layouts import AXIS_SIZES, Matrix
from gemmgen.model import Tile
from gemmgen.operations import OPERATIONS
from gemmgen.plan import Plan
from gemmgen.schedules import SCHEDULES

WIDTH = 88
HELPER = '''@triton.jit
def {name}({parameters}):
    """{doc}"""
{body}'''


@dataclass(frozen=True)
class ModuleText:
    """The text of one module, by part. Multi-line parts carry no indentation."""

    plan: Plan

    # What the module says of itself

    @property
    def entry(self) -> list[str]:
        """The resolved spec entry for the header, a line each."""
        plan = self.plan
        pairs = {
            "name": plan.name,
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
            "targets": f"[{', '.join(plan.targets)}]",
        }
        lines = (f"{key}: {value}" for key, value in pairs.items() if value)
        return [part for line in lines for part in _wrapped(line, WIDTH - 4)]

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
        result = OPERATIONS[self.plan.op].result
        if len(statements) == 1:
            return statements[0].removeprefix(f"{result} = ")
        return "; ".join(statements)

    @property
    def statements_in_spec(self) -> list[str]:
        """The epilogue as the language writes it, a statement each."""
        indexes = {one.name: AXES[one.axes].text for one in self.plan.epilogue.operands}
        return [
            f"{statement.target} = "
            + spell(
                statement.value,
                name=lambda name: name + indexes.get(name, ""),
                number=short_number,
            )
            for statement in self.plan.epilogue.statements
        ]

    @property
    def formula(self) -> list[str]:
        """What is computed: one line when it is short, else a line a statement."""
        plan = self.plan
        product = Binary("@", Name(plan.a.product_text), Name(plan.b.product_text))
        first = plan.epilogue.statements[0]
        if len(plan.epilogue.statements) == 1:
            if list(names(first.value)).count("acc") == 1:
                value = _substituted(first.value, product)
                return [f"{first.target} = {spell(value, number=short_number)}"]
        return [f"acc = {spell(product)}", *self.statements_in_spec]

    @property
    def types(self) -> str:
        """`bf16`, `fp16 → fp32`, `fp32 (tf32x3)`."""
        plan = self.plan
        precision = f" ({plan.precision})" if plan.precision else ""
        outs = list(dict.fromkeys(result.dtype for result in plan.results))
        arrow = "" if outs == [plan.dtype] else f" → {', '.join(outs)}"
        return plan.dtype + precision + arrow

    @property
    def module_doc(self) -> str:
        """The module's docstring."""
        title = SCHEDULES[self.plan.schedule].title
        line = f"{self.formula[0]} in {self.types}, {title}."
        if len(self.formula) == 1 and len(line) <= WIDTH - 6:
            return f'"""{line}"""'
        first = f"{title[0].upper()}{title[1:]}, {self.types}:"
        return f'"""{first}\n\n{_indented(self.formula)}\n"""'

    @property
    def kernel_doc(self) -> str:
        """The kernel's docstring: its tensors and the accumulator."""
        plan = self.plan
        inputs = [
            f"{matrix.name} [{', '.join(AXIS_SIZES[axis] for axis in matrix.axes)}]"
            for matrix in (plan.a, plan.b)
        ]
        inputs += [f"{one.name} {one.shape}" for one in self.tensors]
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
        rest = (
            f"{self.shapes} Any strides. `out`, if given, receives what is returned. "
            "Raises ValueError if an argument has a wrong rank, size, dtype or device."
        )
        return f'"""{line}\n\n{_filled(rest, WIDTH - 4)}\n"""'

    @property
    def shapes(self) -> str:
        """`a [M, K], b [K, N] → c [M, N], all fp16.`, as they are passed."""
        plan = self.plan
        dtypes = [plan.dtype, plan.dtype]
        dtypes += [one.dtype for one in (*self.tensors, *plan.results)]
        alike = len(set(dtypes)) == 1
        kinds = [""] * len(dtypes) if alike else [f" {dtype}" for dtype in dtypes]
        tensors = [self.matrix_shape(plan.a) + kinds[0]]
        tensors.append(self.matrix_shape(plan.b) + kinds[1])
        for one, kind in zip(self.tensors, kinds[2:], strict=False):
            sizes = ", ".join(AXIS_SIZES[axis] for axis in one.axes)
            tensors.append(f"{one.name} [{self.leading(sizes)}]{kind}")
        results = [
            f"{one.name} [{self.leading('M, N')}]{kind}"
            for one, kind in zip(reversed(plan.results), reversed(kinds), strict=False)
        ][::-1]
        ending = f", all {plan.dtype}." if alike else "."
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

    # The kernel

    @property
    def tensors(self) -> list[Operand]:
        """The operands that are tensors."""
        return [one for one in self.plan.operands if not one.is_number]

    @property
    def helpers(self) -> list[str]:
        """The functions that the epilogue calls and Triton lacks, in order of use."""
        rows = [OPS[name] for name in self.plan.epilogue.functions if name in OPS]
        return [
            HELPER.format(
                name=row.name,
                parameters=", ".join(row.parameters),
                doc=row.doc,
                body=_indented([*row.steps, f"return {row.triton}"]),
            )
            for row in rows
            if not row.in_place
        ]

    @property
    def decorator(self) -> str:
        """`@triton.jit`, told which sizes need no kernel of their own; autotuning.

        M is only compared with unless it runs along A's contiguous axis.
        """
        jit = "@triton.jit"
        if self.plan.a.contiguous_axis != "m":
            jit = '@triton.jit(do_not_specialize=["M"])'
        if not self.plan.configs:
            return jit
        configs = ", ".join(_config(tile) for tile in self.plan.configs)
        return f'@triton.autotune([{configs}], key=["M", "N", "K"])\n{jit}'

    @property
    def parameters(self) -> list[str]:
        """The kernel's parameters, in order."""
        plan = self.plan
        return [
            f"{plan.a.name}_ptr",
            f"{plan.b.name}_ptr",
            *(one.parameter for one in plan.operands),
            *(f"{one.name}_ptr" for one in plan.results),
            *("M", "N", "K"),
            *plan.a.strides,
            *plan.b.strides,
            *(stride for one in plan.operands for stride in one.strides),
            *(stride for one in plan.results for stride in one.matrix.strides),
            "INDEX: tl.constexpr",
            *(f"{block}: tl.constexpr" for block in _BLOCKS),
        ]

    @property
    def accumulator(self) -> str:
        """The accumulator's Triton type."""
        return f"tl.{DTYPES[self.plan.accumulator].triton}"

    @property
    def dot(self) -> str:
        """The product of one K block."""
        plan = self.plan
        arguments = [plan.a.name, plan.b.name, "acc"]
        if plan.precision:
            arguments.append(f'input_precision="{plan.precision}"')
        if plan.accumulator != "fp32":
            arguments.append(f"out_dtype={self.accumulator}")
        return f"tl.dot({', '.join(arguments)})"

    @property
    def statements(self) -> list[str]:
        """The epilogue as kernel text; nothing for the identity."""
        spelled = {one.name: one.in_kernel for one in self.plan.operands}
        return [
            f"{one.target} = "
            + spell(one.value, lambda name: spelled.get(name, name), triton_function)
            for one in self.plan.epilogue.statements
            if not self.plan.epilogue.is_identity(one.target)
        ]

    # The launcher

    @property
    def arguments(self) -> list[str]:
        """The launcher's inputs by name: A, B, operands."""
        plan = self.plan
        return [plan.a.name, plan.b.name, *(one.name for one in plan.operands)]

    @property
    def launched(self) -> list[str]:
        """What `_launch` takes: the inputs and the results."""
        return [*self.arguments, *self.result_names]

    @property
    def launch_sizes(self) -> list[str]:
        """The statements that read M, N and K off two matrices."""
        return [
            f"{', '.join(self.plan.a.stored_sizes)} = {self.plan.a.name}.shape",
            f"{self._only_n} = {self.plan.b.name}.shape",
        ]

    @property
    def _only_n(self) -> str:
        sizes = self.plan.b.stored_sizes
        return ", ".join("N" if size == "N" else "_" for size in sizes)

    @property
    def annotated_arguments(self) -> list[str]:
        """The launcher's parameters before `out`."""
        numbers = {one.name for one in self.plan.operands if one.is_number}
        return [
            f"{name}: {'float' if name in numbers else 'torch.Tensor'}"
            for name in self.arguments
        ]

    @property
    def returned_type(self) -> str:
        """`torch.Tensor`, or a tuple of as many as there are results."""
        tensors = ", ".join("torch.Tensor" for _ in self.plan.results)
        return tensors if len(self.plan.results) == 1 else f"tuple[{tensors}]"

    @property
    def checks(self) -> list[str]:
        """The statements that check the arguments and make the results."""
        return [*self._input_checks(), *self._result_checks()]

    def _input_checks(self) -> Iterator[str]:
        plan, leading = self.plan, OPERATIONS[self.plan.op].leading
        a, b, torch_type = plan.a, plan.b, DTYPES[plan.dtype].torch
        sizes = ", ".join(a.stored_sizes)
        shape = '..., "K"' if leading else ", ".join(f'"{s}"' for s in a.stored_sizes)
        bound = sizes.replace("M", "*batch") if leading else sizes
        yield (
            f'{bound} = check("{plan.name}", "{a.name}", {a.name}, ({shape}), '
            f"torch.{torch_type})"
        )
        shape = ", ".join('"N"' if s == "N" else s for s in b.stored_sizes)
        yield f"{self._only_n} = " + self._check(b.name, shape, plan.dtype)
        for one in plan.operands:
            if one.is_number:
                yield f'{one.name} = number("{plan.name}", "{one.name}", {one.name})'
            else:
                yield self._check(one.name, self._shape(one.axes), one.dtype)

    def _check(self, name: str, shape: str, dtype: str) -> str:
        return (
            f'check("{self.plan.name}", "{name}", {name}, ({shape}), '
            f"torch.{DTYPES[dtype].torch}, {self.plan.a.name}.device)"
        )

    def _shape(self, axes: tuple[str, ...]) -> str:
        leading = OPERATIONS[self.plan.op].leading
        sizes = ["*batch" if s == "M" and leading else s
                 for s in (AXIS_SIZES[axis] for axis in axes)]  # fmt: skip
        return ", ".join(sizes) + ("," if len(sizes) == 1 else "")

    def _result_checks(self) -> Iterator[str]:
        plan, several = self.plan, len(self.plan.results) > 1
        if several:
            names_ = ", ".join(self.result_names)
            yield f'{names_} = split("{plan.name}", out, {len(plan.results)})'
        for position, one in enumerate(plan.results):
            label, value = (f"out[{position}]", one.name) if several else ("out", "out")
            yield (
                f'{one.name} = result("{plan.name}", "{label}", {value}, '
                f"({self._shape(('m', 'n'))}), torch.{DTYPES[one.dtype].torch}, "
                f"({', '.join(self.kept_apart)}))"
            )

    @property
    def kept_apart(self) -> list[str]:
        """The inputs that a result may not share memory with.

        A matrix operand is read where the result is written, by the same program; only
        racing configurations, which run twice, cannot allow that.
        """
        tensors = [one.name for one in self.tensors
                   if self.plan.configs or len(one.axes) == 1]  # fmt: skip
        return [self.plan.a.name, self.plan.b.name, *tensors]

    @property
    def row_loop(self) -> tuple[str, str, str] | None:
        """For flattened leading axes: the loop's names, its tensors, the call."""
        if not OPERATIONS[self.plan.op].leading:
            return None
        columns = {one.name for one in self.tensors if one.axes == ("m",)}
        flat = [self.plan.a.name]
        flat += [one.name for one in self.tensors if "m" in one.axes]
        flat += self.result_names
        return (
            ", ".join(f"{name}_rows" for name in flat),
            ", ".join(f"{n}.unsqueeze(-1)" if n in columns else n for n in flat),
            ", ".join(f"{n}_rows" if n in flat else n for n in self.launched),
        )

    @property
    def support(self) -> list[str]:
        """The names that the module takes from the support module."""
        plan = self.plan
        used = {"check": True, "result": True, "offset_type": True, "on_device": True}
        used |= {
            "Tile": bool(plan.rows),
            "select": bool(plan.rows),
            "rows": self.row_loop is not None,
            "number": any(one.is_number for one in plan.operands),
            "split": len(plan.results) > 1,
        }
        return sorted(name for name, needed in used.items() if needed)

    @property
    def tensor_names(self) -> list[str]:
        """Every tensor that the kernel reads or writes."""
        numbers = {one.name for one in self.plan.operands if one.is_number}
        return [name for name in self.launched if name not in numbers]

    @property
    def result_names(self) -> list[str]:
        """The results by name."""
        return [one.name for one in self.plan.results]

    @property
    def launch_arguments(self) -> list[str]:
        """The kernel's arguments, in the order of its parameters."""
        plan = self.plan
        return [
            *self.arguments,
            *self.result_names,
            *("M", "N", "K"),
            *plan.a.stride_values,
            *plan.b.stride_values,
            *(value for one in plan.operands for value in one.stride_values),
            *(value for one in plan.results for value in one.matrix.stride_values),
            f"offset_type({', '.join(self.tensor_names)})",
            *(_TILE_ARGUMENTS if plan.rows else ()),
        ]

    @property
    def tile_choice(self) -> list[str]:
        """The statements that choose the tile and with it the grid."""
        if self.plan.configs:
            cells = (
                "(triton.cdiv(M, tile['BLOCK_M']) * triton.cdiv(N, tile['BLOCK_N']),)"
            )
            return ["def grid(tile):", f"    return {cells}", ""]
        return [
            f"tile = select(TILES, {self.plan.a.name}.device, M, N)",
            "grid = (triton.cdiv(M, tile.m) * triton.cdiv(N, tile.n),)",
        ]

    @property
    def rows(self) -> list[str]:
        """The dispatch table, a row each."""
        return [_row(row) for row in self.plan.rows]


_BLOCKS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
_TILE_ARGUMENTS = (
    *("tile.m", "tile.n", "tile.k", "tile.group_m"),
    *("num_stages=tile.stages", "num_warps=tile.warps"),
)


def _row(row: Row) -> str:
    """`Tile(sm=90, M=64, m=64, n=128, k=64, group_m=8, stages=4, warps=4)`."""
    limits = {"sm": row.architecture, "M": row.m, "N": row.n}
    tile = row.tile
    values = limits | {
        "m": tile.m,
        "n": tile.n,
        "k": tile.k,
        "group_m": tile.group_m,
        "stages": tile.stages,
        "warps": tile.warps,
    }
    given = (f"{key}={value}" for key, value in values.items() if value is not None)
    return f"Tile({', '.join(given)})"


def _config(tile: Tile) -> str:
    values = zip(_BLOCKS, (tile.m, tile.n, tile.k, tile.group_m), strict=True)
    blocks = ", ".join(f'"{key}": {value}' for key, value in values)
    return (
        f"triton.Config({{{blocks}}}, num_stages={tile.stages}, num_warps={tile.warps})"
    )


def _substituted(node: Node, product: Node) -> Node:
    """The expression with `acc` replaced by the product."""
    return mapped(node, lambda leaf: product if leaf == Name("acc") else leaf)


def _mapping(values: dict[str, str]) -> str:
    pairs = ", ".join(f"{key}: {value}" for key, value in values.items())
    return f"{{{pairs}}}" if pairs else ""


def _indented(lines: list[str]) -> str:
    return textwrap.indent("\n".join(lines), "    ")


def _filled(text: str, width: int) -> str:
    """A paragraph that is never broken inside a shape's brackets."""
    kept = re.sub(r"\[[^]]*\]", lambda shape: shape[0].replace(" ", "\0"), text)
    return textwrap.fill(kept, width).replace("\0", " ")


def _wrapped(line: str, width: int, indent: str = "    ") -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
