"""The text of a launcher: its checks, its results, the choice of a launch.

Every choice between two spellings is made here, so that a template has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.problem.derived import FORWARD, part_name
from gemmgen.problem.tensors import Operand, rows_first
from gemmgen.render.names.parts import BACKWARD, TILES, shared
from gemmgen.schedules import SCHEDULES, described
from gemmgen.select.plan import Plan
from gemmgen.tables.dtypes import DTYPES, UNANNOTATED
from gemmgen.tables.layouts import AXIS_SIZES
from gemmgen.tables.operations import OPERATIONS


@dataclass(frozen=True)
class LauncherText:
    """The fragments of one launcher, in the order in which it reads."""

    plan: Plan

    @property
    def launches(self) -> list[str]:
        """What `Launches` is told: axes of tensors, tiles, kernels by schedule."""
        plan = self.plan
        axes = {one.name: "".join(one.axes) for one in plan.passed}
        names = [*self.input_names, *(one.name for one in plan.results)]
        told = ", ".join(f'"{name}": "{axes.get(name, "")}"' for name in names)
        tiles = TILES.upper() if plan.rows else "()"
        kernels = [f"{file}={self._kernel(file)}" for file in plan.files]
        return [f"{{{told}}}", tiles, *kernels, *self._unlike_others]

    @property
    def _unlike_others(self) -> Iterator[str]:
        """What few launches have: slices of rows, inputs that are rounded."""
        plan = self.plan
        kind = plan.product.kind
        own = SCHEDULES[plan.specialized] if plan.specialized else None
        if own and own.shared_axis(kind, plan.layout) == "m":
            yield 'shared="m"'
        if plan.product.mma.rounds and any(
            "inputs" in described(name, kind) for name in plan.schedules
        ):
            yield "to_tf32=True"

    def _kernel(self, file: str) -> str:
        return self.plan.name + SCHEDULES[file].kernel_suffix

    @property
    def input_names(self) -> list[str]:
        """A, B and the operands, as the launcher takes them."""
        return self.plan.argument_names

    @property
    def result_names(self) -> list[str]:
        """The variables of the results, none of them the pair `out` that is passed."""
        names = [one.name for one in self.plan.results]
        return [f"{name}_" if name == "out" and names[1:] else name for name in names]

    @property
    def launched(self) -> list[str]:
        """What is launched with: the inputs, the results."""
        return [*self.input_names, *self.result_names]

    @property
    def annotated_arguments(self) -> list[str]:
        """The launcher's parameters before `out`."""
        numbers = {one.name for one in self.plan.operands if one.is_number}
        return [
            f"{name}: {'float' if name in numbers else 'Tensor'}"
            for name in self.input_names
        ]

    @property
    def by_row(self) -> list[str]:
        """The arguments that have a row, or number, for each row of the results.

        None where a tensor lies along M: its steps then depend on the number of rows.
        """
        if (
            not rows_first(self.plan.contraction.lhs, self.plan.tensors)
            or self.plan.configs
        ):
            return []
        tensors = [one.name for one in self.plan.tensors if one.by_rows]
        return [f'"{name}"' for name in (self.plan.contraction.lhs.name, *tensors)]

    @property
    def remembered(self) -> list[str]:
        """What the launcher's decorator is told."""
        return [
            "LAUNCHES",
            *self.by_row,
            *(["gradient=GRADIENT"] if self.plan.backward else []),
            *self._linear_in,
        ]

    @property
    def _linear_in(self) -> list[str]:
        """Whether results could be computed in parts of K."""
        found = self.plan.linear_in
        if found is None:
            return []
        named = ", ".join(f'"{name}"' for name in found)
        return [f"linear_in=({named}{',' * (len(found) == 1)})"]

    @property
    def gradient(self) -> list[str]:
        """What `Gradient` is told, if the kernel has any."""
        backward = self.plan.backward
        if backward is None:
            return []
        forward = [part_name(self.plan.name, FORWARD)] if self._keeps else []
        told = [f'"{self.plan.name}"', str(len(self.plan.results))]
        beside = len(backward.numbers) + backward.accumulates
        counted = [f"beside={beside}"] if beside else []
        return [*told, "saves", "backward", *forward, *counted]

    @property
    def _keeps(self) -> bool:
        """Whether the forward that autograd calls returns more than this kernel."""
        backward = self.plan.backward
        return backward is not None and backward.kept is not None

    @property
    def returned_type(self) -> str:
        """`Tensor`, or a tuple of as many as there are results."""
        tensors = ", ".join("Tensor" for _ in self.plan.results)
        return tensors if len(self.plan.results) == 1 else f"tuple[{tensors}]"

    @property
    def checks(self) -> list[str]:
        """The statements that check the arguments and make the results."""
        return [*self._input_checks(), *self._result_checks()]

    def _input_checks(self) -> Iterator[str]:
        plan, leading = self.plan, OPERATIONS[self.plan.op].leading
        a, b = plan.contraction.lhs, plan.contraction.first
        torch_type = DTYPES[plan.dtype].torch
        sizes = ", ".join(a.stored_sizes)
        shape = '..., "K"' if leading else ", ".join(f'"{s}"' for s in a.stored_sizes)
        bound = sizes.replace("M", "*batch") if leading else sizes
        yield (
            f'{bound} = CHECK.tensor("{a.name}", {a.name}, ({shape}), '
            f"torch.{torch_type})"
        )
        shape = ", ".join('"N"' if s == "N" else s for s in b.stored_sizes)
        yield f"{self._only_n} = " + self._check(b.name, shape, plan.dtype)
        for other in plan.contraction.rhs[1:]:
            yield self._check(other.name, ", ".join(other.stored_sizes), plan.dtype)
        for one in plan.operands:
            if one.is_number:
                wide = f", torch.{torch_type}" * (plan.accumulator != UNANNOTATED)
                yield f'{one.name} = CHECK.number("{one.name}", {one.name}{wide})'
            else:
                yield self._check(one.name, self._shape(one.axes), one.dtype)

    @property
    def _only_n(self) -> str:
        """What a shape of B is unpacked to: K is known from A."""
        sizes = self.plan.contraction.first.stored_sizes
        return ", ".join("N" if size == "N" else "_" for size in sizes)

    def _check(self, name: str, shape: str, dtype: str) -> str:
        return (
            f'CHECK.tensor("{name}", {name}, ({shape}), '
            f"torch.{DTYPES[dtype].torch}, {self.plan.contraction.lhs.name}.device)"
        )

    def _shape(self, axes: tuple[str, ...]) -> str:
        leading = OPERATIONS[self.plan.op].leading
        rows = "*batch" if leading else "M"
        sizes = [rows if axis == "m" else AXIS_SIZES[axis] for axis in axes]
        return ", ".join(sizes) + ("," if len(sizes) == 1 else "")

    def _result_checks(self) -> Iterator[str]:
        results = self.plan.results
        types = [f"torch.{DTYPES[one.dtype].torch}" for one in results]
        function = "outputs" if types[1:] else "output"
        dtype = f"({', '.join(types)})" if types[1:] else types[0]
        yield (
            f'{", ".join(self.result_names)} = CHECK.{function}("out", out, '
            f"({self._shape(('m', 'n'))}), {dtype}, "
            f"({', '.join(self.kept_apart)}){self._in_place})"
        )

    @property
    def kept_apart(self) -> list[str]:
        """The inputs that a result may not share memory with."""
        in_place = [one.name for one in self.read_in_place]
        return [one.name for one in self.plan.inputs if one.name not in in_place]

    @property
    def read_in_place(self) -> list[Operand]:
        """The operands of which each element is read where the result is written.

        By the same program, before; racing configurations run twice and cannot do that.
        """
        if self.plan.configs:
            return []
        return [one for one in self.plan.tensors if one.is_matrix]

    @property
    def _in_place(self) -> str:
        names = "".join(f"{one.name}, " for one in self.read_in_place)
        return f", in_place=({names})" if names else ""

    @property
    def row_loop(self) -> tuple[str, str, str] | None:
        """For flattened leading axes: the loop's names, its tensors, the call."""
        if not OPERATIONS[self.plan.op].leading:
            return None
        columns = {one.name for one in self.plan.tensors if one.axes == ("m",)}
        flat = [self.plan.contraction.lhs.name]
        flat += [one.name for one in self.plan.tensors if one.by_rows]
        rows = {name: f"{name}_rows" for name in flat}
        results = zip(self.result_names, self.plan.results, strict=True)
        rows |= {name: f"{one.name}_rows" for name, one in results}
        return (
            ", ".join(rows.values()),
            ", ".join(f"{n}.unsqueeze(-1)" if n in columns else n for n in rows),
            ", ".join(rows.get(name, name) for name in self.launched),
        )

    @property
    def imports(self) -> list[tuple[str, list[str]]]:
        """What the file takes, from what launchers share and from those beside it."""
        plan = self.plan
        rows = ["rows"] if self.row_loop else []
        taken = {
            "gradients.function": ["Gradient"] if plan.backward else [],
            "operators.launcher": ["Checks", "Launches", "launcher", *rows],
        }
        beside = {name: [self._kernel(name)] for name in plan.files}
        beside |= {BACKWARD: ["backward", "saves"]} if plan.backward else {}
        beside |= {FORWARD: [part_name(plan.name, FORWARD)]} if self._keeps else {}
        beside[TILES] = [TILES.upper()] if plan.rows else []
        return [
            *((shared(plan, file), names) for file, names in taken.items() if names),
            *((f".{file}", names) for file, names in sorted(beside.items()) if names),
        ]
