"""The text of a launcher: its table of tiles, its checks, its launch.

Every choice between two spellings is made here, so that a template has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gemmgen.dispatch import Row
from gemmgen.dtypes import DTYPES
from gemmgen.layouts import AXIS_SIZES
from gemmgen.operations import OPERATIONS
from gemmgen.plan import Plan

_TILE_ARGUMENTS = (
    *("tile.m", "tile.n", "tile.k", "tile.group_m"),
    *("num_stages=tile.stages", "num_warps=tile.warps"),
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
