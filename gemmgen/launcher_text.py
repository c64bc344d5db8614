"""The text of a launcher: its checks, its launch.

Every choice between two spellings is made here, so that a template has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.dtypes import DTYPES
from gemmgen.functions import FAST
from gemmgen.kernel_text import KernelText, helpers
from gemmgen.layouts import AXIS_SIZES
from gemmgen.operations import OPERATIONS
from gemmgen.plan import Plan
from gemmgen.schedules import SCHEDULES, SPECIALIZED, described, transposes

_CONSTANTS = {
    "BLOCK_M": "tile.m",
    "BLOCK_N": "tile.n",
    "BLOCK_K": "tile.k",
    "GROUP_M": "tile.group_m",
    "STAGES": "tile.stages",
    "WARPGROUPS": "tile.warpgroups",
}
_ONE_A_TILE = "(tile.count(M, N),)"
_ONE_A_PART = "(tiles, parts)"
_ONE_AN_SM = "(min(tile.count(M, N), processors({device})),)"
_GRIDS = {
    "tiled": _ONE_A_TILE,
    "tma": _ONE_A_PART,
    "split_k": _ONE_A_PART,
    "persistent": _ONE_AN_SM,
    SPECIALIZED: _ONE_AN_SM,
    "gemv": "(triton.cdiv(N, tile.n), M)",
}
_RACED_GRID = (
    'lambda tile: (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)'
)


@dataclass(frozen=True)
class LauncherText:
    """The fragments of one launcher, in the order in which it reads."""

    plan: Plan

    @property
    def arguments(self) -> list[str]:
        """The launcher's inputs by name: A, B, operands."""
        plan = self.plan
        return [plan.a.name, plan.b.name, *(one.name for one in plan.operands)]

    @property
    def result_names(self) -> list[str]:
        """The results by name."""
        return [one.name for one in self.plan.results]

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
        rows = "*batch" if leading else "M"
        sizes = [rows if axis == "m" else AXIS_SIZES[axis] for axis in axes]
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
        tensors = [
            one.name
            for one in self.plan.tensors
            if self.plan.configs or len(one.axes) == 1
        ]
        return [self.plan.a.name, self.plan.b.name, *tensors]

    @property
    def row_loop(self) -> tuple[str, str, str] | None:
        """For flattened leading axes: the loop's names, its tensors, the call."""
        if not OPERATIONS[self.plan.op].leading:
            return None
        columns = {one.name for one in self.plan.tensors if one.axes == ("m",)}
        flat = [self.plan.a.name]
        flat += [one.name for one in self.plan.tensors if "m" in one.axes]
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
        used = {
            "check": True,
            "result": True,
            "alignment": any(self.kernel(one).aligns for one in plan.schedules),
            "offset_type": any(self.kernel(one).indexes for one in plan.schedules),
            "processors": any(_GRIDS[one] == _ONE_AN_SM for one in plan.schedules),
            "ANY": bool(plan.rows),
            "FILL": any(row.tile.split_k < 0 for row in plan.rows),
            "FULL": any(row.full for row in plan.rows),
            "Tile": bool(plan.rows),
            "select": bool(plan.rows),
            "rows": self.row_loop is not None,
            "number": any(one.is_number for one in plan.operands),
            "split": len(plan.results) > 1,
        }
        functions = "\n".join(helpers(plan))
        used |= {name: name in functions for name in FAST}
        return sorted(name for name, needed in used.items() if needed)

    @property
    def launching(self) -> list[str]:
        """The names that the module takes from the launch module."""
        blocks = ["Block"] if self.described else []
        return [*blocks, "Launch", "remembered"]

    def kernel(self, schedule: str) -> KernelText:
        """The kernel of a schedule."""
        return KernelText(self.plan, SCHEDULES[schedule])

    @property
    def tensor_names(self) -> list[str]:
        """Every tensor that the kernel reads or writes."""
        numbers = {one.name for one in self.plan.operands if one.is_number}
        return [name for name in self.launched if name not in numbers]

    @property
    def described(self) -> dict[str, str]:
        """For each schedule with descriptors, the tensors that they describe."""
        return {
            name: f"({', '.join(self._described(name))})"
            for name in self.plan.schedules
            if SCHEDULES[name].described
        }

    def _described(self, schedule: str) -> list[str]:
        plan, roles = self.plan, described(schedule, self.plan.product.kind)
        matrices = [one.name for one in plan.operands if one.is_matrix]
        by_role = {
            "inputs": [plan.a.name, plan.b.name],
            "operands": matrices,
            "results": self.result_names,
        }
        return [
            name for role, names in by_role.items() for name in names if role in roles
        ]

    def tensors(self, schedule: str) -> list[str]:
        """What the kernel takes first: tensors, or their blocks, and numbers."""
        blocks = self._described(schedule)
        return [
            self._block(name, schedule) if name in blocks else name
            for name in self.launched
        ]

    def _block(self, name: str, schedule: str) -> str:
        """`Block(w, tile.n, tile.k)`, in the order in which the tensor is stored."""
        plan, sides = self.plan, {axis: f"tile.{axis}" for axis in "mnk"}
        if schedule == SPECIALIZED:  # the part of one consumer
            turned = transposes(schedule, plan.product.kind, plan.layout)
            sides |= {"n": "tile.columns"} if turned else {"m": "tile.rows"}
        inputs = {one.name: one for one in (plan.a, plan.b)}
        axes = inputs[name].stored_axes if name in inputs else ("m", "n")
        arguments = [name, *(sides[axis] for axis in axes)]
        if name in inputs and plan.precision == "tf32":
            arguments.append("to_tf32=True")
        return f"Block({', '.join(arguments)})"

    def values(self, schedule: str) -> list[str]:
        """What the kernel takes after them: sizes, strides, compile-time constants."""
        text, plan = self.kernel(schedule), self.plan
        strides = dict(zip(plan.a.strides, plan.a.stride_values, strict=True))
        strides |= dict(zip(plan.b.strides, plan.b.stride_values, strict=True))
        for one in plan.operands:
            strides |= dict(zip(one.strides, one.stride_values, strict=True))
        for result in plan.results:
            matrix = result.matrix
            strides |= dict(zip(matrix.strides, matrix.stride_values, strict=True))
        found = ["M", "N", "K", *(("parts",) if text.schedule.splits else ())]
        found += [strides[name] for name in text.strides]
        if text.indexes:
            found.append(f"offset_type({', '.join(self.tensor_names)})")
        if text.aligns:
            found.append(f"alignment({plan.a.name}, {plan.b.name})")
        if plan.rows:
            found += [_CONSTANTS[one] for one in text.schedule.constants]
        return found

    def grid(self, schedule: str) -> str:
        """The programs of a launch."""
        if self.plan.configs:
            return _RACED_GRID
        return _GRIDS[schedule].format(device=f"{self.plan.a.name}.device")

    def preparation(self, schedule: str) -> list[str]:
        """The statements before a schedule's `Launch`."""
        if not SCHEDULES[schedule].splits:
            return self.launch_sizes
        return [
            *self.launch_sizes,
            "tiles = tile.count(M, N)",
            f"parts = tile.parts(tiles, K, {self.plan.a.name}.device)",
        ]

    def call(self, schedule: str) -> list[str]:
        """The arguments of a schedule's `Launch`."""
        plan = self.plan
        return [
            self.kernel(schedule).name,
            self.grid(schedule),
            f"({', '.join(self.tensors(schedule))})",
            f"({', '.join(self.values(schedule))})",
            *(("tile",) if plan.rows else ()),
            *(("splits=True",) if SCHEDULES[schedule].splits else ()),
        ]

    @property
    def launch_parameters(self) -> list[str]:
        """What each schedule's function takes."""
        return [*(("tile",) if self.plan.rows else ()), *self.launched]

    @property
    def launch_choice(self) -> list[str]:
        """The statements that choose the tile and launch its kernel."""
        arguments = ", ".join(self.launch_parameters)
        if self.plan.configs:
            return [f"_tiled({arguments}).run()"]
        needed = "".join(f", {key}={value}" for key, value in self.described.items())
        device = f"{self.plan.a.name}.device"
        choice = f"tile = select(TILES, {device}, (M, N, K){needed})"
        if len(self.plan.schedules) == 1:
            return [*self.launch_sizes, choice, f"_tiled({arguments}).run()"]
        prepared = ", ".join(f'"{name}": _{name}' for name in self.plan.schedules)
        return [
            *self.launch_sizes,
            choice,
            f"schedules = {{{prepared}}}",
            f"schedules[tile.schedule]({arguments}).run()",
        ]
